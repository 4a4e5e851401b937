"""One layer of any model on all nodes, in batches: rows of the table below come through the ordinary pipeline.

The seeds of a batch are consecutive rows (row_batches.py). Batches are computed by several threads, each with a twin of
the layer and one thread of torch, so that no result depends on their number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from threading import local
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop._native import hop_read_bytes
from diskhop.batches.sizes import BatchSizes
from diskhop.batches.typed import SPLIT_BYTES, split_types
from diskhop.budget import Budget
from diskhop.config.options import AUTO
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.node_set import NodeSet
from diskhop.disk.model import DiskModel
from diskhop.errors import BudgetError, PredictionError
from diskhop.nn.reproducible import reproducible
from diskhop.pipeline.batch import MiniBatch, Pass, Prepare
from diskhop.pipeline.edge_weights import EdgeWeights
from diskhop.pipeline.pipeline import Pipeline, open_pipeline
from diskhop.pipeline.sizes import batch_bytes
from diskhop.planning.batch_sizes import measure_batches
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.plans import PreparedBytes, SampledPlan
from diskhop.predicting.batched.dry_run import LayerCost
from diskhop.predicting.batched.row_batches import RowBatches, cut_batches, most_entries
from diskhop.predicting.row_files import WRITING_BYTES, AppendRows, RowFile
from diskhop.protocols import NodeRows, Purpose, SamplerSpec, neighbor_spec
from diskhop.runtime.tasks import TaskTools
from diskhop.sampling.seeds import SeedSet
from diskhop.stores.stores import STORES

# One count, or one per batch.
Count = TypeVar("Count", int, NDArray[np.int64])

# Computes the destinations' rows of a batch: float32 (destinations, columns) in new memory.
ComputeRows = Callable[[MiniBatch], Tensor]

_NO_SEEDS = NodeRows(np.empty(0, np.int64))


class RowLayer(Protocol):
    """A layer that computes rows from batches of one hop."""

    @property
    def number(self) -> int:
        """Number of the layer, from 1."""

    @property
    def label(self) -> str:
        """Name for messages."""

    @property
    def node_type(self) -> str | None:
        """Type of the rows; None in a graph without types."""

    @property
    def uses_degrees(self) -> bool:
        """Whether it needs degrees of the whole graph."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerRun:
    """How layers are computed.

    budget: memory.
    tools: writes tables; the pipeline has an engine of the same kind.
    threads: threads that compute batches.
    store: the option of this name; None: chosen for each layer.
    scratch: folder for a store's temporary files; None: DATASET/derived.
    disk: cost of reads; None: measured.
    seed: random seed of draws.
    edge_weights: whether sums use the weights of edges; only for networks of diskhop.
    held: memory by name that is reserved before layers are computed, in bytes.
    """

    budget: Budget
    tools: TaskTools
    threads: int
    store: str | None = None
    scratch: str | None = None
    disk: DiskModel | None = None
    seed: int = 0
    edge_weights: bool = False
    held: Mapping[str, int] = field(default_factory=dict)

    def weights_of(self, dataset: Dataset, layer: RowLayer) -> EdgeWeights | None:
        """Return the weights that a layer uses; None for none."""
        if not self.edge_weights:
            return None
        return EdgeWeights(dataset, self.budget.total_bytes, with_strengths=layer.uses_degrees)


@dataclass(frozen=True, slots=True, eq=False)
class PlannedLayer:
    """A layer that fits the memory.

    layer: the layer.
    plan: plan of the pipeline.
    num_threads: threads that compute: as many as fit, as results are the same.
    batches: batches of all rows.
    fanout: neighbours drawn per node, -1 for all.
    """

    layer: RowLayer
    plan: SampledPlan
    num_threads: int
    batches: RowBatches
    work: _Work
    fanout: int


def plan_layer(
    dataset: Dataset, layer: RowLayer, cost: LayerCost, out: RowFile, run: LayerRun, *, fanout: int
) -> PlannedLayer:
    """Plan a layer. Rows of the table below, which are the dataset's features, need not exist, but their file.

    Raises BudgetError with the smallest budget that works.
    """
    entries = most_entries(max(cost.in_dim, out.dim))
    batches = cut_batches(dataset.topology, fanout, entries, out.range_rows, run.budget, layer.node_type)
    work = _Work(dataset, cost, batches, run.weights_of(dataset, layer))
    plan, num_threads = _plan(dataset, layer, batches, neighbor_spec([fanout]), work, run)
    return PlannedLayer(layer, plan, num_threads, batches, work, fanout)


def compute_layer(
    dataset: Dataset,
    planned: PlannedLayer,
    out: RowFile,
    run: LayerRun,
    *,
    open_rows: Callable[[], ComputeRows],
    progress: Callable[[int, int], None],
) -> None:
    """Write the missing rows of a layer.

    dataset: the graph, with the table below as its features. open_rows: returns the layer for one thread. Batches of a
    graph with types come prepared as TypedBatch, others with the weights of their edges, if the layer uses some.

    Raises ConfigError for a result of another form, PredictionError for one that is not finite.
    """
    layer, plan, batches, work = planned.layer, planned.plan, planned.batches, planned.work
    weights = run.weights_of(dataset, layer)
    with ExitStack() as stack:
        for name, num_bytes in work.held(planned.num_threads).items():
            stack.enter_context(run.budget.reserve(name, num_bytes))
        stack.enter_context(reproducible(1))
        crew = stack.enter_context(_Crew(dataset, layer, open_rows, work, planned.num_threads))
        pipeline = stack.enter_context(open_pipeline(dataset, plan, run.budget))
        whole = _pass_of(layer, batches, neighbor_spec([planned.fanout]), run.seed)
        prepare = _preparing(pipeline, weights)
        out.write(partial(_write_range, pipeline, whole, prepare, batches, crew), run.tools, progress)


def _preparing(pipeline: Pipeline, weights: EdgeWeights | None) -> Prepare | None:
    """Return what prepares a batch: by types, or with weights; None for what needs nothing."""
    types = pipeline.dataset.types
    if types is not None:
        return lambda sampled, _x: split_types(sampled, types)
    if weights is None:
        return None
    opened = weights.open(pipeline.engine, pipeline.plan.max_gap_bytes)
    return lambda sampled, _x: opened.of(sampled)


def _pass_of(layer: RowLayer, batches: RowBatches, sampler: SamplerSpec, seed: int) -> Pass:
    """Describe all batches of a layer. Draws are keyed by the layer's number, in place of an epoch."""
    return Pass(
        seeds=_NO_SEEDS,
        numbers=range(len(batches)),
        batch_size=int(batches.num_rows.max()),
        sampler=sampler,
        seed=seed,
        purpose=Purpose.INFER,
        epoch=layer.number,
        with_in_degrees=layer.uses_degrees,
        row_starts=batches.seed_starts,
        first_row=batches.first_row,
    )


def _write_range(
    pipeline: Pipeline,
    whole: Pass,
    prepare: Prepare | None,
    batches: RowBatches,
    crew: _Crew,
    first: int,
    end: int,
    append: AppendRows,
) -> None:
    """Compute rows first to end and append them in order. prepare: returns the weights of a batch; None: no weights."""
    with pipeline.run(replace(whole, numbers=batches.numbers(first, end)), prepare) as stream:
        for rows in crew.compute(stream):
            append(rows)


def _plan(
    dataset: Dataset, layer: RowLayer, batches: RowBatches, sampler: SamplerSpec, work: _Work, run: LayerRun
) -> tuple[SampledPlan, int]:
    """Return the pipeline's plan and the number of computing threads (see PlannedLayer)."""
    seed_set = SeedSet(
        purpose=Purpose.INFER,
        seeds=_NO_SEEDS,
        batch_size=int(batches.num_rows.max()),
        sampler=sampler,
        is_shuffled=False,
        row_starts=batches.seed_starts,
    )
    # Other working memory is measured, on the largest batch too.
    largest = int(np.argmax(batches.num_edges))
    alone = replace(seed_set, row_starts=batches.seed_starts[largest : largest + 2])
    sizes = work.bounded(measure_batches(dataset, (seed_set, alone), run.seed))
    workload = Workload(
        seed_sets=(seed_set,),
        seed=run.seed,
        store=run.store,
        engine=run.tools.engine.name,
        threads=run.threads,
        # A named store may have no use for a folder.
        scratch=run.scratch if run.store in (None, AUTO) or "scratch" in STORES[run.store].uses else None,
        ordered=True,
        values=work.added,
        sizes=sizes,
    )
    for num_threads in range(min(run.threads, len(batches)), 0, -1):
        wanted = replace(workload, also_held={**run.held, **work.held(num_threads)})
        try:
            return choose_plan(dataset, wanted, run.budget, run.disk), num_threads
        except BudgetError as error:
            if num_threads == 1:
                raise BudgetError(f"{layer.label}: {error}", error.smallest_bytes) from error
    raise AssertionError("one thread fits or raises")


class _Work:
    """Memory of the batches of a layer, at most: no batch exceeds it, however many of its neighbours are distinct.

    weights: of the edges; None for none.
    """

    def __init__(self, dataset: Dataset, cost: LayerCost, batches: RowBatches, weights: EdgeWeights | None) -> None:
        self.added = PreparedBytes() if weights is None else weights.added
        if dataset.types is not None:
            self.added = SPLIT_BYTES
        self._reserved = {} if weights is None else weights.reserved
        self._dataset = dataset
        self._cost = cost
        self._batches = batches
        counts = zip(batches.num_edges.tolist(), batches.most_sources.tolist(), batches.num_rows.tolist(), strict=True)
        self._bytes = np.sort([self.bytes_of(*each) for each in counts])

    def bytes_of(self, num_edges: int, num_sources: int, num_rows: int) -> int:
        """Bytes of a batch while it is computed, its features included."""
        input_bytes = batch_bytes(
            self._dataset, _block_bytes(num_edges, num_sources, num_rows), np.empty(0, np.int64), num_sources
        )
        input_bytes += self.added.of(num_sources, num_edges)
        return self._cost.bytes_of(num_edges, num_sources, num_rows) + input_bytes

    def most_bytes(self, num_threads: int) -> int:
        """Bytes of the largest batches, one per thread."""
        return int(self._bytes[-num_threads:].sum())

    def held(self, num_threads: int) -> dict[str, int]:
        """Bytes that are reserved next to the pipeline's, by name."""
        return {**self._reserved, "computing layers": self.most_bytes(num_threads), "writing rows": WRITING_BYTES}

    def bounded(self, measured: BatchSizes) -> BatchSizes:
        """Return sizes that no batch exceeds."""
        batches = self._batches
        blocks = _block_bytes(batches.num_edges, batches.most_sources, batches.num_rows)
        num_lists = int(batches.num_rows.max()) * batches.lists_per_row
        read_bytes = hop_read_bytes(num_lists, int(batches.num_edges.max()))
        most_sources = int(batches.most_sources.max())
        return replace(
            measured,
            block_bytes=int(blocks.max()),
            record_bytes=max(measured.record_bytes, int(blocks.max())),
            num_nodes=most_sources,
            num_rows=most_sources,
            hop_read_bytes=max(measured.hop_read_bytes, read_bytes),
        )


def _block_bytes(num_edges: Count, num_sources: Count, num_rows: Count) -> Count:
    """Bytes of a SampledBatch of one hop: ids, list bounds, sources and positions of edges."""
    return 8 * num_sources + 8 * (num_rows + 1) + 12 * num_edges


class _Crew:
    """Threads that compute batches; a context manager. Their memory is bounded by that of the largest batches."""

    def __init__(
        self,
        dataset: Dataset,
        layer: RowLayer,
        open_rows: Callable[[], ComputeRows],
        work: _Work,
        num_threads: int,
    ) -> None:
        self._dataset = dataset
        self._layer = layer
        self._open_rows = open_rows
        self._work = work
        self._most_bytes = work.most_bytes(num_threads)
        self._num_threads = num_threads
        self._own = local()
        self._pool = ThreadPoolExecutor(num_threads, "layer", initializer=torch.set_num_threads, initargs=(1,))

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def compute(self, batches: Iterator[MiniBatch]) -> Iterator[NDArray[np.float32]]:
        """Yield the rows of each batch, in order: float32 (destinations, columns)."""
        waiting: deque[tuple[Future[NDArray[np.float32]], int]] = deque()
        used_bytes = 0
        for batch in batches:
            sampled = batch.sampled
            num_bytes = self._work.bytes_of(len(sampled.sources), sampled.num_nodes, sampled.num_seeds)
            while waiting and (len(waiting) >= self._num_threads or used_bytes + num_bytes > self._most_bytes):
                rows, done_bytes = waiting.popleft()
                yield rows.result()
                used_bytes -= done_bytes
            waiting.append((self._pool.submit(self._rows, batch), num_bytes))
            used_bytes += num_bytes
            # A reference kept here would be one batch more than reserved.
            del batch, sampled
        while waiting:
            yield waiting.popleft()[0].result()

    def _rows(self, batch: MiniBatch) -> NDArray[np.float32]:
        compute: ComputeRows | None = getattr(self._own, "compute", None)
        if compute is None:
            compute = self._own.compute = self._open_rows()
        rows: NDArray[np.float32] = compute(batch).numpy()
        if not np.isfinite(rows).all():
            row = int(batch.nodes[int(np.argmin(np.isfinite(rows).all(axis=1)))])
            node_type = self._layer.node_type
            nodes = self._dataset.only_nodes if node_type is None else self._dataset.nodes[node_type]
            raise not_finite(nodes, self._layer.label, row)
        return rows


def not_finite(nodes: NodeSet, label: str, row: int) -> PredictionError:
    """Return the error for a row with NaN or infinity. label: name of the layer."""
    node = int(nodes.id_map().ids(NodeRows(np.array([row])))[0])
    return PredictionError(
        f"{label}: its result for node {node} is not finite (NaN or infinity); check that node's features and the "
        "model's weights"
    )

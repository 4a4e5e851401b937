"""One layer of any model on all nodes, in batches: how it is planned. layer_rows.py computes it.

Rows of the table below come through the ordinary pipeline. The seeds of a batch are consecutive rows (row_batches.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from diskhop._native import hop_read_bytes
from diskhop.batches.sizes import BatchSizes
from diskhop.batches.typed import SPLIT_BYTES
from diskhop.budget import Budget
from diskhop.config.options import AUTO
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.node_set import NodeSet
from diskhop.disk.model import DiskModel
from diskhop.errors import BudgetError, PredictionError
from diskhop.pipeline.edge_weights import EdgeWeights
from diskhop.pipeline.sizes import batch_bytes
from diskhop.planning.batch_sizes import measure_batches
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.plans import PreparedBytes, SampledPlan
from diskhop.predicting.batched.dry_run import LayerCost
from diskhop.predicting.batched.row_batches import RowBatches, cut_batches, most_entries
from diskhop.predicting.row_files import WRITING_BYTES, RowFile
from diskhop.protocols import NodeRows, Purpose, SamplerSpec, neighbor_spec
from diskhop.runtime.tasks import TaskTools
from diskhop.sampling.seeds import SeedSet
from diskhop.stores.stores import STORES

# One count, or one per batch.
Count = TypeVar("Count", int, NDArray[np.int64])

NO_SEEDS = NodeRows(np.empty(0, np.int64))


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

    @property
    def of_one_process(self) -> LayerRun:
        """How one process of an executor computes layers: in an equal part of the memory and threads of its machine."""
        sharing = self.tools.processes_per_machine
        if sharing == 1:
            return self
        available_bytes = self.budget.available_bytes - sum(self.held.values())
        budget = Budget(max(1, available_bytes // sharing))
        return replace(self, budget=budget, threads=max(1, self.threads // sharing), held={})

    @contextmanager
    def refusals_of_all(self) -> Iterator[None]:
        """Raise the BudgetError of one process as that of all which share the memory."""
        try:
            yield
        except BudgetError as error:
            sharing = self.tools.processes_per_machine
            if sharing > 1:
                self.budget.require({"computing layers": sharing * (error.smallest_bytes or 0), **self.held})
            raise

    def weights_of(self, dataset: Dataset, layer: RowLayer) -> EdgeWeights | None:
        """Return the weights that a layer uses; None for none."""
        if not self.edge_weights:
            return None
        return EdgeWeights(dataset, self.budget.total_bytes, with_strengths=layer.uses_degrees)


@dataclass(frozen=True, slots=True, eq=False)
class PlannedLayer:
    """A layer that fits the memory.

    layer: the layer.
    cost: its memory.
    plan: plan of the pipeline.
    num_threads: threads that compute: as many as fit, as results are the same.
    batches: batches of all rows.
    work: memory of the batches.
    fanout: neighbours drawn per node, -1 for all.
    """

    layer: RowLayer
    cost: LayerCost
    plan: SampledPlan
    num_threads: int
    batches: RowBatches
    work: BatchWork
    fanout: int


def plan_layer(
    dataset: Dataset, layer: RowLayer, cost: LayerCost, out: RowFile, run: LayerRun, *, fanout: int
) -> PlannedLayer:
    """Plan a layer. Rows of the table below, which are the dataset's features, need not exist, but their file.

    Raises BudgetError with the smallest budget that works.
    """
    entries = most_entries(max(cost.in_dim, out.dim))
    batches = cut_batches(dataset.topology, fanout, entries, out.range_rows, run.budget, layer.node_type)
    work = BatchWork(dataset, cost, batches, run.weights_of(dataset, layer))
    plan, num_threads = _plan(dataset, layer, batches, neighbor_spec([fanout]), work, run)
    return PlannedLayer(layer, cost, plan, num_threads, batches, work, fanout)


def _plan(
    dataset: Dataset, layer: RowLayer, batches: RowBatches, sampler: SamplerSpec, work: BatchWork, run: LayerRun
) -> tuple[SampledPlan, int]:
    """Return the pipeline's plan and the number of computing threads (see PlannedLayer)."""
    seed_set = SeedSet(
        purpose=Purpose.INFER,
        seeds=NO_SEEDS,
        batch_size=int(batches.num_rows.max()),
        sampler=sampler,
        is_shuffled=False,
        row_starts=batches.seed_starts,
    )
    # Other working memory is measured, on the largest batch too.
    largest = int(np.argmax(batches.num_edges))
    alone = replace(seed_set, row_starts=batches.seed_starts[largest : largest + 2])
    sizes = work.bounded(measure_batches(dataset, (seed_set, alone), run.seed, run.budget.available_bytes))
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


class BatchWork:
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


def not_finite(nodes: NodeSet, label: str, row: int) -> PredictionError:
    """Return the error for a row with NaN or infinity. label: name of the layer."""
    node = int(nodes.id_map().ids(NodeRows(np.array([row])))[0])
    return PredictionError(
        f"{label}: its result for node {node} is not finite (NaN or infinity); check that node's features and the "
        "model's weights"
    )

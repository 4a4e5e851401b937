"""The rows of a layer, computed in batches by the threads of one process, or of several that share them.

Each thread has a twin of the layer and one thread of torch, so that no result depends on their number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from threading import local
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop._native import Engine
from diskhop.batches.typed import split_types
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.nn.reproducible import reproducible
from diskhop.pipeline.batch import MiniBatch, Pass, Prepare
from diskhop.pipeline.edge_weights import EdgeWeights
from diskhop.pipeline.pipeline import Pipeline, open_pipeline
from diskhop.plans import SampledPlan
from diskhop.predicting.batched.batches import NO_SEEDS, BatchWork, LayerRun, PlannedLayer, RowLayer, not_finite
from diskhop.predicting.batched.dry_run import LayerCost
from diskhop.predicting.batched.row_batches import RowBatches
from diskhop.predicting.row_files import AppendRows, MakeRows, RowFile
from diskhop.protocols import Purpose, neighbor_spec
from diskhop.runtime.jobs import Share
from diskhop.runtime.progress import Progress

# Computes the destinations' rows of a batch: float32 (destinations, columns) in new memory.
ComputeRows = Callable[[MiniBatch], Tensor]


class LayerSource(Protocol):
    """A layer that threads open; processes share its rows if it can be copied there (see jobs.py)."""

    @property
    def layer(self) -> RowLayer:
        """The layer."""

    def open(self) -> ComputeRows:
        """Return the layer for one thread.

        Batches of a graph with types come prepared as TypedBatch, others with the weights of their edges, if the layer
        uses some.
        """


def compute_layer(
    dataset: Dataset,
    planned: PlannedLayer,
    out: RowFile,
    run: LayerRun,
    source: LayerSource,
    progress: Progress,
    stage: str,
) -> None:
    """Write the missing rows of a layer, in all processes of an executor.

    dataset: the graph, with the table below as its features. planned: of one process. stage: name for progress.

    Raises ConfigError for a result of another form, PredictionError for one that is not finite.
    """
    sharing = run.tools.processes_per_machine
    share = LayerShare(
        source=source,
        dataset=dataset,
        plan=planned.plan,
        cost=planned.cost,
        num_threads=planned.num_threads,
        batches=planned.batches,
        fanout=planned.fanout,
        seed=run.seed,
        edge_weights=run.edge_weights,
        memory_bytes=run.of_one_process.budget.total_bytes,
    )
    with ExitStack() as stack:
        if sharing > 1:
            others_bytes = (sharing - 1) * sum(planned.plan.reserved.values())
            stack.enter_context(run.budget.reserve("layers in other processes", others_bytes))
        out.write(LayerRows(share, run.budget), run.tools, progress, stage, processes=run.tools.processes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerShare:
    """Everything that a process needs to compute rows of a layer.

    source: the layer.
    dataset: the graph, with the table below as its features.
    plan, cost, num_threads, batches, fanout: see PlannedLayer.
    seed, edge_weights: see LayerRun.
    memory_bytes: budget of a process.
    """

    source: LayerSource
    dataset: Dataset
    plan: SampledPlan
    cost: LayerCost
    num_threads: int
    batches: RowBatches
    fanout: int
    seed: int
    edge_weights: bool
    memory_bytes: int


class LayerRows:
    """The rows of a layer in one process (see RowMaker). budget: memory to reserve from."""

    def __init__(self, share: LayerShare, budget: Budget) -> None:
        self._share = share
        self._budget = budget

    @contextmanager
    def open(self, _engine: Engine) -> Iterator[MakeRows]:
        """See RowMaker: the pipeline opens an engine by its plan."""
        share, layer, weights = self._share, self._share.source.layer, None
        if share.edge_weights:
            weights = EdgeWeights(share.dataset, share.memory_bytes, with_strengths=layer.uses_degrees)
        work = BatchWork(share.dataset, share.cost, share.batches, weights)
        with ExitStack() as stack:
            for name, num_bytes in work.held(share.num_threads).items():
                stack.enter_context(self._budget.reserve(name, num_bytes))
            stack.enter_context(reproducible(1))
            crew = stack.enter_context(_Crew(share.dataset, layer, share.source.open, work, share.num_threads))
            pipeline = stack.enter_context(open_pipeline(share.dataset, share.plan, self._budget))
            yield partial(self._write, pipeline, _preparing(pipeline, weights), crew)

    def for_workers(self, _share: Share) -> partial[LayerRows]:
        """See jobs.py."""
        return partial(_open_again, self._share)

    def _write(
        self, pipeline: Pipeline, prepare: Prepare | None, crew: _Crew, first: int, end: int, append: AppendRows
    ) -> None:
        """Compute rows first to end and append them in order. Draws are keyed by the layer's number, not an epoch."""
        layer, batches = self._share.source.layer, self._share.batches
        wanted = Pass(
            seeds=NO_SEEDS,
            numbers=batches.numbers(first, end),
            batch_size=int(batches.num_rows.max()),
            sampler=neighbor_spec([self._share.fanout]),
            seed=self._share.seed,
            purpose=Purpose.INFER,
            epoch=layer.number,
            with_in_degrees=layer.uses_degrees,
            row_starts=batches.seed_starts,
            first_row=batches.first_row,
        )
        with pipeline.run(wanted, prepare) as stream:
            for rows in crew.compute(stream):
                append(rows)


def _open_again(share: LayerShare) -> LayerRows:
    return LayerRows(share, Budget(share.memory_bytes))


def _preparing(pipeline: Pipeline, weights: EdgeWeights | None) -> Prepare | None:
    """Return what prepares a batch: by types, or with weights; None for what needs nothing."""
    types = pipeline.dataset.types
    if types is not None:
        return lambda sampled, _x: split_types(sampled, types)
    if weights is None:
        return None
    opened = weights.open(pipeline.engine, pipeline.plan.max_gap_bytes)
    return lambda sampled, _x: opened.of(sampled)


class _Crew:
    """Threads that compute batches; a context manager. Their memory is bounded by that of the largest batches."""

    def __init__(
        self,
        dataset: Dataset,
        layer: RowLayer,
        open_rows: Callable[[], ComputeRows],
        work: BatchWork,
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

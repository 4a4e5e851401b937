"""A dataset's topology and feature store, opened by a plan and a budget, and runs over seeds through both.

    with open_pipeline(dataset, plan, budget) as pipeline, pipeline.run(seeds, ...) as batches:
        for batch in batches:
            ...

How a run's stages keep ahead of each other is in batch_stream.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from diskhop._native import BufferPool, Engine, FaultInjector
from diskhop.batches.trace import TraceSettings, hash_seeds
from diskhop.budget import Budget
from diskhop.counters import FetchCounts
from diskhop.dataset.dataset import Dataset
from diskhop.derived.scratch import scratch_folder
from diskhop.errors import ConfigError
from diskhop.io.engine import open_engine
from diskhop.io.locks import shared_directory
from diskhop.pipeline.batch import InFlightBatch
from diskhop.pipeline.decode import decode_rows
from diskhop.pipeline.pinned import _choose_pinned, counts_accesses
from diskhop.pipeline.sizes import batch_bytes, bytes_per_row_made
from diskhop.pipeline.stream import BatchStream
from diskhop.pipeline.superbatch import Sampled, SuperbatchMaker
from diskhop.plans import SampledPlan
from diskhop.protocols import FeatureStore, LookAheadStore, NodeIds, Purpose, SampledBatch
from diskhop.sampling.accesses import COUNTING_BYTES_PER_NODE
from diskhop.sampling.cached_topology import (
    STAGING_BYTES,
    CachedTopology,
)
from diskhop.sampling.neighbor import NeighborSampler
from diskhop.sampling.open import open_plan_topology
from diskhop.sampling.seeds import SeedSet
from diskhop.sampling.topology import Topology
from diskhop.stores.packed.layout import Layout, open_layout
from diskhop.stores.packed.store import PackedStore
from diskhop.stores.resources import StoreResources, whole_rows
from diskhop.stores.stores import STORES
from diskhop.system.memory import buffer_bytes

_RESERVED_BY_PIPELINE = (
    "mini-batches in flight",
    "sampled ahead",
    "sampling",
    "sorting ids",
    "staging",
    "packed rows",
    "packing",
)


class Pipeline:
    """A dataset's topology and feature store, open, with a plan to run them by."""

    def __init__(
        self,
        dataset: Dataset,
        plan: SampledPlan,
        topology: Topology | CachedTopology,
        store: FeatureStore[Any] | None,
        engine: Engine,
        pool: BufferPool,
        scratch: Path | None,
        layout: Layout | None,
    ) -> None:
        self.dataset = dataset
        self.plan = plan
        self.topology = topology
        self.store = store
        self._engine = engine
        self._pool = pool
        self._scratch = scratch
        self._layout = layout

    def bytes_on_its_way(self, sampled: SampledBatch, store_bytes: int) -> int:
        """See BatchSource."""
        num_bytes = buffer_bytes(sampled.num_bytes) + store_bytes
        if self.plan.bytes_assembled:
            return num_bytes
        return num_bytes + sampled.num_nodes * bytes_per_row_made(self.dataset)

    def bytes_assembled(self, sampled: SampledBatch) -> int:
        """See BatchSource."""
        return batch_bytes(self.dataset, sampled.num_bytes, sampled.num_nodes)

    def run(
        self,
        seeds: NodeIds,
        *,
        purpose: Purpose,
        epoch: int,
        fanouts: tuple[int, ...],
        batch_size: int,
        seed: int,
        first_number: int = 0,
        max_batches: int | None = None,
        left_out: Collection[int] = (),
        order: Sequence[int] | None = None,
        with_in_degrees: bool = False,
        prepare: Callable[[SampledBatch, torch.Tensor], Any] | None = None,
    ) -> BatchStream:
        """Batches of `batch_size` seeds each, the last of what is left; in their order, if the plan says so.

        seeds: unique internal ids. seed: of the draws. first_number: the first batches are left out, the others keep
        their numbers, and so their draws. max_batches: stop before this number. left_out: numbers of others that are
        not wanted, of a plan that keeps no order. order: another order than that of their numbers, of all that are not
        left out. prepare: called with each batch and its features while it is ahead, on a thread of the pipeline.
        """
        if batch_size < 1:
            raise ConfigError(f"batch size must be at least 1, got {batch_size}")
        sampler = NeighborSampler(self.topology, fanouts, seed, self._pool)
        stop = -(-len(seeds) // batch_size)
        if max_batches is not None:
            stop = min(stop, max_batches)
        numbers: Sequence[int] = range(first_number, stop)
        if left_out:
            numbers = [number for number in numbers if number not in left_out]
        if order is not None:
            if sorted(order) != list(numbers):
                raise ConfigError(f"an order must have each of the {len(numbers)} batches that are wanted once")
            numbers = order
        look_ahead = replay = None
        if self._scratch is not None:
            settings = TraceSettings(
                dataset_hash=self.dataset.hash,
                fanouts=sampler.fanouts,
                seed=seed,
                purpose=purpose,
                epoch=epoch,
                batch_size=batch_size,
                seeds_hash=hash_seeds(seeds),
            )
            packed = None if self._layout is None else self._layout.find(settings)
            if packed is not None and self._layout is not None and max(numbers, default=0) < packed.num_batches:
                store = cast(PackedStore, self.store)
                store.start_pass()
                replay = partial(store.replay, self._layout.open_epoch(packed, settings), numbers)
            else:
                look_ahead = partial(self._begin_looking_ahead, settings, numbers, self._scratch)
        return BatchStream(
            self,
            sampler,
            seeds,
            batch_size,
            purpose,
            epoch,
            numbers,
            with_in_degrees,
            prepare,
            look_ahead,
            replay,
        )

    def _begin_looking_ahead(
        self,
        settings: TraceSettings,
        numbers: Sequence[int],
        scratch: Path,
        sample: Callable[[], Sampled],
        keep_on: Callable[[], None],
    ) -> SuperbatchMaker:
        store = cast(LookAheadStore[Any], self.store)
        store.start_pass()
        return SuperbatchMaker(
            sample,
            keep_on,
            numbers,
            self.plan.superbatch,
            store,
            settings,
            self.topology.num_nodes,
            scratch,
            self._engine,
            self._pool,
        )

    def bring_rows(self, batch: InFlightBatch, with_in_degrees: bool) -> None:
        """Wait for a submitted batch and bring its rows to their places."""
        if with_in_degrees or self.store is None:
            ids = batch.sampled.node_ids
            batch.in_degrees = torch.from_numpy(self.topology.indptr[ids + 1] - self.topology.indptr[ids])
        if self.store is None:
            batch.counts = FetchCounts()
            assert batch.in_degrees is not None
            logarithms = batch.in_degrees.to(torch.float32).log1p_()
            batch.x = torch.stack([torch.ones_like(logarithms), logarithms], dim=1)
            return
        rows = self.store.collect(batch.ticket)
        batch.counts = rows.counts
        if self.plan.bytes_assembled:
            raw = whole_rows(rows, self._pool, self.plan.threads)
        else:
            (segment,) = rows.segments
            raw, batch.rows = segment.buffer, segment.from_rows
        batch.x = decode_rows(raw, self.dataset.feature_dtype, self.dataset.feature_dim)


@contextmanager
def open_pipeline(
    dataset: Dataset,
    plan: SampledPlan,
    budget: Budget,
    injector: FaultInjector | None = None,
    *,
    expected: SeedSet | None = None,
) -> Iterator[Pipeline]:
    """Open topology and store by the plan, everything reserved from the budget; close them on leaving.

    expected: batches by which a store that wants to know measures what will be asked for.
    """
    engine = open_engine(plan.engine, plan.engine_depth, injector).engine
    num_bytes = plan.reserved["mini-batches in flight"] + plan.reserved["sampled ahead"] + plan.staging_bytes
    pool = BufferPool(num_bytes + (STAGING_BYTES if plan.topology == "cached" else 0))
    with ExitStack() as stack:
        topology = stack.enter_context(open_plan_topology(dataset, plan, engine, budget, pool))
        pinned = layout = None
        table = dataset.features()
        if plan.layout and table is not None:
            stack.enter_context(shared_directory(Path(plan.layout)))
            layout = open_layout(Path(plan.layout), table)
            pinned = layout.held_ids()
        elif counts_accesses(dataset, plan.store, plan.pinned):
            # What follows is not reserved yet: a batch and what it is sampled in are held here too.
            counting_bytes = COUNTING_BYTES_PER_NODE * topology.num_nodes + plan.reserved["sampling"] + plan.batch_bytes
            with budget.reserve("counting accesses", counting_bytes):
                pinned = _choose_pinned(dataset, plan, topology, expected, engine, pool)
        for name in _RESERVED_BY_PIPELINE:
            stack.enter_context(budget.reserve(name, plan.reserved.get(name, 0)))
        scratch = store = None
        if table is not None:
            kind = STORES[plan.store]
            if kind.looks_ahead:
                scratch = stack.enter_context(scratch_folder(Path(plan.scratch)))
            kept_rows = plan.buffer_rows if kind.extracts else plan.cache_rows
            for name, num_bytes in kind.reserves(table, kept_rows, plan.batch_rows).items():
                stack.enter_context(budget.reserve(name, num_bytes))
            resources = StoreResources(
                engine=engine,
                pool=pool,
                max_gap_bytes=plan.max_gap_bytes,
                max_read_bytes=plan.max_read_bytes,
                staging_bytes=plan.staging_bytes,
                threads=plan.threads,
                cache_rows=plan.cache_rows,
                buffer_rows=plan.buffer_rows,
                partition_bytes=plan.partition_bytes,
                memory_bytes=plan.memory_bytes,
                pinned=pinned,
                scratch=scratch,
                layout=layout,
            )
            store = kind.open(table, resources)
            stack.callback(store.close)
        yield Pipeline(dataset, plan, topology, store, engine, pool, scratch, layout)

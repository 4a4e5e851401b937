"""Seeds -> sample -> fetch -> model, each stage on threads of its own, ahead of the one that follows.

    with open_pipeline(dataset, plan, budget) as pipeline, pipeline.run(seeds, ...) as batches:
        for batch in batches:
            ...

Sampling threads fill an ordered channel; one thread submits its batches to the store as the byte gate lets them; one
collects them, in order, and brings rows to their places; the consumer takes them. A stage's error closes every channel
and reaches the consumer. Leaving a run, early or not, joins its threads.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import torch
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, FaultInjector
from diskhop.budget import Budget
from diskhop.channels import ByteGate, ClosedError, OrderedChannel
from diskhop.counters import FetchCounts
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, DiskhopError, PipelineError
from diskhop.features import STORES
from diskhop.features.resources import StoreResources, assemble, empty_rows, rows_in_place
from diskhop.io.engine import open_engine
from diskhop.io.memory import buffer_bytes
from diskhop.io.scratch import scratch_folder
from diskhop.plan import Plan
from diskhop.policies.static import most_accessed
from diskhop.protocols import FeatureStore, LookAheadStore, NodeIds, Purpose, Rows, SampledBatch, Sampler
from diskhop.rows import decode_rows
from diskhop.sampling.accesses import COUNTING_BYTES_A_NODE, SeedSet, count_accesses
from diskhop.sampling.cached_topology import (
    STAGING_BYTES,
    CachedTopology,
    NeighborCacheOptions,
    count_neighbors,
    open_cached_topology,
)
from diskhop.sampling.neighbor import NeighborSampler
from diskhop.sampling.superbatch import SUPERBATCHES_ON_DISK, NoRoomError, Sampled, Superbatch, SuperbatchMaker
from diskhop.sampling.topology import Topology, open_topology
from diskhop.trace import TraceSettings, hash_seeds

# Batches sampled ahead, beyond those being fetched: enough to hide one slow batch.
SAMPLED_AHEAD = 2


@dataclass(frozen=True, slots=True, eq=False)
class MiniBatch:
    """What the model gets.

    x: (nodes, dim) in the stored dtype, int8 rows as float32; without features, a constant and log(1 + in-degree).
    Its memory is reused once nobody holds it. in_degrees: int64 (nodes), in the whole graph, if the run asked for them.
    """

    sampled: SampledBatch
    x: torch.Tensor
    in_degrees: torch.Tensor | None
    counts: FetchCounts
    sample_seconds: float
    stall_seconds: float


@dataclass(slots=True, eq=False)
class _InFlight:
    """A batch between the gate and the consumer's release."""

    sampled: SampledBatch
    sample_seconds: float
    gate_bytes: int
    ticket: Any = None
    x: torch.Tensor | None = None
    in_degrees: torch.Tensor | None = None
    counts: FetchCounts | None = None


_RESERVED_BY_PIPELINE = ("mini-batches in flight", "sampled ahead", "sampling", "sorting ids", "staging")


class BatchStream:
    """One pass over seeds, `batch_size` at a time; an iterator and a context manager."""

    def __init__(
        self,
        pipeline: Pipeline,
        sampler: Sampler,
        seeds: NodeIds,
        batch_size: int,
        purpose: Purpose,
        epoch: int,
        first_number: int,
        with_in_degrees: bool,
        look_ahead: Callable[[Callable[[], Sampled]], SuperbatchMaker] | None,
    ) -> None:
        plan = pipeline.plan
        self._pipeline = pipeline
        self._sampler = sampler
        self._seeds = seeds
        self._batch_size = batch_size
        self._num_batches = -(-len(seeds) // batch_size)
        self._purpose = purpose
        self._epoch = epoch
        self._first_number = first_number
        self._with_in_degrees = with_in_degrees
        self._next_to_sample = 0
        self._next_to_deliver = 0
        self._lock = threading.Lock()
        self._held: _InFlight | None = None
        self._unreleased: set[_InFlight] = set()
        # One batch of the plan's is the consumer's, past the gate.
        self._gate = ByteGate((plan.batches_in_flight - 1) * plan.batch_bytes)
        # Those of a superbatch wait on the disk.
        sampled_ahead = SAMPLED_AHEAD if look_ahead is None else 0
        self._sampled = OrderedChannel[Sampled](plan.sampling_threads + sampled_ahead)
        self._maker = None if look_ahead is None else look_ahead(self._sampled.get)
        self._superbatches = OrderedChannel[Superbatch](SUPERBATCHES_ON_DISK)
        self._superbatch_gate = ByteGate(SUPERBATCHES_ON_DISK)
        self._submitted = OrderedChannel[_InFlight](plan.batches_in_flight)
        self._ready = OrderedChannel[_InFlight](plan.batches_in_flight)
        stages = [self._sample] * plan.sampling_threads + [self._submit, self._collect]
        if self._maker is not None:
            stages.append(self._look_ahead)
        # Daemons, and closed at exit: an iterator that somebody still holds then must not keep the process alive.
        self._threads = [
            threading.Thread(target=self._guard, args=(stage,), name=f"diskhop{stage.__name__}", daemon=True)
            for stage in stages
        ]
        atexit.register(self.close)
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> BatchStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> BatchStream:
        return self

    def __len__(self) -> int:
        return self._num_batches

    def __next__(self) -> MiniBatch:
        if self._next_to_deliver == self._num_batches:
            self._release_held()
            raise StopIteration
        asked = time.perf_counter()
        try:
            batch = self._ready.get()
        except ClosedError:
            raise PipelineError("these batches were closed: run the pipeline again") from None
        # The consumer's variable holds the batch before until now; this one leaves the gate to be held in its place.
        self._release_held()
        self._gate.leave(batch.gate_bytes)
        self._held = batch
        self._next_to_deliver += 1
        x, counts = batch.x, batch.counts
        assert x is not None
        assert counts is not None
        batch.x = None
        stall_seconds = time.perf_counter() - asked
        return MiniBatch(batch.sampled, x, batch.in_degrees, counts, batch.sample_seconds, stall_seconds)

    def close(self) -> None:
        """Stop every stage, wait for its threads and give all batches back. A batch being read is finished first."""
        self._stop(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        atexit.unregister(self.close)
        self._held = None
        for batch in list(self._unreleased):
            self._release(batch)

    def _stop(self, error: BaseException | None) -> None:
        channels = self._sampled, self._superbatches, self._submitted, self._ready
        for closable in (self._gate, self._superbatch_gate, *channels):
            closable.close(error)

    def _guard(self, stage: Any) -> None:
        try:
            stage()
        except ClosedError:
            pass
        except DiskhopError as error:
            self._stop(error)
        except BaseException as error:
            wrapped = PipelineError(f"the pipeline's stage '{stage.__name__.strip('_')}' failed: {error!r}")
            wrapped.__cause__ = error
            self._stop(wrapped)

    def _sample(self) -> None:
        while True:
            with self._lock:
                index = self._next_to_sample
                self._next_to_sample += 1
            if index >= self._num_batches:
                return
            started = time.perf_counter()
            seeds = self._seeds[index * self._batch_size :][: self._batch_size]
            sampled = self._sampler.sample(
                seeds, purpose=self._purpose, epoch=self._epoch, number=self._first_number + index
            )
            self._sampled.put(index, (sampled, time.perf_counter() - started))

    def _look_ahead(self) -> None:
        assert self._maker is not None
        index = 0
        while not self._maker.is_done:
            self._superbatches.put(index, self._make_superbatch(self._maker))
            index += 1

    def _make_superbatch(self, maker: SuperbatchMaker) -> Superbatch:
        self._superbatch_gate.enter(1)
        try:
            return maker.make()
        except NoRoomError:
            # Once nothing else of ours is on the disk there may be room.
            self._superbatch_gate.leave(1)
            self._superbatch_gate.enter(SUPERBATCHES_ON_DISK + 1)
            superbatch = maker.make()
            self._superbatch_gate.leave(SUPERBATCHES_ON_DISK)
            return superbatch

    def _replayed(self) -> Iterator[Sampled]:
        while True:
            superbatch = self._superbatches.get()
            for index in range(len(superbatch)):
                yield superbatch.batch(index)
            superbatch.remove()
            del superbatch  # with its descriptor, for which the disk would keep the file
            self._superbatch_gate.leave(1)

    def _submit(self) -> None:
        store = self._pipeline.store
        next_batch = self._sampled.get if self._maker is None else partial(next, self._replayed())
        for index in range(self._num_batches):
            sampled, seconds = next_batch()
            row_bytes = sampled.num_nodes * self._pipeline.bytes_a_row
            gate_bytes = buffer_bytes(sampled.num_bytes) + buffer_bytes(row_bytes)
            self._gate.enter(gate_bytes)
            batch = _InFlight(sampled, seconds, gate_bytes)
            with self._lock:
                self._unreleased.add(batch)
            if store is not None:
                batch.ticket = store.submit(sampled)
            self._submitted.put(index, batch)

    def _collect(self) -> None:
        for index in range(self._num_batches):
            batch = self._submitted.get()
            self._pipeline.bring_rows(batch, self._with_in_degrees)
            self._ready.put(index, batch)

    def _release_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._release(held)

    def _release(self, batch: _InFlight) -> None:
        with self._lock:
            self._unreleased.discard(batch)
        if batch.ticket is not None and self._pipeline.store is not None:
            self._pipeline.store.release(batch.ticket)


class Pipeline:
    """A dataset's topology and feature store, open, with a plan to run them by."""

    def __init__(
        self,
        dataset: Dataset,
        plan: Plan,
        topology: Topology | CachedTopology,
        store: FeatureStore[Any] | None,
        engine: Engine,
        pool: BufferPool,
        scratch: Path | None,
    ) -> None:
        self.dataset = dataset
        self.plan = plan
        self.topology = topology
        self.store = store
        self._engine = engine
        self._pool = pool
        self._scratch = scratch

    @property
    def bytes_a_row(self) -> int:
        """What a node of a batch in flight holds besides its sampled block."""
        return bytes_a_row(self.dataset)

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
        with_in_degrees: bool = False,
    ) -> BatchStream:
        """Batches of `batch_size` seeds in the order given; only the last may be smaller.

        seeds: unique internal ids. seed: of the draws. first_number: the first batches are left out, the others keep
        their numbers, and so their draws. max_batches: stop before this number.
        """
        if batch_size < 1:
            raise ConfigError(f"batch size must be at least 1, got {batch_size}")
        sampler = NeighborSampler(self.topology, fanouts, seed, self._pool)
        stop = None if max_batches is None else max_batches * batch_size
        wanted = seeds[first_number * batch_size : stop]
        look_ahead = None
        if self._scratch is not None:
            settings = TraceSettings(
                dataset_hash=self.dataset.hash,
                fanouts=sampler.fanouts,
                seed=seed,
                purpose=purpose,
                epoch=epoch,
                batch_size=batch_size,
                seeds_hash=hash_seeds(wanted),
            )
            num_batches = -(-len(wanted) // batch_size)
            look_ahead = partial(self._begin_looking_ahead, settings, num_batches, first_number, self._scratch)
        return BatchStream(self, sampler, wanted, batch_size, purpose, epoch, first_number, with_in_degrees, look_ahead)

    def _begin_looking_ahead(
        self,
        settings: TraceSettings,
        num_batches: int,
        first_number: int,
        scratch: Path,
        sample: Callable[[], Sampled],
    ) -> SuperbatchMaker:
        store = cast(LookAheadStore[Any], self.store)
        store.start_pass()
        return SuperbatchMaker(
            sample,
            num_batches,
            first_number,
            self.plan.superbatch,
            store,
            settings,
            self.topology.num_nodes,
            scratch,
            self._engine,
            self._pool,
        )

    def bring_rows(self, batch: _InFlight, with_in_degrees: bool) -> None:
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
        batch.x = decode_rows(self._in_place(rows), self.dataset.feature_dtype, self.dataset.feature_dim)

    def _in_place(self, rows: Rows) -> Any:
        whole = rows_in_place(rows)
        if whole is not None:
            return whole
        out = empty_rows(self._pool, rows.num_rows, rows.row_bytes)
        started = time.perf_counter()
        assemble(rows, out, self.plan.threads)
        rows.counts.seconds += time.perf_counter() - started
        return out


def bytes_a_row(dataset: Dataset) -> int:
    """Bytes that a node's features take in a batch: as stored, and dequantised beside it for int8."""
    table = dataset.features()
    if table is None:
        return 2 * 4
    return table.row_bytes + (4 * dataset.feature_dim if dataset.feature_dtype == "int8" else 0)


def _open_topology(
    dataset: Dataset, plan: Plan, engine: Engine, budget: Budget, pool: BufferPool
) -> AbstractContextManager[Topology | CachedTopology]:
    if plan.topology != "cached":
        return open_topology(dataset.topology, plan.topology, engine, budget)
    options = NeighborCacheOptions(
        cache_bytes=plan.topology_cache_bytes,
        sampling_threads=plan.sampling_threads,
        max_gap_bytes=plan.max_gap_bytes,
    )
    return open_cached_topology(dataset.topology, options, engine, budget, pool)


@contextmanager
def open_pipeline(
    dataset: Dataset,
    plan: Plan,
    budget: Budget,
    injector: FaultInjector | None = None,
    *,
    expected: SeedSet | None = None,
) -> Iterator[Pipeline]:
    """Open topology and store by the plan, everything reserved from the budget; close them on leaving.

    expected: batches by which a store that wants to know measures what will be asked for.
    """
    engine = open_engine(plan.engine, plan.engine_depth, injector).engine
    num_bytes = plan.batches_in_flight * plan.batch_bytes + plan.reserved["sampled ahead"] + plan.staging_bytes
    pool = BufferPool(num_bytes + (plan.sampling_threads * STAGING_BYTES if plan.topology == "cached" else 0))
    with ExitStack() as stack:
        topology = stack.enter_context(_open_topology(dataset, plan, engine, budget, pool))
        pinned = None
        if counts_accesses(dataset, plan.store, plan.pinned):
            # What follows is not reserved yet: a batch and what it is sampled in are held here too.
            counting_bytes = COUNTING_BYTES_A_NODE * topology.num_nodes + plan.reserved["sampling"] + plan.batch_bytes
            with budget.reserve("counting accesses", counting_bytes):
                pinned = _choose_pinned(dataset, plan, topology, expected, engine, pool)
        for name in _RESERVED_BY_PIPELINE:
            stack.enter_context(budget.reserve(name, plan.reserved[name]))
        table = dataset.features()
        scratch = store = None
        if table is not None:
            kind = STORES[plan.store]
            if kind.looks_ahead:
                scratch = stack.enter_context(scratch_folder(Path(plan.scratch)))
            for name, num_bytes in kind.reserves(table, plan.cache_rows, plan.batch_rows).items():
                stack.enter_context(budget.reserve(name, num_bytes))
            resources = StoreResources(
                engine=engine,
                pool=pool,
                max_gap_bytes=plan.max_gap_bytes,
                max_read_bytes=plan.max_read_bytes,
                staging_bytes=plan.staging_bytes,
                reading_threads=plan.reading_threads,
                threads=plan.threads,
                cache_rows=plan.cache_rows,
                pinned=pinned,
                scratch=scratch,
            )
            store = kind.open(table, resources)
            stack.callback(store.close)
        yield Pipeline(dataset, plan, topology, store, engine, pool, scratch)


def counts_accesses(dataset: Dataset, store: str, pinned: str) -> bool:
    """Whether rows to be pinned are found by counting, and not the first ones, as in hot order."""
    return store == "static" and not (pinned == "degree" and dataset.order == "hot")


def _choose_pinned(
    dataset: Dataset,
    plan: Plan,
    topology: Topology | CachedTopology,
    expected: SeedSet | None,
    engine: Engine,
    pool: BufferPool,
) -> NodeIds:
    """The rows that will probably be asked for most, ascending."""
    if plan.pinned == "accesses" and expected is not None:
        counts: NDArray[Any] = count_accesses(topology, expected)
    else:
        counts = count_neighbors(dataset.topology, engine, pool)
    return most_accessed(counts, plan.cache_rows)

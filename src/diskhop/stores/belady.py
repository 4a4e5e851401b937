"""`belady`: the optimal cache, planned from an access trace before the first batch (Ginex, section 3).

Two sides work on the same sequence of batches. The *inspector* (`look_ahead`) goes through a whole trace, decides by
Belady's rule how each batch changes the cache, and writes the changes to the disk. The *executor* follows batch by
batch. `submit` updates the slots and starts reading missing rows. `collect` copies rows, first out of the cache and
then into it, one batch after the other, so that no row is overwritten that an earlier batch needs. Rows that fill the
cache before the first batch of a trace are read in the scan that the batches share.

The memory of cached rows may have neighbour lists while a trace is sampled (Ginex, section 3.1). Each trace then begins
with an empty cache.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BeladyCache, ScanTicket, copy_rows
from diskhop.errors import PipelineError
from diskhop.io.array_file import ArrayFile
from diskhop.plans import Prediction, StoreShare
from diskhop.policies.belady import belady_misses, plan_span
from diskhop.policies.superbatches import FIRST_LENGTH
from diskhop.protocols import AccessTrace, MakeRoom, NodeIds, Rows, SampledBatch, Table
from diskhop.stores.costs import BatchCost, Scenario, SuperbatchCost, predict_epoch, predict_in_turn
from diskhop.stores.kind import StoreKind
from diskhop.stores.resources import StoreResources
from diskhop.stores.room import StoreRoom, StoreWishes, choose_superbatch, keep_rows
from diskhop.stores.row_cache import RowCache
from diskhop.stores.scan_costs import reads_of, scan
from diskhop.stores.scanning import RowScan, ScannedBatch, scanned_bytes

_NONE = np.empty(0, np.int64)
# The inspector has for every row of the table its next use, whether it is cached and, between two traces, one byte
# more. It lists the cached rows, has ids, next uses and decisions of a batch, and changes with their copies, of which
# there are no more than rows in the cache or in a batch.
_BYTES_PER_TABLE_ROW, _BYTES_PER_CACHED_ROW, _BYTES_PER_BATCH_ROW, _BYTES_PER_CHANGE = 6, 16, 24, 40
# The executor has the id and slot of each row that fills the cache, and both again in the scan.
_BYTES_PER_FILLED_ROW = 16 + 12
# Disk space per batch in addition to its record: next uses (4 bytes per row), cached and evicted rows (16), each
# aligned to a block.
_PLANNED_BYTES_PER_ROW, _PLANNED_BYTES_PER_BATCH = 4 + 16, 4 * 4096


def belady_reserves(table: Table, cache_rows: int, batch_rows: int) -> dict[str, int]:
    """Bytes that the store holds, by name in the budget."""
    inspector_bytes = _BYTES_PER_TABLE_ROW * table.num_rows + _BYTES_PER_CACHED_ROW * cache_rows
    filling_bytes = _BYTES_PER_FILLED_ROW * cache_rows
    batch_bytes = _BYTES_PER_BATCH_ROW * batch_rows + _BYTES_PER_CHANGE * min(cache_rows, batch_rows)
    return {
        **RowCache.reserves(table, cache_rows),
        "looking ahead": inspector_bytes + batch_bytes,
        "filling": filling_bytes,
    }


@dataclass(slots=True, eq=False)
class _Fill:
    """Rows that fill slots of the cache before the first batch of a trace."""

    ids: NodeIds
    slots: NDArray[np.int64]
    ticket: ScanTicket | None = None


@dataclass(slots=True, eq=False)
class _Fetch:
    """A batch between submit and release. in_positions: its rows that are cached afterwards, in slots in_slots."""

    batch: ScannedBatch
    in_positions: NDArray[np.int64]
    in_slots: NDArray[np.int64]
    fill: _Fill | None
    brought: Rows | None = None


class BeladyStore:
    """A store of Belady's cache. Batches are submitted in the order of the traces that were looked ahead."""

    # Every superbatch fills the cache again, and looking ahead costs next to nothing: lengths grow fast.
    growth = 4.0

    def __init__(self, table: Table, resources: StoreResources) -> None:
        self.table = table
        self._resources = resources
        self._capacity = min(resources.share.cache_rows, table.num_rows)
        rows = resources.cached_rows
        if rows is not None:
            rows = rows[: self._capacity * table.row_bytes].reshape(self._capacity, table.row_bytes)
        self._cache = RowCache(table, self._capacity, rows)
        self._is_cleared = rows is not None  # between traces
        self._scan = RowScan(table, resources)
        self._collecting = threading.Lock()
        self._lock = threading.Lock()  # guards unfinished batches and their fills
        self._unfinished: deque[_Fetch] = deque()
        self._is_broken = False
        self._inspected = BeladyCache(table.num_rows, self._capacity)
        self._id_dtype = np.dtype(np.uint32 if table.num_rows <= 2**32 else np.int64)
        self._plans: deque[_Plan] = deque()
        self._next_plan: _Plan | None = None
        self._num_plans = 0

    # -- inspector --

    def start_pass(self) -> None:
        """See LookAheadStore. Cached rows stay, unless batches of the last pass were never submitted."""
        if self._plans or self._unfinished or self._is_broken:
            self._inspected = BeladyCache(self.table.num_rows, self._capacity)
            self._cache.clear()
        self._drop_plans()
        self._unfinished.clear()
        self._is_broken = False

    def make_room(self, batch: SampledBatch) -> None:
        """See LookAheadStore."""
        if self._next_plan is None:
            self._next_plan = _Plan(self._resources, self._num_plans)
            self._num_plans += 1
            self._next_plan.changes.allocate(2 * self._capacity * self._id_dtype.itemsize)
        self._next_plan.uses.allocate(batch.num_rows * np.dtype(np.uint32).itemsize)
        self._next_plan.changes.allocate(2 * batch.num_rows * self._id_dtype.itemsize)

    def free_disk(self) -> None:
        """See LookAheadStore. Nothing is kept on the disk."""

    def look_ahead(self, trace: AccessTrace, keep_on: Callable[[], None]) -> None:
        """See LookAheadStore."""
        plan, self._next_plan = self._next_plan, None
        assert plan is not None, "make_room was called for the batches of the trace"
        self._plans.append(plan)
        plan.num_batches = len(trace)
        if self._is_cleared:
            self._inspected = BeladyCache(self.table.num_rows, self._capacity)
        dtype = self._id_dtype
        for change in plan_span(
            self._inspected, trace.node_ids, len(trace), self.table.num_rows, fills=True, next_uses=plan
        ):
            keep_on()
            plan.changes.append([change.in_positions.astype(dtype), change.out_ids.astype(dtype)])
        plan.uses.close()

    # -- executor --

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> _Fetch:
        """See FeatureStore. Raises PipelineError for a batch that was not looked ahead."""
        if not self._plans:
            raise PipelineError(f"batch {batch.number} was submitted before look_ahead() had its trace")
        plan = self._plans[0]
        fill = None
        if plan.num_submitted == 0:
            if self._is_cleared:
                self._cache.clear()
            fill_ids, out_ids = plan.read_changes(0)
            fill = _Fill(fill_ids, self._cache.replace(out_ids, fill_ids))
        plan.num_submitted += 1
        in_positions, out_ids = plan.read_changes(plan.num_submitted)
        ids = np.ascontiguousarray(batch.row_ids)
        found = self._cache.find(ids)
        in_slots = self._cache.replace(out_ids, ids[in_positions])
        also_bytes = in_positions.nbytes + in_slots.nbytes
        fetch = _Fetch(self._scan.begin(ids, found, make_room, also_bytes), in_positions, in_slots, fill)
        with self._lock:
            self._unfinished.append(fetch)
            self._begin_filling()
        if plan.num_submitted == plan.num_batches:
            self._plans.popleft().close()
        return fetch

    def collect(self, ticket: _Fetch) -> Rows:
        """See FeatureStore."""
        with self._collecting:
            while ticket.brought is None:
                if self._is_broken:
                    raise PipelineError("an earlier batch was not finished: start a new pass of the pipeline")
                self._finish(self._unfinished[0])
        return ticket.brought

    def cancel(self, ticket: _Fetch) -> None:
        """See FeatureStore. A submitted batch is fetched anyway, because the cache continues from it."""

    def release(self, ticket: _Fetch) -> None:
        """See FeatureStore. If a batch was never collected, later ones cannot be."""
        if ticket.brought is None:
            self._is_broken = True
        ticket.batch.leave()
        if ticket.fill is not None and ticket.fill.ticket is not None:
            ticket.fill.ticket.leave()

    def close(self) -> None:
        """See FeatureStore."""
        self._scan.close()
        self._drop_plans()

    def _begin_filling(self) -> None:
        """Start filling slots for the oldest batch, once earlier ones have copied their rows out. Needs the lock."""
        fill = self._unfinished[0].fill if self._unfinished else None
        if fill is not None and fill.ticket is None and not self._is_broken:
            fill.ticket = self._scan.join(fill.ids, self._cache.rows, fill.slots)

    def _finish(self, fetch: _Fetch) -> None:
        """Assemble the oldest batch, then copy the rows that stay into the cache."""
        cached, batch = self._cache.rows, fetch.batch
        try:
            if fetch.fill is not None:
                assert fetch.fill.ticket is not None, "filling starts once the batch before is finished"
                batch.counts.add_reads(*fetch.fill.ticket.wait())
                batch.counts.rows_filled = len(fetch.fill.ids)
            brought = self._scan.finish(batch, cached)
            (segment,) = brought.segments
            batch.counts.bytes_copied += copy_rows(
                segment.buffer, fetch.in_positions, cached, fetch.in_slots, self._resources.threads
            )
        except BaseException:
            self._is_broken = True
            raise
        fetch.in_positions = fetch.in_slots = _NONE
        fetch.fill = None
        with self._lock:
            fetch.brought = brought
            self._unfinished.popleft()
            self._begin_filling()

    def _drop_plans(self) -> None:
        for plan in (*self._plans, *filter(None, [self._next_plan])):
            plan.close()
        self._plans.clear()
        self._next_plan = None


class _Plan:
    """Changes of the cache on the disk, from the inspector to the executor. Next uses are a stack while it is made."""

    def __init__(self, resources: StoreResources, number: int) -> None:
        assert resources.scratch is not None
        self.uses, self.changes = (
            ArrayFile(resources.scratch / f"{name}-{number}.bin", resources.engine, resources.pool)
            for name in ("uses", "changes")
        )
        self.num_batches = self.num_submitted = 0

    def append(self, next_uses: NDArray[np.uint32]) -> None:
        """Push the next uses of a batch."""
        self.uses.append([next_uses])

    def pop(self) -> NDArray[np.uint32]:
        """Pop the next uses pushed last."""
        (next_uses,) = self.uses.pop()
        return next_uses

    def read_changes(self, index: int) -> tuple[NodeIds, NodeIds]:
        """Return rows to cache and to evict: ids before the first batch (index 0), positions and ids after batch n."""
        cached, evicted = self.changes.read(index)
        return cached.astype(np.int64), evicted.astype(np.int64)

    def close(self) -> None:
        """Remove the files."""
        self.uses.close()
        self.changes.close()


def divide(table: Table, room: StoreRoom, wishes: StoreWishes) -> StoreShare:
    """Give memory to a few batches in flight, then to cached rows, and disk space to superbatches."""
    sizes = room.sizes
    room.require(
        belady_reserves(table, wishes.cache_rows(table), sizes.num_rows),
        assembles=True,
        extra_bytes=scanned_bytes(table, sizes.num_rows),
    )
    room.grow_in_flight(wishes.batches_before_cache())
    cache_rows = keep_rows(table, room, wishes, belady_reserves)
    lists_bytes = min(wishes.lists_in_cache_bytes, cache_rows * table.row_bytes)
    bytes_per_batch = sizes.record_bytes + sizes.num_rows * _PLANNED_BYTES_PER_ROW + _PLANNED_BYTES_PER_BATCH
    if wishes.lists_in_cache_bytes:
        # Lists that are picked are read from a copy.
        copied_bytes = lists_bytes if lists_bytes < wishes.lists_in_cache_bytes else 0
        superbatch = choose_superbatch(room, wishes, bytes_per_batch, 1, copied_bytes)
    else:
        superbatch = choose_superbatch(room, wishes, bytes_per_batch)
    return StoreShare(
        reserves=room.reserves,
        cache_rows=cache_rows,
        superbatch=superbatch,
        # Nothing is trained on while the next one is sampled, and each costs the lists and the filling of the cache.
        first_superbatch=superbatch if lists_bytes else FIRST_LENGTH,
        lists_in_cache_bytes=lists_bytes,
        scratch=str(wishes.scratch),
    )


def simulate(scenario: Scenario) -> Prediction:
    """Predict an epoch by running Belady's rule on the trace."""
    plan, cores = scenario.plan, scenario.cores
    trace = scenario.trace.node_ids[: scenario.num_batches]
    record_bytes, num_rows = scenario.trace.record_bytes, scenario.trace.num_rows
    passes = scenario.superbatch_passes(BeladyStore.growth)
    lengths = passes[0]
    takes_turns = plan.share.lists_in_cache_bytes > 0
    # The short superbatch at the start, and the rest of the trace as one of the later ones.
    spans = [length for length in (min(lengths[0], len(trace)), len(trace) - lengths[0]) if length > 0]
    if takes_turns:  # each begins with an empty cache
        spans = spans[:1]

    def fetch() -> tuple[BatchCost, float, float]:
        """Return the cost of a batch, and the seconds of filling the cache at first and later."""
        spanned = list(belady_misses(trace, scenario.table.num_rows, plan.share.cache_rows, spans=spans))
        fills = [filled for filled, _ in spanned]
        find_seconds = cores.find_row if plan.share.cache_rows else 0.0
        refill_seconds = reads_of(scenario, [fills[1:]]).io_seconds if len(fills) > 1 else 0.0
        fetching = scan(scenario, spanned[-1][1], find_seconds=find_seconds)
        return fetching, reads_of(scenario, [fills[:1]]).io_seconds, refill_seconds

    # The planner tries several lengths of the first superbatch, which mostly are longer than the trace.
    rest = replace(plan, share=replace(plan.share, first_superbatch=0))
    fetching, fill_seconds, refill_seconds = scenario.trace.simulated((rest, spans, scenario.lists), fetch)
    num_kept = min(plan.share.cache_rows, num_rows * (1 - fetching.hit_rate))
    ahead = SuperbatchCost(
        passes=passes,
        io_seconds=fill_seconds if takes_turns else refill_seconds,
        io_seconds_per_batch=2 * record_bytes / scenario.sequential_rate,
        cores_seconds_per_batch=num_rows * cores.look_ahead_row + record_bytes * cores.trace_byte,
        wait_seconds_per_batch=cores.look_ahead_wait,
    )
    fetching = replace(fetching, cores_seconds=fetching.cores_seconds + num_kept * scenario.machine.copy_seconds)
    if takes_turns:
        return predict_in_turn(scenario, fetching, ahead)
    predicted = predict_epoch(scenario, fetching, ahead=ahead)
    # The cache is filled once: a later pass continues with the rows that it has.
    if scenario.is_only:
        return replace(predicted, epoch_seconds=predicted.epoch_seconds + fill_seconds)
    return replace(predicted, start_seconds=predicted.start_seconds + fill_seconds)


KIND = StoreKind(
    name="belady",
    simplicity=4,
    uses=frozenset({"cache", "disk", "superbatch", "scratch"}),
    open=BeladyStore,
    divide=divide,
    simulate=simulate,
    looks_ahead=True,
    takes_turns=True,
)

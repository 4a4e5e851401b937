"""`belady`: what to hold after each batch is known before the first, from the access trace (Ginex, section 3).

Two sides stand at different places of the same sequence of batches. The *inspector* (`look_ahead`) walks over a whole
trace, decides by Belady's rule what each batch changes and puts that on the disk. The *executor* follows, batch by
batch: `submit` changes the table of slots and starts to read what is missing; `collect` moves the rows, one batch after
the other: first out of the cache, then into it. So that no row is overwritten that an earlier batch needs. The rows
that are brought into the cache before a trace's first batch come by the scan that the batches share.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BeladyCache, ScanTicket, copy_rows
from diskhop.errors import PipelineError
from diskhop.io.array_file import ArrayFile
from diskhop.policies.belady import plan_span
from diskhop.protocols import AccessTrace, MakeRoom, NodeIds, Rows, SampledBatch, Table
from diskhop.stores.resources import StoreResources
from diskhop.stores.row_cache import RowCache
from diskhop.stores.scanning import RowScan, ScannedBatch

_NONE = np.empty(0, np.int64)
# Of the core's inspector: next uses, what is held and, at the seam of two traces, a byte more, of every row of the
# table; lists of what is held; ids, next uses and decisions of a batch; changes and their copies, which are neither
# more than the cache nor more than a batch has.
_BYTES_PER_TABLE_ROW, _BYTES_PER_CACHED_ROW, _BYTES_PER_BATCH_ROW, _BYTES_PER_CHANGE = 6, 16, 24, 40
# Of the executor: a row to be filled in, its slot, and both in the scan.
_BYTES_PER_FILLED_ROW = 16 + 12


def belady_reserves(table: Table, cache_rows: int, batch_rows: int) -> dict[str, int]:
    """Bytes that the store holds, by their names in the budget."""
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
    """Rows to be brought into the cache, to slots, before a trace's first batch."""

    ids: NodeIds
    slots: NDArray[np.int64]
    ticket: ScanTicket | None = None


@dataclass(slots=True, eq=False)
class _Fetch:
    """A batch between submit and release. in_positions: its rows that are to be held afterwards, in in_slots."""

    batch: ScannedBatch
    in_positions: NDArray[np.int64]
    in_slots: NDArray[np.int64]
    fill: _Fill | None
    brought: Rows | None = None


class BeladyStore:
    """See the module. Batches are submitted in the order of the traces that were looked over."""

    # Every seam costs a fill of the cache, and to look a superbatch over next to nothing.
    growth = 4.0

    def __init__(self, table: Table, resources: StoreResources) -> None:
        self.table = table
        self._resources = resources
        self._capacity = min(resources.cache_rows, table.num_rows)
        self._cache = RowCache(table, self._capacity)
        self._scan = RowScan(table, resources)
        self._collecting = threading.Lock()
        self._lock = threading.Lock()  # of those not finished, and their fills
        self._unfinished: deque[_Fetch] = deque()
        self._is_broken = False
        self._inspected = BeladyCache(table.num_rows, self._capacity)
        self._id_dtype = np.dtype(np.uint32 if table.num_rows <= 2**32 else np.int64)
        self._plans: deque[_Plan] = deque()
        self._next_plan: _Plan | None = None
        self._num_plans = 0

    # -- inspector --

    def start_pass(self) -> None:
        """See LookAheadStore. Rows held stay, unless batches that were looked over never came."""
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
        self._next_plan.uses.allocate(batch.num_nodes * np.dtype(np.uint32).itemsize)
        self._next_plan.changes.allocate(2 * batch.num_nodes * self._id_dtype.itemsize)

    def free_disk(self) -> None:
        """See LookAheadStore. Nothing is kept there."""

    def look_ahead(self, trace: AccessTrace, keep_on: Callable[[], None]) -> None:
        """See LookAheadStore."""
        plan, self._next_plan = self._next_plan, None
        assert plan is not None, "room was made for the batches of the trace"
        self._plans.append(plan)
        plan.num_batches = len(trace)
        dtype = self._id_dtype
        for change in plan_span(
            self._inspected, trace.node_ids, len(trace), self.table.num_rows, fills=True, next_uses=plan
        ):
            keep_on()
            plan.changes.append([change.in_positions.astype(dtype), change.out_ids.astype(dtype)])
        plan.uses.close()

    # -- executor --

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> _Fetch:
        """See FeatureStore. Raises PipelineError for a batch that nobody looked over."""
        if not self._plans:
            raise PipelineError(f"batch {batch.number} came before the trace that it is in was looked over")
        plan = self._plans[0]
        fill = None
        if plan.num_submitted == 0:
            fill_ids, out_ids = plan.read_changes(0)
            fill = _Fill(fill_ids, self._cache.replace(out_ids, fill_ids))
        plan.num_submitted += 1
        in_positions, out_ids = plan.read_changes(plan.num_submitted)
        ids = np.ascontiguousarray(batch.node_ids)
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
                    raise PipelineError("a batch before this one was not finished: run the pipeline again")
                self._finish(self._unfinished[0])
        return ticket.brought

    def cancel(self, ticket: _Fetch) -> None:
        """See FeatureStore. What was submitted is brought: the cache goes on from there."""

    def release(self, ticket: _Fetch) -> None:
        """See FeatureStore. Where a batch was never collected, the batches after it cannot be."""
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
        """Fill slots for the oldest batch: those before it have taken their rows out. The lock is held."""
        fill = self._unfinished[0].fill if self._unfinished else None
        if fill is not None and fill.ticket is None and not self._is_broken:
            fill.ticket = self._scan.join(fill.ids, self._cache.rows, fill.slots)

    def _finish(self, fetch: _Fetch) -> None:
        """Bring the oldest batch's rows to their places, then those that are to stay into the cache."""
        held, batch = self._cache.rows, fetch.batch
        try:
            if fetch.fill is not None:
                assert fetch.fill.ticket is not None, "begun once the batch before was finished"
                batch.counts.add_reads(*fetch.fill.ticket.wait())
                batch.counts.rows_filled = len(fetch.fill.ids)
            brought = self._scan.finish(batch, held)
            (segment,) = brought.segments
            batch.counts.bytes_copied += copy_rows(
                segment.buffer, fetch.in_positions, held, fetch.in_slots, self._resources.threads
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
    """What the inspector leaves for the executor, on the disk. A stack of next uses while it is made."""

    def __init__(self, resources: StoreResources, number: int) -> None:
        assert resources.scratch is not None
        self.uses, self.changes = (
            ArrayFile(resources.scratch / f"{name}-{number}.bin", resources.engine, resources.pool)
            for name in ("uses", "changes")
        )
        self.num_batches = self.num_submitted = 0

    def append(self, next_uses: NDArray[np.uint32]) -> None:
        """Put a batch's next uses on the stack."""
        self.uses.append([next_uses])

    def pop(self) -> NDArray[np.uint32]:
        """Take the last ones off."""
        (next_uses,) = self.uses.pop()
        return next_uses

    def read_changes(self, index: int) -> tuple[NodeIds, NodeIds]:
        """Before the first batch (ids that come in and go), and after each from 1 (positions, and ids that go)."""
        comes_in, goes = self.changes.read(index)
        return comes_in.astype(np.int64), goes.astype(np.int64)

    def close(self) -> None:
        """Remove the files."""
        self.uses.close()
        self.changes.close()

"""`belady`: what to hold after each batch is known before the first, from the access trace (Ginex, section 3).

Two sides stand at different places of the same sequence of batches. The *inspector* (`look_ahead`) walks over a whole
trace, decides by Belady's rule what each batch changes and puts that on the disk. The *executor* follows, batch by
batch: `submit` changes the table of slots and starts to read what is missing; `collect` moves the rows, one batch after
the other: first out of the cache, then into it. So that no row is overwritten that an earlier batch needs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BeladyCache, copy_rows
from diskhop.counters import FetchCounts
from diskhop.errors import PipelineError
from diskhop.features.resources import StoreResources, empty_rows, open_reader, read_in_pieces
from diskhop.features.row_cache import Found, RowCache
from diskhop.io.array_file import ArrayFile
from diskhop.policies.belady import plan_span
from diskhop.protocols import AccessTrace, Bytes, NodeIds, Rows, RowSegment, SampledBatch, Table

_NONE = np.empty(0, np.int64)
# Of the core's inspector: next uses, what is held and, at the seam of two traces, a byte more, of every row of the
# table; lists of what is held; ids, next uses and decisions of a batch; changes and their copies, which are neither
# more than the cache nor more than a batch has.
_BYTES_A_TABLE_ROW, _BYTES_A_CACHED_ROW, _BYTES_A_BATCH_ROW, _BYTES_A_CHANGE = 6, 16, 24, 40


def belady_reserves(table: Table, cache_rows: int, batch_rows: int) -> dict[str, int]:
    """Bytes that the store holds, by their names in the budget."""
    inspector_bytes = _BYTES_A_TABLE_ROW * table.num_rows + _BYTES_A_CACHED_ROW * cache_rows
    batch_bytes = _BYTES_A_BATCH_ROW * batch_rows + _BYTES_A_CHANGE * min(cache_rows, batch_rows)
    return {**RowCache.reserves(table, cache_rows), "looking ahead": inspector_bytes + batch_bytes}


@dataclass(slots=True, eq=False)
class _Fetch:
    """A batch between submit and release; fill_ids: rows to be brought into the cache before it, to fill_slots."""

    ids: NodeIds
    found: Found
    in_positions: NDArray[np.int64]
    in_slots: NDArray[np.int64]
    fill_ids: NodeIds
    fill_slots: NDArray[np.int64]
    rows: Bytes
    reading: Future[FetchCounts] = field(init=False)
    counts: FetchCounts | None = None


class BeladyStore:
    """See the module. Batches are submitted in the order of the traces that were looked over."""

    def __init__(self, table: Table, resources: StoreResources) -> None:
        self.table = table
        self._resources = resources
        self._capacity = min(resources.cache_rows, table.num_rows)
        self._cache = RowCache(table, self._capacity)
        self._reader = open_reader(table, resources, resources.max_gap_bytes, resources.reading_threads)
        self._threads = ThreadPoolExecutor(resources.reading_threads, thread_name_prefix="diskhop-read")
        self._lock = threading.Lock()
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

    def make_room(self, num_rows: int) -> None:
        """See LookAheadStore."""
        if self._next_plan is None:
            self._next_plan = _Plan(self._resources, self._num_plans)
            self._num_plans += 1
            self._next_plan.changes.allocate(2 * self._capacity * self._id_dtype.itemsize)
        self._next_plan.uses.allocate(num_rows * np.dtype(np.uint32).itemsize)
        self._next_plan.changes.allocate(2 * num_rows * self._id_dtype.itemsize)

    def look_ahead(self, trace: AccessTrace) -> None:
        """See LookAheadStore."""
        plan, self._next_plan = self._next_plan, None
        assert plan is not None, "room was made for the batches of the trace"
        self._plans.append(plan)
        plan.num_batches = len(trace)
        dtype = self._id_dtype
        for change in plan_span(
            self._inspected, trace.node_ids, len(trace), self.table.num_rows, fills=True, next_uses=plan
        ):
            plan.changes.append([change.in_positions.astype(dtype), change.out_ids.astype(dtype)])
        plan.uses.close()

    # -- executor --

    def submit(self, batch: SampledBatch) -> _Fetch:
        """See FeatureStore. Raises PipelineError for a batch that nobody looked over."""
        if not self._plans:
            raise PipelineError(f"batch {batch.number} came before the trace that it is in was looked over")
        plan = self._plans[0]
        fill_ids = fill_slots = _NONE
        if plan.num_submitted == 0:
            fill_ids, out_ids = plan.read_changes(0)
            fill_slots = self._cache.replace(out_ids, fill_ids)
        plan.num_submitted += 1
        in_positions, out_ids = plan.read_changes(plan.num_submitted)
        ids = np.ascontiguousarray(batch.node_ids)
        found = self._cache.find(ids)
        in_slots = self._cache.replace(out_ids, ids[in_positions])
        rows = empty_rows(self._resources.pool, len(ids), self.table.row_bytes)
        fetch = _Fetch(ids, found, in_positions, in_slots, fill_ids, fill_slots, rows)
        fetch.reading = self._threads.submit(self._read_missing, fetch)
        self._unfinished.append(fetch)
        if plan.num_submitted == plan.num_batches:
            self._plans.popleft().close()
        return fetch

    def collect(self, ticket: _Fetch) -> Rows:
        """See FeatureStore."""
        with self._lock:
            while ticket.counts is None:
                if self._is_broken:
                    raise PipelineError("a batch before this one was not finished: run the pipeline again")
                self._finish(self._unfinished.popleft())
        return Rows(len(ticket.ids), self.table.row_bytes, (RowSegment(ticket.rows),), ticket.counts)

    def release(self, ticket: _Fetch) -> None:
        """See FeatureStore. Where a batch was never collected, the batches after it cannot be."""
        if ticket.counts is None:
            self._is_broken = True
        if not ticket.reading.cancel():
            wait([ticket.reading])

    def close(self) -> None:
        """See FeatureStore."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._drop_plans()

    def _read_missing(self, fetch: _Fetch) -> FetchCounts:
        started = time.perf_counter()
        misses = fetch.found.misses
        counts = FetchCounts(rows_requested=len(fetch.ids), rows_hit=len(fetch.found.hits))
        counts.bytes_needed = fetch.rows.nbytes
        counts.add_reads(self._reader.read(fetch.ids[misses], fetch.rows, misses))
        counts.seconds = time.perf_counter() - started
        return counts

    def _finish(self, fetch: _Fetch) -> None:
        """Bring the oldest batch's rows to their places, then those that are to stay into the cache."""
        try:
            counts = fetch.reading.result()
            started = time.perf_counter()
            held, threads, found = self._cache.rows, self._resources.threads, fetch.found
            read_in_pieces(self._reader, fetch.fill_ids, held, fetch.fill_slots, counts)
            counts.bytes_copied += copy_rows(held, found.slots, fetch.rows, found.hits, threads)
            counts.bytes_copied += copy_rows(fetch.rows, fetch.in_positions, held, fetch.in_slots, threads)
            counts.seconds += time.perf_counter() - started
        except BaseException:
            self._is_broken = True
            raise
        fetch.counts = counts

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

"""Stores that read the missing rows of all batches in flight in one shared scan: `direct`, `static`, `belady`.

A request costs the disk as much as the bytes of dozens of rows. Rows of k batches lie closer together than rows of one
batch, so k batches take far less than k times the seconds of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop._native import ScanTicket, SharedScan
from diskhop.counters import FetchCounts
from diskhop.protocols import Bytes, MakeRoom, NodeIds, Rows, RowSegment, SampledBatch, Table
from diskhop.runtime.process import keep_after_fork
from diskhop.stores.resources import StoreResources, empty_rows, open_reader, whole_rows
from diskhop.system.memory import buffer_bytes


class Found(NamedTuple):
    """Places of a batch's rows, all int64.

    hits: positions in the batch of the cached rows. slots: where these are cached.
    misses: positions of the other rows.
    """

    hits: NDArray[np.int64]
    slots: NDArray[np.int64]
    misses: NDArray[np.int64]


# Looks up the rows of a batch.
FindRows = Callable[[NodeIds], Found]
_NONE = np.empty(0, np.int64)
NOTHING_FOUND = Found(_NONE, _NONE, _NONE)
_NO_BYTES = np.empty((0, 0), np.uint8)

# Bytes per row of a batch in flight, in addition to the row: a hit has its position and slot (16), a miss its position
# and 12 in the scan. To find misses and sort their ids takes more, for one batch at a time (a row reader takes less).
BYTES_PER_ROW_IN_FLIGHT, BYTES_PER_ROW_TO_JOIN = 20, 48


def scanned_bytes(table: Table, num_rows: int) -> int:
    """Bytes that a batch in flight takes if all its rows miss."""
    return num_rows * BYTES_PER_ROW_IN_FLIGHT + buffer_bytes(num_rows * table.row_bytes)


@dataclass(slots=True, eq=False)
class ScannedBatch:
    """A batch in flight. Its missing rows arrive in `brought`, one after the other."""

    found: Found
    brought: Bytes
    missing: ScanTicket | None
    counts: FetchCounts

    def leave(self) -> None:
        """Abandon reads still in flight, even if a thread waits for them."""
        missing = self.missing
        if missing is not None:
            missing.leave()


class RowScan:
    """The shared scan of a table and the batches that it serves."""

    def __init__(self, table: Table, resources: StoreResources) -> None:
        self._row_bytes = table.row_bytes
        self._resources = resources
        self._scan = keep_after_fork(open_reader(SharedScan, table, resources, resources.max_gap_bytes))

    def begin(self, ids: NodeIds, found: Found, make_room: MakeRoom, also_bytes: int = 0) -> ScannedBatch:
        """Start reading the missing rows. also_bytes: bytes that the caller keeps for the batch."""
        num_missing = len(found.misses)
        num_bytes = buffer_bytes(num_missing * self._row_bytes) + len(ids) * BYTES_PER_ROW_IN_FLIGHT
        make_room(num_bytes + also_bytes)
        brought = empty_rows(self._resources.pool, num_missing, self._row_bytes)
        counts = FetchCounts(rows_requested=len(ids), rows_hit=len(found.hits), bytes_needed=len(ids) * self._row_bytes)
        return ScannedBatch(found, brought, self.join(ids[found.misses], brought), counts)

    def join(self, ids: NodeIds, out: Bytes, to_rows: NDArray[np.int64] | None = None) -> ScanTicket:
        """Start reading rows to their places in `out`."""
        return self._scan.join(ids, out, to_rows)

    def finish(self, batch: ScannedBatch, cached: Bytes) -> Rows:
        """Wait for the missing rows and assemble them with the cached ones."""
        assert batch.missing is not None, "finished once"
        batch.counts.add_reads(*batch.missing.wait())
        segments: tuple[RowSegment, ...] = (RowSegment(batch.brought),)
        if len(batch.found.hits):
            hits, slots, misses = batch.found
            segments = RowSegment(batch.brought, to_rows=misses), RowSegment(cached, from_rows=slots, to_rows=hits)
        rows = Rows(batch.counts.rows_requested, self._row_bytes, segments, batch.counts)
        whole = whole_rows(rows, self._resources.pool, self._resources.threads)
        # The ticket would keep this memory until release().
        batch.brought, batch.found, batch.missing = _NO_BYTES, NOTHING_FOUND, None
        return replace(rows, segments=(RowSegment(whole),))

    def close(self) -> None:
        """End the scan; reads still in flight fail."""
        self._scan.close()


class ScanningStore:
    """A store that caches the same rows all the time: `cached`, which `find` looks up."""

    def __init__(self, table: Table, resources: StoreResources, cached: Bytes, find: FindRows) -> None:
        self.table = table
        self._scan = RowScan(table, resources)
        self._cached = cached
        self._find = find

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> ScannedBatch:
        """See FeatureStore."""
        ids = np.ascontiguousarray(batch.row_ids)
        return self._scan.begin(ids, self._find(ids), make_room)

    def collect(self, ticket: ScannedBatch) -> Rows:
        """See FeatureStore."""
        return self._scan.finish(ticket, self._cached)

    def cancel(self, ticket: ScannedBatch) -> None:
        """See FeatureStore."""
        ticket.leave()

    def release(self, ticket: ScannedBatch) -> None:
        """See FeatureStore. The memory is freed with the last array that refers to it."""
        ticket.leave()

    def close(self) -> None:
        """See FeatureStore."""
        self._scan.close()

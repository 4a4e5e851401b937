"""Stores whose missing rows come by one shared scan of the table, for all batches that are on their way: `direct`,
`static`, `belady`.

On the disk a request costs as much as the bytes of dozens of rows. k batches together ask for rows that lie closer to
each other than those of one, so that together they take far less than k times its seconds.
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
from diskhop.stores.resources import StoreResources, empty_rows, open_reader, whole_rows
from diskhop.system.memory import buffer_bytes


class Found(NamedTuple):
    """Of a batch's rows: the places of those held and their slots, and the places of the others; all int64."""

    hits: NDArray[np.int64]
    slots: NDArray[np.int64]
    misses: NDArray[np.int64]


_NONE = np.empty(0, np.int64)
NOTHING_FOUND = Found(_NONE, _NONE, _NONE)
_NO_BYTES = np.empty((0, 0), np.uint8)

# That a row takes while its batch is on its way, beside itself: of a hit place and slot, 16 bytes, of a miss its place
# and 12 in the scan; and, one batch at a time, to find those and to sort the ids that are missing (a reader of rows
# takes less).
BYTES_PER_ROW_IN_FLIGHT, BYTES_PER_ROW_TO_JOIN = 20, 48


@dataclass(slots=True, eq=False)
class ScannedBatch:
    """A batch whose missing rows are on their way, one after the other into `brought`."""

    found: Found
    brought: Bytes
    missing: ScanTicket | None
    counts: FetchCounts

    def leave(self) -> None:
        """Give up what is still on its way, whoever waits for it."""
        missing = self.missing
        if missing is not None:
            missing.leave()


class RowScan:
    """The shared scan of a table, and batches that it serves."""

    def __init__(self, table: Table, resources: StoreResources) -> None:
        self._row_bytes = table.row_bytes
        self._resources = resources
        self._scan = open_reader(SharedScan, table, resources, resources.max_gap_bytes)

    def begin(self, ids: NodeIds, found: Found, make_room: MakeRoom, also_bytes: int = 0) -> ScannedBatch:
        """Begin to read what is not held. also_bytes: that the caller keeps for the batch."""
        num_missing = len(found.misses)
        num_bytes = buffer_bytes(num_missing * self._row_bytes) + len(ids) * BYTES_PER_ROW_IN_FLIGHT
        make_room(num_bytes + also_bytes)
        brought = empty_rows(self._resources.pool, num_missing, self._row_bytes)
        counts = FetchCounts(rows_requested=len(ids), rows_hit=len(found.hits), bytes_needed=len(ids) * self._row_bytes)
        return ScannedBatch(found, brought, self.join(ids[found.misses], brought), counts)

    def join(self, ids: NodeIds, out: Bytes, to_rows: NDArray[np.int64] | None = None) -> ScanTicket:
        """Begin to bring rows to their places in `out`."""
        return self._scan.join(ids, out, to_rows)

    def finish(self, batch: ScannedBatch, held: Bytes) -> Rows:
        """Wait for what was missing, and put it together with the rows that are held."""
        assert batch.missing is not None, "finished once"
        batch.counts.add_reads(*batch.missing.wait())
        segments: tuple[RowSegment, ...] = (RowSegment(batch.brought),)
        if len(batch.found.hits):
            hits, slots, misses = batch.found
            segments = RowSegment(batch.brought, to_rows=misses), RowSegment(held, from_rows=slots, to_rows=hits)
        rows = Rows(batch.counts.rows_requested, self._row_bytes, segments, batch.counts)
        whole = whole_rows(rows, self._resources.pool, self._resources.threads)
        # The ticket keeps what was brought.
        batch.brought, batch.found, batch.missing = _NO_BYTES, NOTHING_FOUND, None
        return replace(rows, segments=(RowSegment(whole),))

    def close(self) -> None:
        """End the scan; what is still on its way fails."""
        self._scan.close()


class ScanningStore:
    """A store that always holds the same rows, `held`, of which `find` tells where they are."""

    def __init__(self, table: Table, resources: StoreResources, held: Bytes, find: Callable[[NodeIds], Found]) -> None:
        self.table = table
        self._scan = RowScan(table, resources)
        self._held = held
        self._find = find

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> ScannedBatch:
        """See FeatureStore."""
        ids = np.ascontiguousarray(batch.node_ids)
        return self._scan.begin(ids, self._find(ids), make_room)

    def collect(self, ticket: ScannedBatch) -> Rows:
        """See FeatureStore."""
        return self._scan.finish(ticket, self._held)

    def cancel(self, ticket: ScannedBatch) -> None:
        """See FeatureStore."""
        ticket.leave()

    def release(self, ticket: ScannedBatch) -> None:
        """See FeatureStore. Its memory goes with the last array that shows it."""
        ticket.leave()

    def close(self) -> None:
        """See FeatureStore."""
        self._scan.close()

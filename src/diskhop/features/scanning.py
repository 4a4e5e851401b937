"""Stores whose missing rows come by one shared scan of the table, for all batches that are on their way: `direct`,
`static`, `belady`.

On the disk a request costs as much as the bytes of dozens of rows. k batches together ask for rows that lie closer to
each other than those of one, so that together they take far less than k times its seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop._native import ScanTicket, SharedScan, copy_rows
from diskhop.counters import FetchCounts
from diskhop.features.resources import StoreResources, empty_rows, open_reader
from diskhop.protocols import Bytes, NodeIds, Rows, RowSegment, SampledBatch, Table


class Found(NamedTuple):
    """Of a batch's rows: the places of those held and their slots, and the places of the others; all int64."""

    hits: NDArray[np.int64]
    slots: NDArray[np.int64]
    misses: NDArray[np.int64]


# That a batch takes while it is on its way, beside its rows: of a hit place and slot, 16 bytes, of a miss 12 in
# the scan; and, one batch at a time, to find those and to sort the ids that are missing.
BYTES_A_ROW_ON_ITS_WAY, BYTES_A_ROW_TO_JOIN = 16, 48


@dataclass(slots=True, eq=False)
class ScannedBatch:
    """A batch whose missing rows are on their way to their places in `rows`; hits: places of the others, in slots."""

    rows: Bytes
    hits: NDArray[np.int64]
    slots: NDArray[np.int64]
    missing: ScanTicket
    counts: FetchCounts


class RowScan:
    """The shared scan of a table, and batches that it serves."""

    def __init__(self, table: Table, resources: StoreResources) -> None:
        self._row_bytes = table.row_bytes
        self._resources = resources
        self._scan = open_reader(SharedScan, table, resources, resources.max_gap_bytes)

    def begin(self, ids: NodeIds, found: Found) -> ScannedBatch:
        """Take memory for a batch and begin to read what is not held."""
        rows = empty_rows(self._resources.pool, len(ids), self._row_bytes)
        counts = FetchCounts(rows_requested=len(ids), rows_hit=len(found.hits), bytes_needed=rows.nbytes)
        missing = self.join(ids[found.misses], rows, found.misses)
        return ScannedBatch(rows, found.hits, found.slots, missing, counts)

    def join(self, ids: NodeIds, out: Bytes, to_rows: NDArray[np.int64]) -> ScanTicket:
        """Begin to bring rows to their places in `out`."""
        return self._scan.join(ids, out, to_rows)

    def finish(self, batch: ScannedBatch, held: Bytes) -> Rows:
        """Wait for what was missing, and take the other rows from those held."""
        batch.counts.add_reads(*batch.missing.wait())
        started = time.perf_counter()
        batch.counts.bytes_copied += copy_rows(held, batch.slots, batch.rows, batch.hits, self._resources.threads)
        batch.counts.seconds += time.perf_counter() - started
        batch.hits = batch.slots = np.empty(0, np.int64)
        return Rows(len(batch.rows), self._row_bytes, (RowSegment(batch.rows),), batch.counts)

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

    def submit(self, batch: SampledBatch) -> ScannedBatch:
        """See FeatureStore."""
        ids = np.ascontiguousarray(batch.node_ids)
        return self._scan.begin(ids, self._find(ids))

    def collect(self, ticket: ScannedBatch) -> Rows:
        """See FeatureStore."""
        return self._scan.finish(ticket, self._held)

    def release(self, ticket: ScannedBatch) -> None:
        """See FeatureStore. Its memory goes with the last array that shows it."""
        ticket.missing.leave()

    def close(self) -> None:
        """See FeatureStore."""
        self._scan.close()

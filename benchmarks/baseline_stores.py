"""Stores that read as other systems do, where no store of diskhop does: one page per row, or one pread after the other.

Ginex reads the pages of 4 KiB that a row lies in, each row by itself. DGL-OnDisk, which the authors of DiskGNN made for
their comparison, calls pread for every row in the thread that gathers a batch.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from diskhop._native import File, ScanTicket, SharedScan
from diskhop.counters import FetchCounts
from diskhop.protocols import Bytes, NodeIds, Table
from diskhop.stores import scanning
from diskhop.stores.gathering import GatheringStore
from diskhop.stores.kind import StoreKind
from diskhop.stores.resources import StoreResources

PAGE_BYTES = 4096
# Pages of a request that are in memory together; a large request is read in pieces.
_PAGES_AT_ONCE = 1 << 14
# Pages of batches in flight, in addition to the memory of the store.
PAGES_IN_FLIGHT_BYTES = 4 * _PAGES_AT_ONCE * PAGE_BYTES
# Pages that touch are still read together: at the densities of the papers a few of a hundred.
_NO_GAP = 0


def reading_pages(kind: StoreKind, name: str) -> StoreKind:
    """Return a store that reads each missing row alone, with the whole page that it lies in."""

    def open_store(table: Table, resources: StoreResources) -> Any:
        with patch.object(scanning, "open_reader", _PageScan):
            return kind.open(table, resources)

    return replace(kind, name=name, open=open_store)


class _PageScan:
    """A SharedScan of the table's pages that delivers rows."""

    def __init__(self, _kind: type, table: Table, resources: StoreResources, _max_gap_bytes: int) -> None:
        if PAGE_BYTES % table.row_stride:
            raise ValueError(f"rows of {table.row_stride} bytes lie across pages of {PAGE_BYTES}")
        self._row_bytes = table.row_bytes
        self._rows_per_page = PAGE_BYTES // table.row_stride
        self._scan = SharedScan(
            resources.engine,
            File(str(table.path), "read"),
            -(-table.num_rows // self._rows_per_page),
            PAGE_BYTES,
            PAGE_BYTES,
            _NO_GAP,
            resources.max_read_bytes,
            resources.staging_bytes,
            resources.pool,
        )

    def join(self, ids: NodeIds, out: Bytes, to_rows: NDArray[np.int64] | None = None) -> _PageTicket:
        """See SharedScan."""
        return _PageTicket(self, ids, out, np.arange(len(ids)) if to_rows is None else to_rows)

    def begin(self, ids: NodeIds, pages: Bytes) -> ScanTicket:
        """Start reading the pages of rows."""
        return self._scan.join(ids // self._rows_per_page, pages)

    def rows_of(self, pages: Bytes, ids: NodeIds) -> Bytes:
        """Return the rows in their pages."""
        rows = pages.reshape(len(ids), self._rows_per_page, -1)
        return rows[np.arange(len(ids)), ids % self._rows_per_page, : self._row_bytes]

    def close(self) -> None:
        """See SharedScan."""
        self._scan.close()


class _PageTicket:
    """See ScanTicket. The first piece is read at once, the others in wait()."""

    def __init__(self, scan: _PageScan, ids: NodeIds, out: Bytes, to_rows: NDArray[np.int64]) -> None:
        self._scan = scan
        self._ids = ids
        self._out = out
        self._to_rows = to_rows
        self._begin(0)

    def wait(self) -> tuple[int, int, int, float]:
        """See ScanTicket."""
        totals = np.zeros(4)
        for start in range(0, len(self._ids), _PAGES_AT_ONCE):
            if start:
                self._begin(start)
            totals += self._ticket.wait()
            ids = self._ids[start : start + _PAGES_AT_ONCE]
            self._out[self._to_rows[start : start + len(ids)]] = self._scan.rows_of(self._pages, ids)
        reads, bytes_read, bytes_copied, seconds = totals.tolist()
        return int(reads), int(bytes_read), int(bytes_copied), seconds

    def leave(self) -> None:
        """See ScanTicket."""
        self._ticket.leave()

    def _begin(self, start: int) -> None:
        ids = self._ids[start : start + _PAGES_AT_ONCE]
        self._pages = np.empty((len(ids), PAGE_BYTES), np.uint8)
        self._ticket = self._scan.begin(ids, self._pages)


class OneByOne(GatheringStore):
    """Calls pread for one row after the other, through the page cache, in the thread that gathers a batch.

    Pages are evicted after a batch: of a table far beyond memory hardly one stays until it is requested again, where a
    small table would stay whole.
    """

    def __init__(self, table: Table, resources: StoreResources) -> None:
        super().__init__(table, resources, self._read_rows)
        self._descriptor = os.open(table.path, os.O_RDONLY)

    def close(self) -> None:
        """See FeatureStore."""
        super().close()
        os.close(self._descriptor)

    def _read_rows(self, ids: NodeIds, out: Bytes) -> FetchCounts:
        for row, offset in zip(out, (ids * self.table.row_stride).tolist(), strict=True):
            if os.preadv(self._descriptor, [row], offset) != self.table.row_bytes:
                raise OSError(f"{self.table.path}: ends within the row at {offset}")
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return FetchCounts(
            rows_requested=len(ids),
            reads=len(ids),
            bytes_needed=out.nbytes,
            bytes_read=out.nbytes,
            bytes_copied=out.nbytes,
        )

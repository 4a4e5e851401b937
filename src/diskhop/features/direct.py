"""`direct` and `pread`: rows read from the disk for every batch, nothing kept between batches.

`direct` merges rows whose gap costs less to read than another request; `pread` reads each row alone (the naive
baseline, as DGL's on-disk features do).
"""

from __future__ import annotations

from diskhop.counters import FetchCounts
from diskhop.features.resources import ReadingStore, StoreResources, open_reader
from diskhop.protocols import Bytes, NodeIds, Table

_NOTHING_MERGED = -1


def open_direct(table: Table, resources: StoreResources) -> ReadingStore:
    """Coalesced direct reads."""
    return _open(table, resources, resources.max_gap_bytes)


def open_pread(table: Table, resources: StoreResources) -> ReadingStore:
    """One read per row."""
    return _open(table, resources, _NOTHING_MERGED)


def _open(table: Table, resources: StoreResources, max_gap_bytes: int) -> ReadingStore:
    reader = open_reader(table, resources, max_gap_bytes, resources.reading_threads)

    def read_into(ids: NodeIds, out: Bytes) -> FetchCounts:
        counts = FetchCounts(rows_requested=len(ids), bytes_needed=out.nbytes)
        counts.add_reads(reader.read(ids, out))
        return counts

    return ReadingStore(table, resources, read_into)

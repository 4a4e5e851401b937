"""`direct` and `pread`: rows read from the disk for every batch, nothing kept between batches.

`direct` merges rows whose gap costs less to read than another request, those of all batches on their way; `pread` reads
each row alone (the naive baseline, as DGL's on-disk features do).
"""

from __future__ import annotations

import numpy as np

from diskhop._native import RowReader
from diskhop.counters import FetchCounts
from diskhop.protocols import Bytes, NodeIds, Table
from diskhop.stores.gathering import GatheringStore
from diskhop.stores.resources import StoreResources, open_reader
from diskhop.stores.scanning import NOTHING_FOUND, Found, ScanningStore

_NOTHING_MERGED = -1


def open_direct(table: Table, resources: StoreResources) -> ScanningStore:
    """Coalesced direct reads."""

    def find(ids: NodeIds) -> Found:
        return NOTHING_FOUND._replace(misses=np.arange(len(ids)))

    return ScanningStore(table, resources, np.empty((0, table.row_bytes), np.uint8), find)


def open_pread(table: Table, resources: StoreResources) -> GatheringStore:
    """One read per row."""
    reader = open_reader(RowReader, table, resources, _NOTHING_MERGED)

    def read_into(ids: NodeIds, out: Bytes) -> FetchCounts:
        counts = FetchCounts(rows_requested=len(ids), bytes_needed=out.nbytes)
        counts.add_reads(*reader.read(ids, out))
        return counts

    return GatheringStore(table, resources, read_into)

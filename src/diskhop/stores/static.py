"""`static`: the rows that are asked for most are held from the first batch to the last (PaGraph); the rest are read.

Where the nodes are numbered by how often they are somebody's neighbour (hot order), those rows are the first ones, and
to know whether one is held takes one comparison.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from diskhop._native import BufferPool, RowReader
from diskhop.counters import FetchCounts
from diskhop.protocols import NodeIds, Table
from diskhop.stores.resources import StoreResources, empty_rows, open_reader, read_in_pieces
from diskhop.stores.row_cache import RowCache
from diskhop.stores.scanning import Found, ScanningStore


def static_reserves(table: Table, cache_rows: int, _batch_rows: int) -> dict[str, int]:
    """Bytes that the store holds, by their names in the budget."""
    return RowCache.reserves(table, cache_rows)


def open_static(table: Table, resources: StoreResources) -> ScanningStore:
    """Read the rows to be held, coalesced."""
    reader = open_reader(RowReader, table, resources, resources.max_gap_bytes)
    capacity = min(resources.cache_rows, table.num_rows)
    pinned = resources.pinned
    find: Callable[[NodeIds], Found]
    if pinned is None:
        held = empty_rows(BufferPool(0), capacity, table.row_bytes)
        find = find_below(capacity)
        pinned, slots = np.arange(capacity), None
    else:
        cache = RowCache(table, capacity)
        held, find, slots = cache.rows, cache.find, cache.replace(np.empty(0, np.int64), pinned)
    read_in_pieces(reader, pinned, held, slots, FetchCounts())

    return ScanningStore(table, resources, held, find)


def find_below(capacity: int) -> Callable[[NodeIds], Found]:
    """Of a batch's rows, which are among the first ones of the table."""

    def find(ids: NodeIds) -> Found:
        is_held = ids < capacity
        hits = np.flatnonzero(is_held)
        return Found(hits, ids[hits], np.flatnonzero(~is_held))

    return find

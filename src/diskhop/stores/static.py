"""`static`: the most requested rows are cached from the first batch to the last (PaGraph); the rest are read.

In hot order, which numbers nodes by how often they are neighbours, those are the first rows of the table. Looking one
up then takes one comparison.
"""

from __future__ import annotations

import numpy as np

from diskhop._native import RowReader
from diskhop.plans import Prediction, StoreShare
from diskhop.protocols import NodeIds, Table
from diskhop.stores.costs import Scenario, predict_epoch
from diskhop.stores.kind import StoreKind, keep_cached
from diskhop.stores.misses import not_pinned, pinning_seconds
from diskhop.stores.resources import StoreResources, open_reader, read_resident
from diskhop.stores.room import StoreRoom, StoreWishes, keep_rows
from diskhop.stores.row_cache import RowCache
from diskhop.stores.scan_costs import scan
from diskhop.stores.scanning import FindRows, Found, ScanningStore, scanned_bytes


def static_reserves(table: Table, cache_rows: int, _batch_rows: int) -> dict[str, int]:
    """Bytes that the store holds, by name in the budget."""
    return RowCache.reserves(table, cache_rows)


def open_static(table: Table, resources: StoreResources) -> ScanningStore:
    """Read the pinned rows and open the store."""
    reader = open_reader(RowReader, table, resources, resources.max_gap_bytes)
    capacity = min(resources.share.cache_rows, table.num_rows)
    pinned = resources.pinned
    find: FindRows
    if pinned is None:
        find = find_below(capacity)
        pinned, slots = np.arange(capacity), None
    else:
        # The rows are read to memory that may be shared, which the cache only has the slots of.
        cache = RowCache(table, capacity, np.empty((0, table.row_bytes), np.uint8))
        find, slots = cache.find, cache.replace(np.empty(0, np.int64), pinned)
    cached = read_resident(reader, pinned, slots, (capacity, table.row_bytes), resources.memory)
    return ScanningStore(table, resources, cached, find)


def find_below(capacity: int) -> FindRows:
    """Return a look-up of the first rows of the table."""

    def find(ids: NodeIds) -> Found:
        is_cached = ids < capacity
        hits = np.flatnonzero(is_cached)
        return Found(hits, ids[hits], np.flatnonzero(~is_cached))

    return find


def divide(table: Table, room: StoreRoom, wishes: StoreWishes) -> StoreShare:
    """Give memory to a few batches in flight, then to cached rows."""
    batch_rows = room.sizes.num_rows
    room.require(
        static_reserves(table, wishes.cache_rows(table), batch_rows),
        assembles=True,
        extra_bytes=scanned_bytes(table, batch_rows),
    )
    room.grow_in_flight(wishes.batches_before_cache())
    cache_rows = keep_rows(table, room, wishes, static_reserves)
    return StoreShare(reserves=room.reserves, cache_rows=cache_rows)


def simulate(scenario: Scenario) -> Prediction:
    """Predict an epoch in which pinned rows are cached and the others are read."""
    find_seconds = scenario.cores.find_row if scenario.plan.share.cache_rows else 0.0
    fetching = scan(scenario, list(not_pinned(scenario)), find_seconds=find_seconds)
    return predict_epoch(scenario, fetching, pinning_seconds(scenario))


KIND = StoreKind(
    name="static",
    simplicity=2,
    uses=frozenset({"cache", "pinned"}),
    open=open_static,
    shares=frozenset({"cache"}),
    divide=divide,
    simulate=simulate,
    resident_rows=keep_cached,
)

"""Feature stores: strategies for bringing rows from the disk to the model.

A new one is a file here and a line in STORES; the contract tests pick it up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from diskhop.protocols import FeatureStore, Table
from diskhop.stores.belady import BeladyStore, belady_reserves
from diskhop.stores.direct import open_direct, open_pread
from diskhop.stores.mapped import open_mapped
from diskhop.stores.memory import MemoryStore, memory_reserves
from diskhop.stores.packed.sizes import packed_reserves
from diskhop.stores.packed.store import PackedStore
from diskhop.stores.resources import StoreResources
from diskhop.stores.shared import SharedStore, shared_reserves
from diskhop.stores.static import open_static, static_reserves


@dataclass(frozen=True, slots=True)
class StoreKind:
    """How a store is opened, and what it needs.

    open: a store's tickets are its own business, Any stands for what its submit() returns. reserves: (table, rows of
    the cache or buffer, rows of a large batch) -> bytes to be reserved, by name. brings_rows: reads rows for every
    batch into memory of its own. assembles: they are put together with other rows in other memory. lends: they can as
    well be read where they are until release(). keeps_rows: has a cache. pins: of rows that are chosen beforehand.
    looks_ahead: is a LookAheadStore. extracts: brings several batches at once into one buffer, each finished as its
    rows arrive. packs: writes the rows of each batch together, and reads them into one buffer.
    """

    open: Callable[[Table, StoreResources], FeatureStore[Any]]
    reserves: Callable[[Table, int, int], Mapping[str, int]] = lambda _table, _cache_rows, _batch_rows: {}
    brings_rows: bool = True
    assembles: bool = False
    lends: bool = False
    keeps_rows: bool = False
    pins: bool = False
    looks_ahead: bool = False
    extracts: bool = False
    packs: bool = False


STORES = {
    "memory": StoreKind(MemoryStore, memory_reserves, brings_rows=False, assembles=True, lends=True),
    "mapped": StoreKind(open_mapped),
    "pread": StoreKind(open_pread),
    "direct": StoreKind(open_direct),
    "static": StoreKind(open_static, static_reserves, assembles=True, keeps_rows=True, pins=True),
    "belady": StoreKind(BeladyStore, belady_reserves, assembles=True, keeps_rows=True, looks_ahead=True),
    "shared": StoreKind(
        SharedStore, shared_reserves, brings_rows=False, assembles=True, lends=True, keeps_rows=True, extracts=True
    ),
    "packed": StoreKind(
        PackedStore,
        packed_reserves,
        brings_rows=False,
        assembles=True,
        lends=True,
        keeps_rows=True,
        pins=True,
        looks_ahead=True,
        packs=True,
    ),
}

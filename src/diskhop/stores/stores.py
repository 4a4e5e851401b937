"""The registry of feature stores. A new store is one file with a `KIND`, and one line here."""

from __future__ import annotations

from diskhop.protocols import Table, TableGroup
from diskhop.stores import belady, direct, mapped, memory, pread, shared, static
from diskhop.stores.group import open_group
from diskhop.stores.group_share import grouped
from diskhop.stores.kind import StoreKind
from diskhop.stores.packed import kind as packed

STORES: dict[str, StoreKind] = {
    "memory": memory.KIND,
    "mapped": mapped.KIND,
    "pread": pread.KIND,
    "direct": direct.KIND,
    "static": static.KIND,
    "belady": belady.KIND,
    "shared": shared.KIND,
    "packed": packed.KIND,
}


def store_kind(name: str, table: Table | None) -> StoreKind:
    """Return the store of a name that serves this table: of a graph with types, one such store per type."""
    return grouped(STORES[name], open_group) if isinstance(table, TableGroup) else STORES[name]

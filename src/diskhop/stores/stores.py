"""The registry of feature stores. A new store is one file with a `KIND`, and one line here."""

from __future__ import annotations

from diskhop.stores import belady, direct, mapped, memory, pread, shared, static
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

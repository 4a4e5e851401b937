"""The store `packed`, as planner and pipeline know it."""

from __future__ import annotations

from diskhop.stores.kind import StoreKind, keep_cached
from diskhop.stores.packed.costs import simulate
from diskhop.stores.packed.layout import open_layout
from diskhop.stores.packed.share import divide, refuses
from diskhop.stores.packed.store import PackedStore

KIND = StoreKind(
    name="packed",
    simplicity=5,
    uses=frozenset({"cache", "disk", "superbatch", "scratch", "pinned"}),
    open=PackedStore,
    divide=divide,
    simulate=simulate,
    refuses=refuses,
    looks_ahead=True,
    lends=True,
    find_prepared=open_layout,
    resident_rows=keep_cached,
)

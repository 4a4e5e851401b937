"""Feature stores: strategies for bringing rows from the disk to the model.

A new one is a file here and a line in STORES; the contract tests pick it up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from diskhop.features.direct import open_direct, open_pread
from diskhop.features.mapped import open_mapped
from diskhop.features.memory import MemoryStore
from diskhop.features.resources import StoreResources
from diskhop.protocols import FeatureStore, Table

# A store's tickets are its own business: Any stands for "whatever its submit() returned".
STORES: dict[str, Callable[[Table, StoreResources], FeatureStore[Any]]] = {
    "memory": MemoryStore,
    "mapped": open_mapped,
    "pread": open_pread,
    "direct": open_direct,
}

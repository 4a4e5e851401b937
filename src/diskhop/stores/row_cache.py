"""Rows cached between batches, and the slot of each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool
from diskhop.protocols import Bytes, NodeIds, Table
from diskhop.stores.resources import empty_rows
from diskhop.stores.scanning import Found

_NO_SLOT = -1
_SLOT_BYTES = 4


class RowCache:
    """`capacity` slots, and every row's slot. The caller writes rows to the slots that replace() returns.

    rows: uint8 (capacity, row bytes), allocated if not given. Not thread-safe, except for reading slots that stay.
    """

    def __init__(self, table: Table, capacity: int, rows: Bytes | None = None) -> None:
        # A pool of its own, because the slots stay while batches come and go.
        self.rows = empty_rows(BufferPool(0), capacity, table.row_bytes) if rows is None else rows
        self._slot_of = np.full(table.num_rows, _NO_SLOT, np.int32)
        self._free = np.arange(capacity, dtype=np.int32)
        self._num_free = capacity

    @staticmethod
    def reserves(table: Table, capacity: int) -> dict[str, int]:
        """Bytes that a cache holds, by name in the budget."""
        return {"cache": capacity * table.row_bytes, "row addresses": _SLOT_BYTES * (table.num_rows + capacity)}

    def find(self, ids: NodeIds) -> Found:
        """Find the cached rows of a batch."""
        slots = self._slot_of[ids]
        is_cached = slots != _NO_SLOT
        hits = np.flatnonzero(is_cached)
        return Found(hits, slots[hits].astype(np.int64), np.flatnonzero(~is_cached))

    def replace(self, out_ids: NodeIds, in_ids: NodeIds) -> NDArray[np.int64]:
        """Evict rows and return slots for others."""
        freed = self._slot_of[out_ids]
        self._slot_of[out_ids] = _NO_SLOT
        self._free[self._num_free : self._num_free + len(freed)] = freed
        self._num_free += len(freed) - len(in_ids)
        taken = self._free[self._num_free : self._num_free + len(in_ids)]
        self._slot_of[in_ids] = taken
        return taken.astype(np.int64)

    def clear(self) -> None:
        """Evict all rows."""
        self._slot_of.fill(_NO_SLOT)
        self._free[:] = np.arange(len(self._free), dtype=np.int32)
        self._num_free = len(self._free)

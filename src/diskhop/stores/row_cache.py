"""Rows kept in memory from batch to batch: in which slot of one buffer each lies."""

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
    """`capacity` slots, and a table of every row's slot. Whoever uses it fills the slots that it takes.

    rows: uint8 (capacity, row bytes), of its own if none are given. Not for several threads at once, but for reading
    slots that stay as they are.
    """

    def __init__(self, table: Table, capacity: int, rows: Bytes | None = None) -> None:
        # A pool of its own: the slots are not among the batches that come and go.
        self.rows = empty_rows(BufferPool(0), capacity, table.row_bytes) if rows is None else rows
        self._slot_of = np.full(table.num_rows, _NO_SLOT, np.int32)
        self._free = np.arange(capacity, dtype=np.int32)
        self._num_free = capacity

    @staticmethod
    def reserves(table: Table, capacity: int) -> dict[str, int]:
        """Bytes that it holds, by their names in the budget."""
        return {"cache": capacity * table.row_bytes, "row addresses": _SLOT_BYTES * (table.num_rows + capacity)}

    def find(self, ids: NodeIds) -> Found:
        """Which of a batch's rows are held."""
        slots = self._slot_of[ids]
        is_held = slots != _NO_SLOT
        hits = np.flatnonzero(is_held)
        return Found(hits, slots[hits].astype(np.int64), np.flatnonzero(~is_held))

    def replace(self, out_ids: NodeIds, in_ids: NodeIds) -> NDArray[np.int64]:
        """Let rows go and take slots, which this returns, for others."""
        freed = self._slot_of[out_ids]
        self._slot_of[out_ids] = _NO_SLOT
        self._free[self._num_free : self._num_free + len(freed)] = freed
        self._num_free += len(freed) - len(in_ids)
        taken = self._free[self._num_free : self._num_free + len(in_ids)]
        self._slot_of[in_ids] = taken
        return taken.astype(np.int64)

    def clear(self) -> None:
        """Let all rows go."""
        self._slot_of.fill(_NO_SLOT)
        self._free[:] = np.arange(len(self._free), dtype=np.int32)
        self._num_free = len(self._free)

"""Rows of a table that stay in memory while its batches are packed and read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop.protocols import NodeIds

_SLOTS_PER_PIECE = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class ResidentRows:
    """Resident rows and their places.

    num_rows: number of resident rows.
    slots: int32 (rows of the table), the place of each or -1; None if the first rows of the table are resident.
    """

    num_rows: int
    slots: NDArray[np.int32] | None = None

    def count_missing(self, ids: NodeIds) -> int:
        """Count the rows of a batch that are not resident."""
        is_missing = ids >= self.num_rows if self.slots is None else self.slots[ids] < 0
        return int(np.count_nonzero(is_missing))


def hold_listed(ids: NodeIds, num_rows: int) -> ResidentRows:
    """Keep listed rows, each at its place in the list. num_rows: rows of the table."""
    slots = np.full(num_rows, -1, np.int32)
    slots[ids] = np.arange(len(ids), dtype=np.int32)
    return ResidentRows(len(ids), slots)


def keep_at_least(least: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers that are at least `least`, in their order and in the same memory."""
    num_kept = 0
    for start in range(0, len(numbers), _SLOTS_PER_PIECE):
        piece = numbers[start : start + _SLOTS_PER_PIECE]
        kept = piece[piece >= least]
        numbers[num_kept : num_kept + len(kept)] = kept
        num_kept += len(kept)
    return numbers[:num_kept]

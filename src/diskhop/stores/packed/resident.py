"""Which rows of a table stay in memory while its batches are packed and read, and where they lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop.protocols import NodeIds


@dataclass(frozen=True, slots=True, eq=False)
class ResidentRows:
    """num_rows: held. slots: int32 (rows of the table), where each is, or -1; None: the first ones, in order."""

    num_rows: int
    slots: NDArray[np.int32] | None = None

    def count_missing(self, ids: NodeIds) -> int:
        """How many of a batch's rows are not held."""
        is_missing = ids >= self.num_rows if self.slots is None else self.slots[ids] < 0
        return int(np.count_nonzero(is_missing))


def hold_listed(ids: NodeIds, num_rows: int) -> ResidentRows:
    """The rows of a list are held, each at its place there; num_rows: of the table."""
    slots = np.full(num_rows, -1, np.int32)
    slots[ids] = np.arange(len(ids), dtype=np.int32)
    return ResidentRows(len(ids), slots)

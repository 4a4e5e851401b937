"""Which rows of a file are read: all of them, or evenly spaced blocks of a file that would take too long."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BLOCK_BYTES = 1 << 20


def block_starts(num_rows: int, row_bytes: int, most_bytes: int | None = None) -> tuple[NDArray[np.int64], int]:
    """Return the first row of each block, ascending, and the rows of a block: about 1 MiB, at least a row.

    most_bytes: read at most about this much, in evenly spaced blocks; None: everything.
    """
    rows = max(1, _BLOCK_BYTES // max(1, row_bytes))
    num_blocks = -(-num_rows // rows)
    most = num_blocks if most_bytes is None else max(1, most_bytes // (rows * max(1, row_bytes)))
    if num_blocks <= most:
        return np.arange(num_blocks, dtype=np.int64) * rows, rows
    return np.arange(most, dtype=np.int64) * num_blocks // most * rows, rows

"""Rows of a file in blocks: all of them, or evenly spaced blocks of a file that would take too long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.files import check_length
from diskhop.errors import ReadError

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


def read_rows(
    path: Path, num_rows: int, row_bytes: int, most_bytes: int | None = None
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield the share of the file that is done, in rows, and a block (rows, row_bytes); see block_starts().

    Each block overwrites the one before. Raises FormatError for a file of another length, ReadError.
    """
    check_length(path, num_rows * row_bytes)
    starts, rows = block_starts(num_rows, row_bytes, most_bytes)
    content = np.empty(rows * row_bytes, np.uint8)
    try:
        with path.open("rb", buffering=0) as file:
            for start in starts.tolist():
                wanted = content[: min(rows, num_rows - start) * row_bytes]
                file.seek(start * row_bytes)
                filled = 0
                while filled < len(wanted) and (num_bytes := file.readinto(wanted[filled:].data)):
                    filled += num_bytes
                if filled < len(wanted):
                    raise ReadError(f"{path}: ends early; copy or import the dataset again")
                block = wanted.reshape(-1, row_bytes)
                yield start + len(block), block
    except OSError as error:
        raise ReadError(
            f"{path}: cannot be read: {error.strerror or error}; check its permissions and the disk"
        ) from error

"""Numbers read from a file, all of them or none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import ReadError


def read_values(path: Path, dtype: Any, count: int | None = None, offset: int = 0) -> NDArray[Any]:
    """Read consecutive values of a file, 1-D.

    count: number of values; None: all from the offset on. offset: byte of the first one.

    Raises ReadError if the disk fails or the file is too short. NumPy's fromfile() returns fewer values then.
    """
    item = np.dtype(dtype)
    try:
        wanted = (path.stat().st_size - offset) // item.itemsize if count is None else count
        values = np.fromfile(path, item, wanted, offset=offset)
    except OSError as error:
        raise ReadError(f"{path}: cannot be read: {error.strerror or error}; check the disk") from error
    if len(values) != wanted:
        raise ReadError(
            f"{path}: ends, or cannot be read, after byte {offset + len(values) * item.itemsize}; check the disk, then "
            "run the command again"
        )
    return values


def read_bytes(file: BinaryIO, num_bytes: int, offset: int) -> bytes:
    """Read bytes at an offset of an open file, in several system calls if need be. Raises OSError and ReadError."""
    parts, left = [], num_bytes
    while left and (part := os.pread(file.fileno(), left, offset + num_bytes - left)):
        parts.append(part)
        left -= len(part)
    if left:
        raise ReadError(f"{file.name}: ends at byte {offset + num_bytes - left}; run 'diskhop verify' on the dataset")
    return b"".join(parts)

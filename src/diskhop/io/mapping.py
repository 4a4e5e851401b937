"""Memory-mapped files: the kernel reads pages on first access and evicts them when it needs memory."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import ReadError


def map_file(path: Path, num_bytes: int) -> NDArray[np.uint8]:
    """Map the first num_bytes of a file read-only for random access; the last array that refers to it unmaps it.

    Raises ReadError if the file is shorter or cannot be mapped.
    """
    try:
        with path.open("rb") as file:
            actual_bytes = os.fstat(file.fileno()).st_size
            # The kernel refuses an empty map.
            pages = mmap.mmap(file.fileno(), num_bytes, prot=mmap.PROT_READ) if 0 < num_bytes <= actual_bytes else None
    except OSError as error:
        raise ReadError(
            f"{path}: cannot be mapped: {error.strerror or error}; check its permissions and the disk"
        ) from error
    if actual_bytes < num_bytes:
        raise ReadError(
            f"{path}: is {actual_bytes} bytes, must have at least {num_bytes} to be mapped; "
            "run 'diskhop verify' on the dataset, then import the graph again"
        )
    if pages is None:
        return np.frombuffer(b"", np.uint8)
    # Otherwise the kernel reads megabytes ahead at every access.
    pages.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(pages, np.uint8)

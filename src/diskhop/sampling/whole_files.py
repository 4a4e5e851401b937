"""Whole files in memory, or mapped."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine, File
from diskhop.errors import FormatError, ReadError
from diskhop.io.mapping import map_file
from diskhop.system.resident import OwnMemory, Part, ResidentMemory

FileMode = Literal["memory", "mapped"]

_READ_BYTES = 1 << 20


def check_length(path: Path, num_bytes: int) -> None:
    """Raise FormatError for a file of another length, ReadError for one that cannot be read."""
    try:
        actual_bytes = path.stat().st_size
    except OSError as error:
        raise ReadError(f"{path}: cannot be read: {error.strerror}") from error
    if actual_bytes != num_bytes:
        raise FormatError(
            f"{path}: is {actual_bytes} bytes, the manifest says {num_bytes}; "
            "the copy is incomplete or damaged: run 'diskhop import' again"
        )


def open_bytes(
    path: Path, num_bytes: int, mode: FileMode, engine: Engine, memory: ResidentMemory | None = None
) -> NDArray[np.uint8]:
    """Open a file of this length, read-only. Raises ReadError, and FormatError for another length.

    memory: where `memory` reads it to, see ResidentMemory; None: memory of this process alone.
    """
    check_length(path, num_bytes)
    if num_bytes == 0:
        return np.empty(0, np.uint8)
    return (
        map_file(path, num_bytes) if mode == "mapped" else _read_bytes(path, num_bytes, engine, memory or OwnMemory())
    )


def _read_bytes(path: Path, num_bytes: int, engine: Engine, memory: ResidentMemory) -> NDArray[np.uint8]:
    """Read a file whole; each process of the machine reads a part of it."""
    file = File(str(path), "read")
    aligned_bytes = -(-num_bytes // file.offset_alignment) * file.offset_alignment
    read = partial(read_whole, file, num_bytes, engine)
    content = memory.make(aligned_bytes, read)[:num_bytes]
    content.flags.writeable = False
    return content


def read_whole(file: File, num_bytes: int, engine: Engine, buffer: NDArray[np.uint8], part: Part) -> None:
    """Read a part of the first num_bytes of a file to their places in a buffer, which has them in whole blocks."""
    aligned_bytes = -(-num_bytes // file.offset_alignment) * file.offset_alignment
    offsets = np.arange(0, aligned_bytes, _READ_BYTES, dtype=np.uint64)
    ends = np.minimum(offsets + np.uint64(_READ_BYTES), np.uint64(aligned_bytes))
    required_ends = np.minimum(ends, np.uint64(num_bytes))
    own = part.of(len(offsets))
    places, lengths, required = offsets[own], (ends - offsets)[own], (required_ends - offsets)[own]
    engine.wait(engine.submit_read(file, places, lengths, buffer, places, required))

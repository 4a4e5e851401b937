"""Damaged ranges of files, found by reading every byte from disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.files import check_length, drop_cached_pages, read_blocks
from diskhop.dataset.manifest import FileEntry
from diskhop.errors import FormatError, ReadError
from diskhop.io.checksums import BLOCK_BYTES, BlockHasher

MISMATCH = "does not match its checksum"


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged range of a file.

    file: path relative to the dataset.
    offset: first damaged byte.
    num_bytes: length of the range.
    reason: how the damage was found.
    """

    file: str
    offset: int
    num_bytes: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: bytes {self.offset} to {self.offset + self.num_bytes}: {self.reason}"


def verify_file(
    folder: Path, relative: str, entry: FileEntry, wanted: NDArray[np.uint64] | None = None
) -> Iterator[Damage]:
    """Read a file from disk and yield its damaged blocks. wanted: checksums of its blocks; None: the file is one."""
    hasher = BlockHasher()
    drop_cached_pages(folder / relative)
    try:
        check_length(folder / relative, entry.num_bytes)
        for block in read_blocks(folder / relative, entry.num_bytes):
            hasher.update(block)
    except (FormatError, ReadError) as error:
        yield Damage(relative, 0, entry.num_bytes, str(error).removeprefix(f"{folder / relative}: "))
        return
    found = hasher.finish()
    if f"{found.digest:016x}" == entry.xxh3_64 and wanted is None:
        return
    if wanted is None or len(wanted) != len(found.blocks):
        yield Damage(relative, 0, entry.num_bytes, MISMATCH)
        return
    bad_blocks = np.flatnonzero(found.blocks != wanted)
    for number in bad_blocks.tolist():
        offset = number * BLOCK_BYTES
        num_bytes = min(BLOCK_BYTES, entry.num_bytes - offset)
        yield Damage(relative, offset, num_bytes, f"block {number} does not match its checksum")
    if len(bad_blocks) == 0 and f"{found.digest:016x}" != entry.xxh3_64:
        yield Damage(relative, 0, entry.num_bytes, MISMATCH)

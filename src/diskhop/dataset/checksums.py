"""Checksums of files: xxh3_64 of the whole and of every block of 1 MiB, so that damage can be named."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class FileSums:
    """num_bytes: length; digest: of the whole file; blocks: uint64, of each block, the last may be short."""

    num_bytes: int
    digest: int
    blocks: NDArray[np.uint64]


class BlockHasher:
    """Takes a file's bytes from front to back in pieces of any length."""

    def __init__(self) -> None:
        self._whole = xxhash.xxh3_64()
        self._block = xxhash.xxh3_64()
        self._block_filled = 0
        self._blocks: list[int] = []
        self._num_bytes = 0

    def update(self, content: NDArray[np.uint8]) -> None:
        """Add bytes (1-D, contiguous)."""
        self._whole.update(content.data)
        self._num_bytes += len(content)
        start = 0
        while start < len(content):
            part = content[start : start + BLOCK_BYTES - self._block_filled]
            self._block.update(part.data)
            self._block_filled += len(part)
            start += len(part)
            if self._block_filled == BLOCK_BYTES:
                self._end_block()

    def finish(self) -> FileSums:
        """The sums of everything added; the hasher is spent."""
        if self._block_filled:
            self._end_block()
        return FileSums(self._num_bytes, self._whole.intdigest(), np.array(self._blocks, np.uint64))

    def _end_block(self) -> None:
        self._blocks.append(self._block.intdigest())
        self._block.reset()
        self._block_filled = 0


def digest_bytes(content: bytes | NDArray[np.uint8]) -> int:
    """xxh3_64 of some bytes."""
    return xxhash.xxh3_64_intdigest(content if isinstance(content, bytes) else content.data)


def num_blocks(num_bytes: int) -> int:
    """How many blocks a file of this length has."""
    return -(-num_bytes // BLOCK_BYTES)

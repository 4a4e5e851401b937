"""Checksums of files and JSON documents.

A file has an xxh3_64 digest per *block* of 1 MiB, so that damage can be located. The digest of the whole file is that
of its block digests, so a file may be hashed in parts and in any order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class FileSums:
    """Checksums of one file.

    num_bytes: length of the file.
    blocks: uint64, the digest of each block; the last block may be short.
    """

    num_bytes: int
    blocks: NDArray[np.uint64]

    @property
    def digest(self) -> int:
        """Digest of the whole file: the digest of its block digests, as stored in checksums.bin."""
        return digest_bytes(self.blocks.astype("<u8").view(np.uint8))


class BlockHasher:
    """Hashes a file from front to back, in pieces of any length."""

    def __init__(self) -> None:
        self._block = xxhash.xxh3_64()
        self._block_filled = 0
        self._blocks: list[int] = []
        self._num_bytes = 0

    def update(self, content: NDArray[np.uint8]) -> None:
        """Add bytes (1-D, contiguous)."""
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
        """Return the checksums of everything added; the hasher cannot be used afterwards."""
        if self._block_filled:
            self._end_block()
        return FileSums(self._num_bytes, np.array(self._blocks, np.uint64))

    def _end_block(self) -> None:
        self._blocks.append(self._block.intdigest())
        self._block.reset()
        self._block_filled = 0


def sum_file(content: NDArray[np.uint8]) -> FileSums:
    """Return the checksums of a file that is in memory (1-D, contiguous)."""
    hasher = BlockHasher()
    hasher.update(content)
    return hasher.finish()


def digest_bytes(content: bytes | NDArray[np.uint8]) -> int:
    """Return the xxh3_64 digest of bytes."""
    return xxhash.xxh3_64_intdigest(content if isinstance(content, bytes) else content.data)


def num_blocks(num_bytes: int) -> int:
    """Return the number of blocks of a file of this length."""
    return -(-num_bytes // BLOCK_BYTES)


def json_checksum(content: Mapping[str, Any]) -> str:
    """Return the checksum of a JSON document as 16 hexadecimal digits; key order and spacing do not matter."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"{digest_bytes(text.encode()):016x}"

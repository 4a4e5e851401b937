"""The serialised form of a packed batch, a *chunk*: all that a batch needs from the disk, in one piece (DiskGNN, 4).

Little-endian; head, body and rows each start at a multiple of 4096 bytes, with zeros between:

    head   offset 0   magic "DHCK", uint16 version (1), 2 zeros
               8      uint64: batch number, nodes, packed rows, shared rows, bytes of a row, of a slot, of the record
              64      uint64 xxh3 of the body, uint64 xxh3 of the packed rows (0 in a temporary file)
            4088      uint64 xxh3 of all bytes before it
    body    4096      slots       their low 16 bits, uint16 (nodes); the others, uint8, or uint16 where one has more
                                  than 24 bits (nodes)
                      shared ids  uint32 (shared rows), ascending
                      record      the sampled batch (batches/record.py), if the file is read without its trace
    rows              the packed rows, by ascending id

A node's slot says where its row is. A slot below the number of resident rows is one of those. Any other slot, less that
number, counts the batch's own rows: first the shared ones in the order of their list, then the packed ones.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import FormatError
from diskhop.io.checksums import digest_bytes

VERSION = 1
BLOCK_BYTES = 4096

_MAGIC = b"DHCK"
_HEADER = struct.Struct("<4sHH9Q")
_CHECKSUM = struct.Struct("<Q")
_CHECKSUM_OFFSET = BLOCK_BYTES - _CHECKSUM.size
_REMEDY = "remove it and pack again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Position and sizes of a chunk.

    offset: first byte in the file, a multiple of BLOCK_BYTES.
    number: number of the batch.
    num_nodes: nodes of the batch.
    num_packed, num_shared: rows packed for this batch only, and rows that it shares with others.
    row_bytes, slot_bytes, record_bytes: bytes of a row, of a slot, and of the batch's record.
    """

    offset: int
    number: int
    num_nodes: int
    num_packed: int
    num_shared: int
    row_bytes: int
    slot_bytes: int
    record_bytes: int

    @property
    def shared_offset(self) -> int:
        """Offset of the shared ids in the body."""
        return padded(2 * self.num_nodes) + padded((self.slot_bytes - 2) * self.num_nodes)

    @property
    def head_bytes(self) -> int:
        """Bytes of head and body."""
        return BLOCK_BYTES + aligned(self.shared_offset + padded(4 * self.num_shared) + self.record_bytes)

    @property
    def rows_offset(self) -> int:
        """Offset of the packed rows in the file."""
        return self.offset + self.head_bytes

    @property
    def rows_bytes(self) -> int:
        """Bytes of the packed rows."""
        return self.num_packed * self.row_bytes

    @property
    def end(self) -> int:
        """Offset of the next chunk."""
        return self.rows_offset + aligned(self.rows_bytes)

    @property
    def num_own(self) -> int:
        """Rows of the batch that are not resident."""
        return self.num_packed + self.num_shared


class Body(NamedTuple):
    """The arrays of a body.

    slots_low, slots_high: uint16 and uint8 or uint16 (nodes).
    shared_ids: uint32 (shared rows).
    record: uint8 (bytes).
    """

    slots_low: NDArray[np.uint16]
    slots_high: NDArray[Any]
    shared_ids: NDArray[np.uint32]
    record: NDArray[np.uint8]


def slot_bytes_for(num_slots: int) -> int:
    """Bytes of a slot, if all slots are below num_slots."""
    return 3 if num_slots <= 1 << 24 else 4


def lay_out_body(chunk: Chunk, body: NDArray[np.uint8]) -> Body:
    """Return the parts of a body (uint8, head_bytes - BLOCK_BYTES) as views."""
    high_offset, high_bytes = padded(2 * chunk.num_nodes), chunk.slot_bytes - 2
    record_offset = chunk.shared_offset + padded(4 * chunk.num_shared)
    return Body(
        body[: 2 * chunk.num_nodes].view(np.uint16),
        body[high_offset : high_offset + high_bytes * chunk.num_nodes].view(np.uint8 if high_bytes == 1 else np.uint16),
        body[chunk.shared_offset : chunk.shared_offset + 4 * chunk.num_shared].view(np.uint32),
        body[record_offset : record_offset + chunk.record_bytes],
    )


def encode_head(chunk: Chunk, body_checksum: int, rows_checksum: int) -> NDArray[np.uint8]:
    """Return the head of a chunk, uint8 (BLOCK_BYTES)."""
    head = np.zeros(BLOCK_BYTES, np.uint8)
    fields = _fields(chunk)
    _HEADER.pack_into(head.data, 0, _MAGIC, VERSION, 0, *fields, body_checksum, rows_checksum)
    _CHECKSUM.pack_into(head.data, _CHECKSUM_OFFSET, digest_bytes(head[:_CHECKSUM_OFFSET]))
    return head


def check_head(chunk: Chunk, head: NDArray[np.uint8], path: object) -> tuple[int, int]:
    """Check that a head (uint8) is the chunk's, and return the checksums of body and rows. Raises FormatError."""
    magic, version, _, *fields, body_checksum, rows_checksum = _HEADER.unpack_from(head.data)
    if magic != _MAGIC or version != VERSION:
        raise FormatError(f"{path}: has no chunk of version {VERSION} at byte {chunk.offset}; {_REMEDY}")
    (expected,) = _CHECKSUM.unpack_from(head.data, _CHECKSUM_OFFSET)
    check_bytes(chunk, "head", head[:_CHECKSUM_OFFSET], expected, path)
    if tuple(fields) != _fields(chunk):
        raise FormatError(
            f"{path}: the chunk at byte {chunk.offset} is another one: batch {fields[0]} of {fields[1]} nodes, not "
            f"{chunk.number} of {chunk.num_nodes}; {_REMEDY}"
        )
    return body_checksum, rows_checksum


def check_bytes(chunk: Chunk, part: str, content: NDArray[np.uint8], expected: int, path: object) -> None:
    """Compare a part with its checksum. Raises FormatError."""
    actual = digest_bytes(content)
    if actual != expected:
        raise FormatError(
            f"{path}: damaged: the {part} of the chunk at byte {chunk.offset} has checksum {actual:016x}, not "
            f"{expected:016x}; {_REMEDY}"
        )


def aligned(num_bytes: int) -> int:
    """Round up to whole blocks."""
    return -(-num_bytes // BLOCK_BYTES) * BLOCK_BYTES


def padded(num_bytes: int) -> int:
    """Round up to a multiple of 8."""
    return -(-num_bytes // 8) * 8


def _fields(chunk: Chunk) -> tuple[int, ...]:
    return (
        chunk.number,
        chunk.num_nodes,
        chunk.num_packed,
        chunk.num_shared,
        chunk.row_bytes,
        chunk.slot_bytes,
        chunk.record_bytes,
    )

"""Files of chunks: temporary ones of a run, and permanent ones, which describe their content.

    shared rows   the table of rows that the batches of a segment share, one segment after the other
    chunks        see chunk.py
    list          int64 (chunks, 7): offset, batch number, nodes, packed rows, shared rows, bytes of a slot and of the
                  record
    last block    magic "DHPF", uint16 version (1), 2 zeros; uint64: chunks, rows of the shared table, bytes of a row,
                  bytes of the settings, xxh3 of the list; the settings: JSON in ASCII; at 4088 xxh3 of all before it

Everything is little-endian and starts at a multiple of 4096 bytes, with zeros between. A temporary file has no list, no
last block and no checksums of rows, because the store that wrote it reads it once.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop._native import File, SharedScan
from diskhop.batches.trace import TraceSettings, require_same_settings, settings_as_json
from diskhop.counters import PackingCounts
from diskhop.errors import FormatError, ReadError
from diskhop.io.checksums import digest_bytes
from diskhop.stores.packed.chunk import BLOCK_BYTES, Chunk, aligned

VERSION = 1

_MAGIC = b"DHPF"
_LAST = struct.Struct("<4sHH5Q")
_CHECKSUM = struct.Struct("<Q")
_CHECKSUM_OFFSET = BLOCK_BYTES - _CHECKSUM.size
_REMEDY = "remove its folder and pack again"


class PackFile:
    """An open file of chunks.

    chunks: in the order of the batches.
    num_shared: rows that batches share.
    temporary: the file is read once, by the store that wrote it.
    packing: time and bytes that packing it took in this run.
    scan: reads shared rows, once one is needed.
    """

    def __init__(
        self,
        path: Path,
        chunks: Sequence[Chunk],
        num_shared: int,
        *,
        temporary: bool,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.path = path
        self.settings = settings or {}
        self.chunks = chunks
        self.num_shared = num_shared
        self.file = File(str(path), "read")
        self.scan: SharedScan | None = None
        self.temporary = temporary
        self.packing = PackingCounts()
        self._num_left = len(chunks)

    def leave(self) -> bool:
        """Count one batch as done. Return whether it was the last one of a temporary file."""
        self._num_left -= 1
        return self.temporary and self._num_left == 0

    def close(self) -> None:
        """Close the file."""
        if self.scan is not None:
            self.scan.close()
            self.scan = None
        # Its disk space must not wait until this object is collected.
        self.__dict__.pop("file", None)


def encode_end(chunks: Sequence[Chunk], num_shared: int, settings: Mapping[str, object]) -> NDArray[np.uint8]:
    """Return what follows the last chunk of a permanent file: list and last block, uint8."""
    rows = [
        (each.offset, each.number, each.num_nodes, each.num_packed, each.num_shared, each.slot_bytes, each.record_bytes)
        for each in chunks
    ]
    listed = np.array(rows, "<i8").reshape(-1).view(np.uint8)
    text = json.dumps(settings, sort_keys=True, separators=(",", ":")).encode()
    end = np.zeros(aligned(len(listed)) + BLOCK_BYTES, np.uint8)
    end[: len(listed)] = listed
    last = end[-BLOCK_BYTES:]
    fields = len(chunks), num_shared, chunks[0].row_bytes, len(text), digest_bytes(listed)
    last[: _LAST.size + len(text)] = np.frombuffer(_LAST.pack(_MAGIC, VERSION, 0, *fields) + text, np.uint8)
    _CHECKSUM.pack_into(last.data, _CHECKSUM_OFFSET, digest_bytes(last[:_CHECKSUM_OFFSET]))
    return end


def list_bytes(num_chunks: int) -> int:
    """Bytes of the list of chunks, without what fills its last block."""
    return 7 * 8 * num_chunks


def settings_of(settings: TraceSettings, resident_hash: str) -> dict[str, object]:
    """Return the settings that the chunks of a file depend on: the batches, and the resident rows."""
    return {**settings_as_json(settings), "rows in memory": resident_hash}


def open_pack_file(path: Path, settings: Mapping[str, object]) -> PackFile:
    """Open a permanent file. Raises ReadError, and FormatError if it is damaged, truncated or has other batches."""
    try:
        with path.open("rb") as file:
            num_bytes = os.fstat(file.fileno()).st_size
            if num_bytes < BLOCK_BYTES:
                raise FormatError(f"{path}: is not a file of packed batches, or is truncated; {_REMEDY}")
            file.seek(num_bytes - BLOCK_BYTES)
            last = np.frombuffer(file.read(BLOCK_BYTES), np.uint8)
            magic, version, _, num_chunks, num_shared, row_bytes, text_bytes, expected = _LAST.unpack_from(last.data)
            (last_expected,) = _CHECKSUM.unpack_from(last.data, _CHECKSUM_OFFSET)
            if magic != _MAGIC or version != VERSION or digest_bytes(last[:_CHECKSUM_OFFSET]) != last_expected:
                raise FormatError(f"{path}: its last block is not that of packed batches, version {VERSION}; {_REMEDY}")
            stored = _parse_settings(path, last[_LAST.size : _LAST.size + text_bytes].tobytes())
            require_same_settings(path, stored, settings, "packed batches")
            listed_bytes = list_bytes(num_chunks)
            if aligned(listed_bytes) > num_bytes - BLOCK_BYTES:
                raise FormatError(f"{path}: damaged: it is too short for its {num_chunks} batches; {_REMEDY}")
            file.seek(num_bytes - BLOCK_BYTES - aligned(listed_bytes))
            listed = np.frombuffer(file.read(listed_bytes), np.uint8)
    except OSError as error:
        raise ReadError(f"{path}: cannot be read: {error.strerror}; {_REMEDY}") from error
    if len(listed) != listed_bytes or digest_bytes(listed) != expected:
        raise FormatError(f"{path}: damaged: its list of batches has another checksum; {_REMEDY}")
    chunks = []
    for offset, number, num_nodes, num_packed, num_own_shared, slot_bytes, record_bytes in listed.view("<i8").reshape(
        -1, 7
    ):
        chunks.append(
            Chunk(
                offset=int(offset),
                number=int(number),
                num_nodes=int(num_nodes),
                num_packed=int(num_packed),
                num_shared=int(num_own_shared),
                row_bytes=row_bytes,
                slot_bytes=int(slot_bytes),
                record_bytes=int(record_bytes),
            )
        )
        _require_inside(path, chunks[-1], num_bytes)
    return PackFile(path, chunks, num_shared, temporary=False, settings=stored)


def _parse_settings(path: Path, text: bytes) -> dict[str, object]:
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError):
        stored = None
    if not isinstance(stored, dict):
        raise FormatError(f"{path}: damaged: its settings are not a JSON object; {_REMEDY}")
    return stored


def _require_inside(path: Path, chunk: Chunk, num_bytes: int) -> None:
    """Raise FormatError for a chunk that is not whole in its file."""
    counts = (chunk.num_nodes, chunk.num_packed, chunk.num_shared, chunk.record_bytes)
    is_placed = chunk.offset % BLOCK_BYTES == 0 <= chunk.offset and chunk.slot_bytes in (3, 4)
    if not is_placed or min(counts) < 0 or chunk.end > num_bytes:
        raise FormatError(f"{path}: damaged: batch {chunk.number} is not whole in it; {_REMEDY}")

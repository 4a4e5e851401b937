"""A file of packed batches: its last block, its list of chunks, and their heads and bodies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop._native import load_slots
from diskhop.errors import FormatError, ReadError
from diskhop.io.checksums import digest_bytes
from diskhop.stores.packed.chunk import BLOCK_BYTES, Chunk, check_bytes, check_head, encode_head, lay_out_body
from diskhop.stores.packed.pack_file import encode_end, open_pack_file
from tests.fuzz.forge import with_block_checksum
from tests.fuzz.target import Target

_SETTINGS: dict[str, object] = {"seed": 1}
_LIST_SUM = slice(40, 48)
_CHUNK = Chunk(offset=0, number=0, num_nodes=5, num_packed=3, num_shared=1, row_bytes=8, slot_bytes=3, record_bytes=16)


def forged(content: bytes) -> bytes:
    """Sum the list again, as long as the last block says, then that block and the head of the first chunk."""
    if len(content) < 2 * BLOCK_BYTES:
        return content
    last = bytearray(content[-BLOCK_BYTES:])
    listed_bytes = 56 * int.from_bytes(last[8:16], "little")
    begin = len(content) - BLOCK_BYTES - -(-listed_bytes // BLOCK_BYTES) * BLOCK_BYTES
    if begin >= 0:
        listed = np.frombuffer(content, np.uint8)[begin : begin + listed_bytes]
        last[_LIST_SUM] = digest_bytes(listed).to_bytes(8, "little")
    return with_block_checksum(content[:-BLOCK_BYTES]) + with_block_checksum(bytes(last))


def read(content: bytes, folder: Path) -> None:
    path = folder / "epoch-0.bin"
    refused = None
    for each in (content, forged(content)):
        path.write_bytes(each)
        try:
            _read_chunks(path, each)
        except (FormatError, ReadError) as error:
            refused = error
    if refused is not None:
        raise refused


def _read_chunks(path: Path, content: bytes) -> None:
    file = open_pack_file(path, _SETTINGS)
    whole = np.frombuffer(content, np.uint8)
    for chunk in file.chunks:
        head = whole[chunk.offset : chunk.offset + BLOCK_BYTES]
        body_sum, _ = check_head(chunk, head, path)
        body = whole[chunk.offset + BLOCK_BYTES : chunk.rows_offset]
        check_bytes(chunk, "body", body, body_sum, path)
        parts = lay_out_body(chunk, body)
        rows = np.empty(chunk.num_nodes, np.int64)
        load_slots(parts.slots_low, parts.slots_high, 2, 10, rows)
    file.close()


def seeds(folder: Path) -> Sequence[bytes]:
    body: NDArray[np.uint8] = np.zeros(_CHUNK.head_bytes - BLOCK_BYTES, np.uint8)
    rows = np.zeros(BLOCK_BYTES, np.uint8)
    head = encode_head(_CHUNK, digest_bytes(body), digest_bytes(rows[: _CHUNK.rows_bytes]))
    return [b"".join(part.tobytes() for part in (head, body, rows, encode_end([_CHUNK], 4, _SETTINGS)))]


TARGET = Target(name="pack", read=read, errors=(FormatError, ReadError), seeds=seeds)

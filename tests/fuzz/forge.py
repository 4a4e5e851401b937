"""Right checksums for changed content: as somebody would write it who knows the format."""

from __future__ import annotations

import json
import struct
from dataclasses import fields
from typing import Any

import xxhash

from diskhop.batches.record_header import CHECKSUM, FIRST_BYTES, HEADERS, MAGIC, WIDTHS, RecordHeader
from diskhop.io.checksums import json_checksum

_FIELDS = [each.name for each in fields(RecordHeader)]


def parse(content: bytes) -> Any:
    """Parse JSON; None for other content."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def with_json_checksum(content: bytes) -> bytes:
    """Return a JSON object with the checksum that derived manifests have; other content as it is."""
    document = parse(content)
    if not isinstance(document, dict):
        return content
    document.pop("checksum", None)
    try:
        return json.dumps({**document, "checksum": json_checksum(document)}).encode()
    except (ValueError, RecursionError):
        return content


def with_block_checksum(content: bytes, begin: int = 0, num_bytes: int = 4096) -> bytes:
    """Return content in which a block ends with the xxh3 of what is before it."""
    block = content[begin : begin + num_bytes]
    if len(block) < num_bytes:
        return content
    signed = block[:-8] + struct.pack("<Q", xxhash.xxh3_64_intdigest(block[:-8]))
    return content[:begin] + signed + content[begin + num_bytes :]


def with_record_checksums(content: bytes) -> bytes:
    """Return a record of a sampled batch with right checksums, as far as its counts let it have some.

    Bytes after the record stay.
    """
    record = bytearray(content)
    layout = HEADERS.get(int.from_bytes(record[4:6], "little"))
    if record[:4] != MAGIC or layout is None or len(record) < layout.size + CHECKSUM.size:
        return content
    _, _, id_bytes, position_bytes, *numbers = layout.unpack_from(record)
    if id_bytes not in WIDTHS or position_bytes not in WIDTHS:
        return content
    header = RecordHeader(**dict(zip(_FIELDS, (id_bytes, position_bytes, *numbers), strict=False)))
    if header.checksum_offset != layout.size or header.num_bytes > len(record):
        return content
    ids_end = header.prefix_bytes - CHECKSUM.size
    ids_sum = xxhash.xxh3_64_intdigest(bytes(record[header.arrays_offset : ids_end]))
    CHECKSUM.pack_into(record, ids_end, ids_sum)
    blocks_end = header.num_bytes - CHECKSUM.size
    blocks_sum = xxhash.xxh3_64_intdigest(bytes(record[header.prefix_bytes : blocks_end]), ids_sum)
    CHECKSUM.pack_into(record, blocks_end, blocks_sum)
    first = xxhash.xxh3_64(bytes(record[: header.checksum_offset]))
    first.update(bytes(record[header.arrays_offset : min(FIRST_BYTES, header.num_bytes)]))
    CHECKSUM.pack_into(record, header.checksum_offset, first.intdigest())
    return bytes(record)

"""Chunks: what a head says is read back, and no byte that matters can change unseen."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop.errors import FormatError
from diskhop.io.checksums import digest_bytes
from diskhop.stores.packed.chunk import (
    BLOCK_BYTES,
    Chunk,
    aligned,
    check_bytes,
    check_head,
    encode_head,
    lay_out_body,
    padded,
    slot_bytes_for,
)

PATH = Path("chunks-0.bin")
CHUNK = Chunk(
    offset=8192, number=7, num_nodes=5, num_packed=3, num_shared=1, row_bytes=10, slot_bytes=3, record_bytes=9
)
COUNT = st.integers(0, 2**40)


@st.composite
def chunks(draw: st.DrawFn, count: st.SearchStrategy[int] = COUNT) -> Chunk:
    return Chunk(
        offset=BLOCK_BYTES * draw(st.integers(0, 2**40)),
        number=draw(st.integers(0, 2**63)),
        num_nodes=draw(count),
        num_packed=draw(count),
        num_shared=draw(count),
        row_bytes=draw(st.integers(1, 2**20)),
        slot_bytes=draw(st.sampled_from([3, 4])),
        record_bytes=draw(count),
    )


@given(chunks(), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_head_says_what_was_put_into_it(chunk: Chunk, body_checksum: int, rows_checksum: int) -> None:
    head = encode_head(chunk, body_checksum, rows_checksum)
    assert head.nbytes == BLOCK_BYTES
    assert check_head(chunk, head, PATH) == (body_checksum, rows_checksum)


@given(chunks())
def test_parts_begin_at_blocks_and_do_not_overlap(chunk: Chunk) -> None:
    assert chunk.head_bytes % BLOCK_BYTES == chunk.rows_offset % BLOCK_BYTES == chunk.end % BLOCK_BYTES == 0
    body_end = chunk.slot_bytes * chunk.num_nodes + 4 * chunk.num_shared + chunk.record_bytes
    assert body_end <= chunk.head_bytes - BLOCK_BYTES < body_end + BLOCK_BYTES + 24
    assert chunk.rows_offset == chunk.offset + chunk.head_bytes
    assert chunk.rows_offset + chunk.num_packed * chunk.row_bytes <= chunk.end
    assert chunk.end < chunk.rows_offset + chunk.rows_bytes + BLOCK_BYTES


@given(st.integers(0, 2**40))
def test_rounding_up_is_to_the_next_multiple(num_bytes: int) -> None:
    for rounded, unit in ((aligned(num_bytes), BLOCK_BYTES), (padded(num_bytes), 8)):
        assert rounded % unit == 0
        assert num_bytes <= rounded < num_bytes + unit


@given(chunks(st.integers(0, 3000)))
def test_the_arrays_of_a_body_are_apart_and_in_their_order(chunk: Chunk) -> None:
    body = np.zeros(chunk.head_bytes - BLOCK_BYTES, np.uint8)
    parts = lay_out_body(chunk, body)
    assert (len(parts.slots_low), len(parts.slots_high), len(parts.shared_ids), len(parts.record)) == (
        chunk.num_nodes,
        chunk.num_nodes,
        chunk.num_shared,
        chunk.record_bytes,
    )
    arrays: tuple[NDArray[Any], ...] = parts
    for value, array in enumerate(arrays, start=1):
        array.view(np.uint8)[:] = value
    by_hand = b""
    high_bytes = (chunk.slot_bytes - 2) * chunk.num_nodes
    lengths = (2 * chunk.num_nodes, high_bytes, 4 * chunk.num_shared, chunk.record_bytes)
    for value, num_bytes in enumerate(lengths, start=1):
        by_hand += (bytes([value]) * num_bytes).ljust(padded(num_bytes), b"\0")
    assert body.tobytes() == by_hand.ljust(chunk.head_bytes - BLOCK_BYTES, b"\0")


def test_slots_have_as_many_bytes_as_they_need() -> None:
    assert [slot_bytes_for(num_slots) for num_slots in (0, 1 << 24, (1 << 24) + 1)] == [3, 3, 4]


def test_a_head_is_laid_out_as_documented() -> None:
    fields = struct.pack("<9Q", 7, 5, 3, 1, 10, 3, 9, 0x1122334455667788, 0x99AABBCCDDEEFF00)
    block = (b"DHCK" + b"\x01\x00\x00\x00" + fields).ljust(4088, b"\0")
    golden = block + struct.pack("<Q", xxhash.xxh3_64_intdigest(block))
    head = encode_head(CHUNK, 0x1122334455667788, 0x99AABBCCDDEEFF00)
    assert head.tobytes() == golden
    assert head[-8:].tobytes().hex() == "829ece6e902d95d3"


def test_every_flipped_bit_of_a_head_is_refused() -> None:
    head = encode_head(CHUNK, 1, 2)
    for place in range(BLOCK_BYTES):
        for bit in range(8) if place < 80 or place >= 4080 else [place % 8]:
            head[place] ^= 1 << bit
            with pytest.raises(FormatError, match=rf"{PATH}: .*chunk.*at byte 8192[^\n]*remove it and pack again$"):
                check_head(CHUNK, head, PATH)
            head[place] ^= 1 << bit
    assert check_head(CHUNK, head, PATH) == (1, 2)


@pytest.mark.parametrize("part", ["body", "packed rows"])
def test_every_flipped_bit_of_what_has_a_checksum_is_refused(part: str) -> None:
    content = np.random.default_rng(0).integers(0, 256, 5000, np.uint8)
    expected = digest_bytes(content)
    for place in range(len(content)):
        content[place] ^= 1 << place % 8
        told = (
            rf"{PATH}: damaged: the {part} of the chunk at byte 8192 has checksum [0-9a-f]{{16}}, not {expected:016x}; "
        )
        with pytest.raises(FormatError, match=told):
            check_bytes(CHUNK, part, content, expected, PATH)
        content[place] ^= 1 << place % 8
    check_bytes(CHUNK, part, content, expected, PATH)


@pytest.mark.parametrize("name", ["number", "num_nodes", "num_packed", "num_shared", "row_bytes", "record_bytes"])
def test_the_head_of_another_chunk_is_refused(name: str) -> None:
    change: Callable[[int], int]
    for change in (lambda value: value + 1, lambda value: value - 1, lambda value: value + 2**33):
        other = replace(CHUNK, **{name: change(getattr(CHUNK, name))})
        which = f"batch {other.number} of {other.num_nodes} nodes, not 7 of 5"
        told = f"{PATH}: the chunk at byte 8192 is another one: {which}"
        with pytest.raises(FormatError, match=re.escape(told)):
            check_head(CHUNK, encode_head(other, 1, 2), PATH)


def test_what_is_no_chunk_or_a_newer_one_is_refused() -> None:
    newer = encode_head(CHUNK, 1, 2)
    newer[4] = 2
    for head in (np.zeros(BLOCK_BYTES, np.uint8), newer):
        with pytest.raises(FormatError, match=rf"{PATH}: has no chunk of version 1 at byte 8192; remove it"):
            check_head(CHUNK, head, PATH)

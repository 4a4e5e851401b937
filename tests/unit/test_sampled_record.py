"""Claims about the stored form of a sampled batch: it comes back as it was, or not at all."""

from __future__ import annotations

import dataclasses
import struct

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from diskhop._native import BufferPool
from diskhop.batches.record import decode_batch, decode_header, decode_node_ids, encode_batch
from diskhop.errors import FormatError
from diskhop.protocols import DistinctRows, SampledBatch
from tests.unit.batches import batches, large_batch, small_batch
from tests.unit.sampling_oracle import assert_same_batch

ROWS = DistinctRows(np.array([1, 4, 7], np.int64), np.array([2, 0, 1], np.int64))


@given(case=batches())
def test_a_batch_comes_back_as_it_was(case: tuple[SampledBatch, int]) -> None:
    batch, num_nodes_total = case
    data = encode_batch(batch, num_nodes_total)
    assert len(data) % 8 == 0
    assert_same_batch(decode_batch(data), batch)
    assert encode_batch(decode_batch(data), num_nodes_total) == data


def test_ids_take_four_bytes_where_they_fit() -> None:
    narrow, wide = (encode_batch(small_batch(), num_nodes) for num_nodes in (2**32, 2**32 + 1))
    assert (narrow[6], wide[6]) == (4, 8)
    assert len(wide) - len(narrow) == 8  # 12 bytes of ids, padded to 16, against 24


def test_the_arrays_share_one_buffer_of_the_pool() -> None:
    pool = BufferPool(1 << 20)
    batch = decode_batch(encode_batch(small_batch(), 8), pool)
    assert pool.free_bytes == 0
    views = [getattr(batch, name) for name in ("node_ids", "indptr", "sources", "edge_positions")]
    begin = min(view.ctypes.data for view in views)
    assert max(view.ctypes.data + view.nbytes for view in views) == begin + batch.num_bytes
    del batch, views
    assert pool.free_bytes == 4096


@given(case=batches(), more=st.binary(max_size=50))
def test_the_prefix_is_enough_for_the_node_ids(case: tuple[SampledBatch, int], more: bytes) -> None:
    batch, num_nodes_total = case
    data = encode_batch(batch, num_nodes_total)
    header = decode_header(data[:4096])
    prefix = data[: max(header.prefix_bytes, min(4096, len(data)))]
    for given_bytes in (prefix, prefix + more if len(prefix) >= 4096 else data + more, data):
        np.testing.assert_array_equal(decode_node_ids(given_bytes), batch.row_ids)
        assert decode_node_ids(given_bytes).dtype == np.int64
    with pytest.raises(FormatError, match="sampled batch: damaged: it"):
        decode_node_ids(data[: header.prefix_bytes - 1])


@pytest.mark.parametrize("num_nodes", [10, 2000])
def test_a_flipped_bit_of_the_prefix_is_noticed_without_the_rest(num_nodes: int) -> None:
    data = encode_batch(large_batch(3, num_nodes), num_nodes)
    prefix = bytearray(data[: max(decode_header(data).prefix_bytes, min(4096, len(data)))])
    for place in {*range(min(len(prefix), 200)), *range(0, len(prefix), 37), len(prefix) - 1}:
        for bit in range(8):
            prefix[place] ^= 1 << bit
            with pytest.raises(FormatError, match="sampled batch"):
                decode_node_ids(prefix)
            prefix[place] ^= 1 << bit
    np.testing.assert_array_equal(decode_node_ids(prefix), large_batch(3, num_nodes).node_ids)


def test_the_blocks_of_another_batch_are_refused() -> None:
    ours, theirs = (encode_batch(large_batch(number, 2000), 2000) for number in (3, 4))
    prefix_bytes = decode_header(ours).prefix_bytes
    assert prefix_bytes > 4096
    with pytest.raises(FormatError, match="checksum"):
        decode_batch(ours[:prefix_bytes] + theirs[prefix_bytes:])


def test_the_layout_is_the_one_that_is_documented() -> None:
    batch = small_batch()
    ids = struct.pack("<3Q", 2, 1, 3) + struct.pack("<3I", 7, 1, 4) + bytes(4)
    ids_sum = xxhash.xxh3_64_intdigest(ids)
    blocks = struct.pack("<3I", 0, 1, 3) + bytes(4) + struct.pack("<3i", 2, 0, 2) + bytes(4)
    blocks += struct.pack("<3I", 10, 4, 5) + bytes(4)
    rest = ids + struct.pack("<Q", ids_sum) + blocks + struct.pack("<Q", xxhash.xxh3_64_intdigest(blocks, ids_sum))
    header = b"DHSB" + struct.pack("<HBB6Q", 1, 4, 4, 3, 2, 3, 2, 3, 1)
    assert encode_batch(batch, 8) == header + struct.pack("<Q", xxhash.xxh3_64_intdigest(header + rest)) + rest


@given(
    case=batches(),
    place=st.integers(0, 2**20),
    flipped=st.integers(1, 255),
    cut=st.integers(0, 2**20),
)
def test_a_flipped_or_missing_byte_is_noticed(
    case: tuple[SampledBatch, int], place: int, flipped: int, cut: int
) -> None:
    data = bytearray(encode_batch(*case))
    with pytest.raises(FormatError, match="sampled batch"):
        decode_batch(data[: cut % len(data)])
    with pytest.raises(FormatError, match="sampled batch"):
        decode_batch(bytes(data) + b"\0")
    data[place % len(data)] ^= flipped
    with pytest.raises(FormatError, match="sampled batch"):
        decode_batch(data)


@given(data=st.binary(max_size=400), has_magic=st.booleans())
def test_bytes_that_are_no_batch_are_refused(data: bytes, has_magic: bool) -> None:
    with pytest.raises(FormatError, match="sampled batch"):
        decode_batch(b"DHSB\1\0\4\4" + data if has_magic else data)


@given(case=batches(), place=st.integers(0, 2**20), value=st.sampled_from([0, 1, 2, 2**31, 2**32 - 1]))
def test_wrong_bytes_with_a_right_checksum_never_make_an_inconsistent_batch(
    case: tuple[SampledBatch, int], place: int, value: int
) -> None:
    data = bytearray(encode_batch(*case))
    header = decode_header(data)
    prefix_bytes, sum_offset, offset = header.prefix_bytes, header.checksum_offset, header.arrays_offset
    place = place % (len(data) // 4) * 4
    struct.pack_into("<I", data, place, value)
    ids_sum = xxhash.xxh3_64_intdigest(bytes(data[offset : prefix_bytes - 8]))
    struct.pack_into("<Q", data, prefix_bytes - 8, ids_sum)
    struct.pack_into("<Q", data, len(data) - 8, xxhash.xxh3_64_intdigest(bytes(data[prefix_bytes:-8]), ids_sum))
    struct.pack_into("<Q", data, sum_offset, xxhash.xxh3_64_intdigest(bytes(data[:sum_offset] + data[offset:4096])))
    try:
        batch = decode_batch(data)
    except FormatError:
        return
    assert sum(batch.num_sampled_nodes) == batch.num_nodes
    assert len(batch.indptr) == batch.num_nodes - batch.num_sampled_nodes[-1] + 1
    assert batch.indptr[0] == 0
    assert np.all(np.diff(batch.indptr) >= 0)
    assert batch.indptr[-1] == len(batch.sources) == len(batch.edge_positions)
    assert np.all((batch.sources >= 0) & (batch.sources < batch.num_nodes))
    if batch.distinct is not None:
        np.testing.assert_array_equal(batch.distinct.ids[batch.distinct.of_nodes], batch.node_ids)


def test_a_newer_version_says_so() -> None:
    data = bytearray(encode_batch(small_batch(), 8))
    data[4] = 3
    with pytest.raises(FormatError, match="version 3, this diskhop reads versions 1 to 2"):
        decode_batch(data)


def test_the_layout_of_more_arrays_is_the_one_that_is_documented() -> None:
    plain = small_batch()
    node_ids = np.array([7, 1, 7], np.int64)
    batch = dataclasses.replace(
        plain,
        node_ids=node_ids,
        edge_weights=np.array([1, 2, 3], np.float32),
        seed_of=np.array([0, 1, 1], np.int64),
        distinct=DistinctRows(np.array([1, 7], np.int64), np.array([1, 0, 1], np.int64)),
    )
    ids = struct.pack("<3Q", 2, 1, 3) + struct.pack("<2I", 1, 7)
    ids_sum = xxhash.xxh3_64_intdigest(ids)
    blocks = struct.pack("<3I", 0, 1, 3) + bytes(4) + struct.pack("<3i", 2, 0, 2) + bytes(4)
    blocks += struct.pack("<3I", 10, 4, 5) + bytes(4) + struct.pack("<3f", 1, 2, 3) + bytes(4)
    blocks += struct.pack("<3i", 1, 0, 1) + bytes(4) + struct.pack("<3i", 0, 1, 1) + bytes(4)
    rest = ids + struct.pack("<Q", ids_sum) + blocks + struct.pack("<Q", xxhash.xxh3_64_intdigest(blocks, ids_sum))
    header = b"DHSB" + struct.pack("<HBB8Q", 2, 4, 4, 3, 2, 2, 2, 3, 1, 3, 3)
    assert encode_batch(batch, 8) == header + struct.pack("<Q", xxhash.xxh3_64_intdigest(header + rest)) + rest
    whole = dataclasses.replace(plain, num_sampled_nodes=(2, 1, 0), num_sampled_edges=(3, 0), by_hop=False)
    whole = dataclasses.replace(whole, indptr=np.array([0, 1, 3, 3], np.int64))
    stored = encode_batch(whole, 8)
    assert stored[56:72] == struct.pack("<2Q", 4, 0)
    assert_same_batch(decode_batch(stored), whole)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"sources": np.array([2, 0, 3], np.int32)}, "sources are nodes"),
        ({"sources": np.array([2, 0, -1], np.int32)}, "sources are nodes"),
        ({"indptr": np.array([0, 4, 3], np.int64)}, "indptr ascends"),
        ({"indptr": np.array([1, 1, 3], np.int64)}, "indptr starts"),
        ({"indptr": np.array([0, 1, 2], np.int64)}, "indptr ends"),
        ({"num_sampled_nodes": (1, 2)}, "seeds"),
        ({"num_sampled_edges": (2,)}, "edges by hop add up"),
        ({"by_hop": False}, "edges of all nodes"),
        ({"distinct": ROWS, "seed_of": np.array([0, 2, 1])}, "every node belongs to a seed"),
        (
            {"distinct": DistinctRows(ROWS.ids, ROWS.of_nodes + 1), "seed_of": np.zeros(3, np.int64)},
            "among the batch's",
        ),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused_by_rule(change: dict[str, object], rule: str) -> None:
    batch = dataclasses.replace(small_batch(), **change)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match=rule):
        decode_batch(encode_batch(batch, 8))

"""Claims about the stored form of a sampled batch: it comes back as it was, or not at all."""

from __future__ import annotations

import dataclasses
import struct

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from diskhop.errors import FormatError
from diskhop.protocols import SampledBatch
from diskhop.trace import decode_batch, encode_batch
from tests.unit.sampling_oracle import assert_same_batch


@st.composite
def batches(draw: st.DrawFn) -> tuple[SampledBatch, int]:
    """A batch and the number of nodes of its graph."""
    num_nodes_total = draw(st.sampled_from([2**16, 2**32, 2**32 + 1, 2**62]))
    nodes_by_hop = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    num_nodes = sum(nodes_by_hop)
    node = st.integers(0, num_nodes_total - 1)
    degrees = [draw(st.integers(0, 4)) for _ in range(num_nodes - nodes_by_hop[-1])]
    indptr = np.cumsum([0, *degrees], dtype=np.int64)
    hop_ends = np.cumsum([0, *nodes_by_hop[:-1]], dtype=np.int64)
    num_edges = int(indptr[-1])
    max_position = draw(st.sampled_from([2**20, 2**32 - 1, 2**32, 2**62]))
    positions = draw(st.lists(st.integers(0, max_position), min_size=num_edges, max_size=num_edges))
    batch = SampledBatch(
        number=draw(st.integers(0, 2**63)),
        num_seeds=nodes_by_hop[0],
        node_ids=np.array(draw(st.lists(node, min_size=num_nodes, max_size=num_nodes, unique=True)), np.int64),
        indptr=indptr,
        sources=np.array([draw(st.integers(0, num_nodes - 1)) for _ in range(num_edges)], np.int32),
        edge_positions=np.array(positions, np.int64),
        num_sampled_nodes=tuple(nodes_by_hop),
        num_sampled_edges=tuple(np.diff(indptr[hop_ends]).tolist()),
    )
    return batch, num_nodes_total


def small_batch() -> SampledBatch:
    return SampledBatch(
        number=3,
        num_seeds=2,
        node_ids=np.array([7, 1, 4], np.int64),
        indptr=np.array([0, 1, 3], np.int64),
        sources=np.array([2, 0, 2], np.int32),
        edge_positions=np.array([10, 4, 5], np.int64),
        num_sampled_nodes=(2, 1),
        num_sampled_edges=(3,),
    )


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


def test_sources_are_not_copied() -> None:
    data = encode_batch(small_batch(), 8)
    sources = decode_batch(data).sources
    assert np.shares_memory(sources, np.frombuffer(data, np.uint8))
    assert not sources.flags.writeable


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
    struct.pack_into("<I", data, place % ((len(data) - 8) // 4) * 4, value)
    data[-8:] = struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(data[:-8])))
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


def test_a_newer_version_says_so() -> None:
    data = bytearray(encode_batch(small_batch(), 8))
    data[4] = 2
    with pytest.raises(FormatError, match="version 2, this diskhop reads version 1"):
        decode_batch(data)


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
    ],
)
def test_arrays_that_do_not_fit_together_are_refused_by_rule(change: dict[str, object], rule: str) -> None:
    batch = dataclasses.replace(small_batch(), **change)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match=rule):
        decode_batch(encode_batch(batch, 8))

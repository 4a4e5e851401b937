"""The sampler's definition once more, in plain Python: slow, and written from random.hpp's text alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from diskhop.protocols import SampledBatch

_MASK32 = 2**32 - 1
_MASK64 = 2**64 - 1
_GOLDEN64 = 0x9E3779B97F4A7C15


def mix64(word: int) -> int:
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _MASK64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _MASK64
    return word ^ (word >> 31)


def absorb(*parts: int) -> int:
    key = 0
    for part in parts:
        key = mix64(((key ^ part) + _GOLDEN64) & _MASK64)
    return key


def draw_below(node_key: int, counter: int, bound: int, *, wide: bool) -> int:
    if wide:
        return mix64((node_key + (counter + 1) * _GOLDEN64) & _MASK64) * bound >> 64
    word = (node_key + (counter + 1) * 0x9E3779B9) & _MASK32
    word = (word ^ (word >> 16)) * 0x85EBCA6B & _MASK32
    word ^= word >> 13
    word = (word + (node_key >> 32)) * 0xC2B2AE35 & _MASK32
    return (word ^ (word >> 16)) * bound >> 32


def draw_offsets(node_key: int, degree: int, fanout: int) -> list[int]:
    """Floyd's method: distinct offsets into a list, in the order of the draws."""
    if fanout < 0 or fanout >= degree:
        return list(range(degree))
    picks: list[int] = []
    for counter, last in enumerate(range(degree - fanout, degree)):
        pick = draw_below(node_key, counter, last + 1, wide=degree >= 2**16)
        picks.append(last if pick in picks else pick)
    return picks


def sample(
    indptr: NDArray[np.int64],
    indices: NDArray[np.uint32] | NDArray[np.int64],
    seeds: Sequence[int],
    fanouts: Sequence[int],
    key: tuple[int, int, int, int],
) -> SampledBatch:
    """key: seed, purpose, epoch, batch number."""
    node_ids = list(seeds)
    local_ids = {node: local for local, node in enumerate(node_ids)}
    offsets, sources, positions = [0], list[int](), list[int]()
    nodes_by_hop, edges_by_hop = [len(node_ids)], list[int]()
    first = 0
    for hop, fanout in enumerate(fanouts):
        frontier, first, first_edge = node_ids[first:], len(node_ids), len(sources)
        for node in frontier:
            begin, end = int(indptr[node]), int(indptr[node + 1])
            # The 0 is the edge type.
            for offset in draw_offsets(absorb(*key, hop, 0, node), end - begin, fanout):
                neighbor = int(indices[begin + offset])
                if neighbor not in local_ids:
                    local_ids[neighbor] = len(node_ids)
                    node_ids.append(neighbor)
                sources.append(local_ids[neighbor])
                positions.append(begin + offset)
            offsets.append(len(sources))
        nodes_by_hop.append(len(node_ids) - first)
        edges_by_hop.append(len(sources) - first_edge)
    return SampledBatch(
        number=key[3],
        num_seeds=len(seeds),
        node_ids=np.array(node_ids, np.int64),
        indptr=np.array(offsets, np.int64),
        sources=np.array(sources, np.int32),
        edge_positions=np.array(positions, np.int64),
        num_sampled_nodes=tuple(nodes_by_hop),
        num_sampled_edges=tuple(edges_by_hop),
    )


def assert_same_batch(actual: SampledBatch, expected: SampledBatch) -> None:
    """Equal in every field, dtypes included."""
    for name in ("node_ids", "indptr", "sources", "edge_positions"):
        ours, theirs = getattr(actual, name), getattr(expected, name)
        assert ours.dtype == theirs.dtype, name
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
    for name in ("edge_weights", "seed_of"):
        ours, theirs = getattr(actual, name), getattr(expected, name)
        assert (ours is None) == (theirs is None), name
        if ours is not None:
            assert ours.dtype == theirs.dtype, name
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
    assert (actual.distinct is None) == (expected.distinct is None)
    if actual.distinct is not None and expected.distinct is not None:
        np.testing.assert_array_equal(actual.distinct.ids, expected.distinct.ids)
        np.testing.assert_array_equal(actual.distinct.of_nodes, expected.distinct.of_nodes)
    for name in ("number", "num_seeds", "num_sampled_nodes", "num_sampled_edges", "by_hop"):
        assert getattr(actual, name) == getattr(expected, name), name

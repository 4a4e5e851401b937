"""Sampled batches for tests of what stores them: random ones, a small one, and one as large as is asked for."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from diskhop.protocols import DistinctRows, SampledBatch


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
    is_disjoint = draw(st.booleans()) and nodes_by_hop[0] > 0
    ids = draw(st.lists(node, min_size=num_nodes, max_size=num_nodes, unique=not is_disjoint))
    node_ids = np.array(ids, np.int64)
    weight = st.floats(0, 1e6, width=32)
    batch = SampledBatch(
        number=draw(st.integers(0, 2**63)),
        num_seeds=nodes_by_hop[0],
        node_ids=node_ids,
        indptr=indptr,
        sources=np.array([draw(st.integers(0, num_nodes - 1)) for _ in range(num_edges)], np.int32),
        edge_positions=np.array(positions, np.int64),
        num_sampled_nodes=tuple(nodes_by_hop),
        num_sampled_edges=tuple(np.diff(indptr[hop_ends]).tolist()),
        edge_weights=draw(st.none() | arrays(np.float32, num_edges, elements=weight)),
        seed_of=draw(arrays(np.int64, num_nodes, elements=st.integers(0, nodes_by_hop[0] - 1)))
        if is_disjoint
        else None,
        distinct=distinct_rows(node_ids) if is_disjoint else None,
        by_hop=nodes_by_hop[-1] > 0 or draw(st.booleans()),
    )
    return batch, num_nodes_total


def distinct_rows(node_ids: NDArray[np.int64]) -> DistinctRows:
    ids, of_nodes = np.unique(node_ids, return_inverse=True)
    return DistinctRows(ids, of_nodes.astype(np.int64))


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


def large_batch(number: int, num_nodes: int, seed: int = 0) -> SampledBatch:
    """A tenth of the nodes are seeds, with 30 edges each: a record of about 28 bytes a node."""
    generator = np.random.default_rng((seed, number))
    num_seeds = num_nodes // 10
    indptr = np.arange(num_seeds + 1, dtype=np.int64) * 30
    return SampledBatch(
        number=number,
        num_seeds=num_seeds,
        node_ids=generator.permutation(num_nodes).astype(np.int64),
        indptr=indptr,
        sources=generator.integers(0, num_nodes, indptr[-1]).astype(np.int32),
        edge_positions=generator.integers(0, 2**31, indptr[-1]),
        num_sampled_nodes=(num_seeds, num_nodes - num_seeds),
        num_sampled_edges=(int(indptr[-1]),),
    )

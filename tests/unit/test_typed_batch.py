"""Claims about merged rows of a graph with types, and about batches of them split by type."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.batches.typed import split_types
from diskhop.dataset.type_map import MergedEdges, TypeMap
from diskhop.protocols import SampledBatch

_TYPES = ("author", "paper", "venue")


@st.composite
def batches(draw: st.DrawFn) -> tuple[TypeMap, SampledBatch]:
    """A batch of random nodes and edges; every node is expanded but those of the last hop."""
    counts = {name: draw(st.integers(0, 6)) for name in _TYPES}
    ends = [("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "rev_writes", "author")]
    edges = tuple(MergedEdges(each[1], each, draw(st.integers(1, 9))) for each in ends)
    type_map = TypeMap(counts, edges)
    nodes = np.array(draw(st.permutations(range(type_map.total_nodes))), np.int64)
    num_expanded = draw(st.integers(0, len(nodes)))
    num_seeds = draw(st.integers(0, num_expanded))
    sources, positions, indptr = [], [], [0]
    for node in nodes[:num_expanded]:
        kind = _TYPES[int(type_map.node_type_of(np.array([node]))[0])]
        for number, each in enumerate(type_map.edges):
            start, stop = type_map.node_starts[type_map.sources[number] :][:2]
            candidates = np.flatnonzero((nodes >= start) & (nodes < stop)).tolist()
            if each.destination != kind or not candidates:
                continue
            for source in draw(st.lists(st.sampled_from(candidates), max_size=3)):
                sources.append(source)
                positions.append(int(type_map.edge_starts[number]) + draw(st.integers(0, each.num_edges - 1)))
        indptr.append(len(sources))
    sampled = SampledBatch(
        number=0,
        num_seeds=num_seeds,
        node_ids=nodes,
        indptr=np.array(indptr, np.int64),
        sources=np.array(sources, np.int32),
        edge_positions=np.array(positions, np.int64),
        num_sampled_nodes=(num_seeds, num_expanded - num_seeds, len(nodes) - num_expanded),
        num_sampled_edges=(indptr[num_seeds], indptr[-1] - indptr[num_seeds]),
    )
    return type_map, sampled


@given(case=batches())
def test_parts_and_blocks_are_the_batch_again(case: tuple[TypeMap, SampledBatch]) -> None:
    type_map, sampled = case
    typed = split_types(sampled, type_map)
    nodes = np.full(sampled.num_nodes, -1, np.int64)
    for name, part in typed.parts.items():
        nodes[part.places] = part.node_ids + type_map.first_row(name)
    np.testing.assert_array_equal(nodes, sampled.node_ids)
    sources, positions, destinations = (np.full(len(sampled.sources), -1, np.int64) for _ in range(3))
    for number, each in enumerate(type_map.edges):
        block = typed.blocks[each.ends]
        sources[block.places] = typed.parts[each.source].places[block.sources]
        positions[block.places] = block.edge_positions + type_map.edge_starts[number]
        local = np.repeat(np.arange(len(block.indptr) - 1), np.diff(block.indptr))
        destinations[block.places] = typed.parts[each.destination].places[local]
    np.testing.assert_array_equal(sources, sampled.sources)
    np.testing.assert_array_equal(positions, sampled.edge_positions)
    np.testing.assert_array_equal(destinations, np.repeat(np.arange(len(sampled.indptr) - 1), np.diff(sampled.indptr)))


@given(case=batches())
def test_counts_by_hop_add_up(case: tuple[TypeMap, SampledBatch]) -> None:
    type_map, sampled = case
    typed = split_types(sampled, type_map)
    nodes = np.sum([part.num_sampled_nodes for part in typed.parts.values()], axis=0)
    edges = np.sum([block.num_sampled_edges for block in typed.blocks.values()], axis=0)
    assert nodes.tolist() == list(sampled.num_sampled_nodes)
    assert edges.tolist() == list(sampled.num_sampled_edges)
    for each in type_map.edges:
        expanded = sum(typed.parts[each.destination].num_sampled_nodes[:-1])
        assert len(typed.blocks[each.ends].indptr) == expanded + 1


def test_one_type_is_the_batch_itself() -> None:
    type_map = TypeMap({"node": 4}, (MergedEdges("edge", ("node", "edge", "node"), 5),))
    assert type_map.is_single
    assert type_map.first_row("node") == 0
    assert type_map.list_starts.tolist() == [0, 4]


def test_damaged_batches_are_refused() -> None:
    types = TypeMap({"a": 3, "b": 2}, (MergedEdges("r", ("a", "r", "b"), 4),))
    positions = np.array([1], np.int64)

    def split(nodes: list[int], sources: list[int], edge: int) -> None:
        batch = SampledBatch(
            0, 1, np.array(nodes), np.array([0, 1]), np.array(sources, np.int32), positions * edge, (1,), (1,)
        )
        split_types(batch, types)

    split([3, 0], [1], 1)
    for nodes, sources, edge, message in (
        ([5, 0], [1], 1, "node 5 is not in the graph"),
        ([3, 0], [2], 1, "a source is not a node of the batch"),
        ([3, 0], [1], 4, "edge 4 is not in the graph"),
        ([0, 1], [1], 1, "ends at a node of another type"),
    ):
        with pytest.raises(ValueError, match=message):
            split(nodes, sources, edge)

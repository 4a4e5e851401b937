"""Repartitioning moves all nodes with their embeddings and Adagrad state; edges follow their nodes."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop._native import BufferPool, Engine
from diskhop.embedding.graph_edges import read_edge_parts
from diskhop.embedding.partitions.buffer import PartitionBuffer
from diskhop.embedding.partitions.layout import NodePermutation, PartitionLayout
from diskhop.embedding.partitions.loaded import LoadedPartition
from diskhop.embedding.partitions.slots import HostSlots
from diskhop.embedding.partitions.store import PartitionStore
from diskhop.errors import ConfigError
from diskhop.planning.embeddings.partitions import permutation_of
from tests.embedding import NUM_NODES, embed_config, small_triples

numbers = st.integers(0, 2**64 - 1)


@given(num_nodes=st.integers(1, 3000), seed=numbers, number=st.integers(0, 1000))
def test_every_node_has_a_place_and_every_place_a_node(num_nodes: int, seed: int, number: int) -> None:
    permutation = NodePermutation(num_nodes, "random", seed, number)
    nodes = np.arange(num_nodes)
    places = permutation.places(nodes)
    np.testing.assert_array_equal(np.sort(places), nodes)
    np.testing.assert_array_equal(permutation.nodes(places), nodes)
    np.testing.assert_array_equal(NodePermutation(num_nodes, "input", seed, number).places(nodes), nodes)


def test_repartitioned_nodes_meet_others() -> None:
    """About an eighth of 1000 nodes in 8 partitions stay between any two of 20 permutations."""
    permutation = NodePermutation(1000, "random", 0)
    found = [permutation.after(number).places(np.arange(1000)) * 8 // 1000 for number in range(20)]
    for one in range(20):
        for other in range(one):
            assert 80 < np.count_nonzero(found[one] == found[other]) < 175


def _rows(loaded: LoadedPartition, layout: PartitionLayout) -> tuple[np.ndarray, np.ndarray]:
    values = loaded.values.view(np.float32).reshape(-1, layout.dim)
    return values, loaded.squares.view(np.float32).reshape(-1, layout.state_dim)


@pytest.mark.parametrize("num_slots", [2, 3, 4])
@pytest.mark.parametrize(("num_nodes", "num_partitions", "state_dim"), [(37, 5, 1), (5000, 4, 6), (1, 1, 1)])
def test_rows_and_their_sums_of_squares_move_together(
    tmp_path: Path, num_nodes: int, num_partitions: int, state_dim: int, num_slots: int
) -> None:
    layout = PartitionLayout(num_nodes, num_partitions, 6, state_dim)
    store = PartitionStore(tmp_path / "partitions", layout, Engine("threads", 4))
    store.create()
    before, after = NodePermutation(num_nodes, "random", 3, 1), NodePermutation(num_nodes, "random", 3, 2)
    squares_bytes = layout.partition_bytes - layout.values_bytes
    loaded = LoadedPartition(BufferPool(0).take(layout.values_bytes), BufferPool(0).take(squares_bytes))
    values, squares = _rows(loaded, layout)

    def nodes_of(permutation: NodePermutation, partition: int) -> np.ndarray:
        return permutation.nodes(np.arange(layout.start(partition), layout.start(partition + 1)))

    for partition in range(num_partitions):
        nodes = nodes_of(before, partition)
        values[:], squares[:] = 0, 0
        values[: len(nodes)], squares[: len(nodes)] = 1 + nodes[:, None], -1 - nodes[:, None]
        store.write(partition, loaded)
    store.committed()
    kept = store.record()
    with PartitionBuffer(store, layout, HostSlots(store, layout, num_slots)) as buffer:
        buffer.load(range(min(num_slots, num_partitions)))
        buffer.flush()
        store.committed()
        kept = store.record()
        buffer.repartition(lambda places: after.places(before.nodes(places)), range(num_partitions))
    for partition in range(num_partitions):
        nodes = nodes_of(after, partition)
        store.read(partition, loaded)
        expected = np.zeros(layout.stride_rows)
        expected[: len(nodes)] = 1 + nodes
        np.testing.assert_array_equal(values, np.tile(expected[:, None], (1, layout.dim)))
        np.testing.assert_array_equal(squares, np.tile(-expected[:, None], (1, state_dim)))
        store.read(partition, loaded, kept[partition])  # what is committed is still there
        np.testing.assert_array_equal(np.sort(values[: len(nodes_of(before, partition)), 0]),
                                      np.sort(1 + nodes_of(before, partition)))  # fmt: skip


@pytest.mark.parametrize("num_shares", [1, 2, 5])
def test_shares_of_an_epoch_have_every_edge_once(tmp_path: Path, num_shares: int) -> None:
    dataset, config = small_triples(tmp_path), embed_config()
    parts = read_edge_parts(dataset, config, permutation_of(config, NUM_NODES, 4))
    triples = dataset.triples("train")
    assert triples is not None
    expected = sorted(tuple(row) for row in triples.tolist())

    def share(epoch: int, number: int) -> list[tuple[Any, ...]]:
        edges = parts.train_share(epoch, number, num_shares)
        found: list[tuple[Any, ...]] = []
        for sources, relations, destinations in edges.blocks(0, edges.num_input):
            assert relations is not None
            ends = parts.permutation.nodes(sources), parts.permutation.nodes(destinations)
            found += list(zip(ends[0], relations, ends[1], strict=True))
        assert len(found) == edges.num_edges
        return found

    for epoch in (0, 1):
        assert sorted(chain.from_iterable(share(epoch, number) for number in range(num_shares))) == expected
    if num_shares > 1:
        assert sorted(share(0, 0)) != sorted(share(1, 0))


def test_measured_edges_are_the_same_wherever_nodes_are(tmp_path: Path) -> None:
    dataset, config = small_triples(tmp_path), embed_config()
    first = permutation_of(config, NUM_NODES)
    parts = read_edge_parts(dataset, config, first)
    moved = parts.repartitioned(first.after(7))
    assert parts.test is not None
    assert moved.test is not None
    nodes_of = moved.permutation.nodes
    np.testing.assert_array_equal(nodes_of(moved.test.sources), first.nodes(parts.test.sources))
    np.testing.assert_array_equal(nodes_of(moved.test.destinations), first.nodes(parts.test.destinations))
    assert moved.test.total == parts.test.total


def test_nodes_assigned_by_input_are_not_repartitioned() -> None:
    with pytest.raises(ConfigError, match="--repartitions assigns nodes at random, which --assignment input excludes"):
        embed_config(repartitions=1, assignment="input")

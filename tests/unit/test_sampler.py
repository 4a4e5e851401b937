"""Claims about neighbour sampling: what is drawn, how often, and that nothing but the key decides it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import BufferPool, keyed_permutation
from diskhop.config.sampled import ALL_NEIGHBORS
from diskhop.errors import ConfigError, FormatError
from diskhop.protocols import Purpose, SampledBatch, neighbor_spec
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.topology import Indices, Topology
from tests.examples import examples
from tests.unit import sampling_oracle as oracle


def make_topology(lists: list[list[int]], *, wide: bool = False) -> Topology:
    indptr = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    flat = [node for neighbors in lists for node in neighbors]
    indices: Indices = np.array(flat, np.int64) if wide else np.array(flat, np.uint32)
    return Topology(Path("indices.bin"), indptr, indices)


def random_topology(num_nodes: int, num_edges: int) -> Topology:
    """Skewed: some lists are long, many are empty."""
    rng = np.random.default_rng(7)
    destinations = np.sort((rng.random(num_edges) ** 3 * num_nodes).astype(np.int64))
    indptr = np.searchsorted(destinations, np.arange(num_nodes + 1)).astype(np.int64)
    return Topology(Path("indices.bin"), indptr, rng.integers(0, num_nodes, num_edges).astype(np.uint32))


def sample(
    topology: Topology,
    seeds: list[int] | NDArray[np.int64],
    fanouts: list[int],
    key: tuple[int, Purpose, int, int] = (0, Purpose.TRAIN, 0, 0),
) -> SampledBatch:
    seed, purpose, epoch, number = key
    sampler = open_sampler(topology, neighbor_spec(fanouts), seed)
    return sampler.sample(np.array(seeds, np.int64), purpose=purpose, epoch=epoch, number=number)


@st.composite
def graphs_and_seeds(draw: st.DrawFn) -> tuple[Topology, list[int]]:
    num_nodes = draw(st.integers(1, 30))
    nodes = st.integers(0, num_nodes - 1)
    lists = draw(st.lists(st.lists(nodes, max_size=12), min_size=num_nodes, max_size=num_nodes))
    return make_topology(lists, wide=draw(st.booleans())), draw(st.lists(nodes, unique=True, max_size=6))


@given(
    case=graphs_and_seeds(),
    fanouts=st.lists(st.sampled_from([-1, 1, 2, 3, 7, 100]), min_size=1, max_size=4),
    key=st.tuples(st.integers(0, 2**64 - 1), st.sampled_from(Purpose), st.integers(0, 2**40), st.integers(0, 2**40)),
)
def test_batches_are_those_of_the_definition(
    case: tuple[Topology, list[int]], fanouts: list[int], key: tuple[int, Purpose, int, int]
) -> None:
    topology, seeds = case
    expected = oracle.sample(topology.indptr, topology.indices, seeds, fanouts, key)
    oracle.assert_same_batch(sample(topology, seeds, fanouts, key), expected)


@pytest.mark.parametrize("degree", [200, 2**16 - 1, 2**16, 100_000])
@pytest.mark.parametrize("fanout", [10, 16, 17, 64, 65, 190])
def test_long_lists_and_large_fanouts_are_those_of_the_definition(degree: int, fanout: int) -> None:
    rng = np.random.default_rng(degree)
    indptr = np.array([0, degree, degree, 2 * degree], np.int64)
    topology = Topology(Path("indices.bin"), indptr, rng.integers(0, 3, 2 * degree).astype(np.uint32))
    key = (3, Purpose.VALID, 1, 2)
    expected = oracle.sample(indptr, topology.indices, [2, 0], [fanout], key)
    oracle.assert_same_batch(sample(topology, [2, 0], [fanout], key), expected)


@pytest.mark.parametrize("fanouts", [[10, 10, 10], [-1, 4], [3, 20]])
def test_a_batch_after_smaller_and_larger_ones_is_that_of_the_definition(fanouts: list[int]) -> None:
    topology = random_topology(20_000, 200_000)
    sampler = open_sampler(topology, neighbor_spec(fanouts), seed=1)
    for number, num_seeds in enumerate([3, 500, 5, 800]):
        seeds = keyed_permutation(20_000, num_seeds, 0, 0)[:num_seeds]
        key = (1, Purpose.TRAIN, 0, number)
        expected = oracle.sample(topology.indptr, topology.indices, seeds.tolist(), fanouts, key)
        actual = sampler.sample(seeds, purpose=Purpose.TRAIN, epoch=0, number=number)
        oracle.assert_same_batch(actual, expected)


def test_all_neighbors_give_the_whole_neighborhood() -> None:
    topology = random_topology(500, 1500)
    reached, frontier = {4, 77}, {4, 77}
    num_edges = 0
    for _ in range(3):
        lists = [topology.indices[topology.indptr[node] : topology.indptr[node + 1]] for node in frontier]
        num_edges += sum(map(len, lists))
        frontier = {int(node) for neighbors in lists for node in neighbors} - reached
        reached |= frontier
    batch = sample(topology, [4, 77], [ALL_NEIGHBORS] * 3)
    assert set(batch.node_ids.tolist()) == reached
    assert len(batch.sources) == num_edges
    # Every edge leads from the source to the node whose list its position lies in.
    destinations = np.repeat(batch.node_ids[: len(batch.indptr) - 1], np.diff(batch.indptr))
    np.testing.assert_array_equal(batch.node_ids[batch.sources], topology.indices[batch.edge_positions])
    assert np.all(topology.indptr[destinations] <= batch.edge_positions)
    assert np.all(batch.edge_positions < topology.indptr[destinations + 1])


@pytest.mark.parametrize(("degree", "fanout"), [(5, 2), (5, 4), (16, 10), (70_000, 20_000)])
def test_each_neighbor_is_drawn_with_probability_fanout_over_degree(degree: int, fanout: int) -> None:
    num_lists = 20_000 if degree < 100 else 40
    indptr = np.arange(num_lists + 1, dtype=np.int64) * degree
    topology = Topology(Path("indices.bin"), indptr, np.zeros(num_lists * degree, np.uint32))
    batch = sample(topology, np.arange(num_lists), [fanout])
    drawn = np.zeros((num_lists, degree), np.int64)
    np.add.at(drawn.reshape(-1), batch.edge_positions, 1)
    assert drawn.max() == 1
    np.testing.assert_array_equal(drawn.sum(axis=1), fanout)
    if degree > 100:  # by ranges of the list, so that each count is large
        drawn = drawn.reshape(num_lists, 100, -1).sum(axis=2)
    expected = num_lists * fanout / drawn.shape[1]
    # The counts' variance is at most that of independent draws; the bound is five of its standard deviations.
    assert np.abs(drawn.sum(axis=0) - expected).max() < 5 * np.sqrt(expected)


def test_pairs_of_neighbors_are_drawn_equally_often() -> None:
    num_lists = 20_000
    topology = make_topology([[0] * 5] * num_lists)
    batch = sample(topology, np.arange(num_lists), [2])
    pairs = np.sort(batch.edge_positions.reshape(-1, 2) % 5, axis=1)
    _, counts = np.unique(pairs[:, 0] * 5 + pairs[:, 1], return_counts=True)
    assert len(counts) == 10
    statistic = ((counts - num_lists / 10) ** 2 / (num_lists / 10)).sum()
    assert statistic < 33.7  # chi-square with 9 degrees of freedom, one in ten thousand


def test_every_part_of_the_key_changes_the_draws() -> None:
    topology = random_topology(1000, 20_000)
    seeds = list(range(100))
    keys = [
        (0, Purpose.TRAIN, 0, 0),
        (1, Purpose.TRAIN, 0, 0),
        (0, Purpose.VALID, 0, 0),
        (0, Purpose.TRAIN, 1, 0),
        (0, Purpose.TRAIN, 0, 1),
    ]
    drawn = {sample(topology, seeds, [5], key).edge_positions.tobytes() for key in keys}
    assert len(drawn) == len(keys)


def test_a_node_draws_differently_at_another_hop() -> None:
    lists = [[1], list(range(2, 102)), *([[]] * 100)]
    topology = make_topology(lists)
    at_hop_0 = sample(topology, [1], [10]).edge_positions
    at_hop_1 = sample(topology, [0], [10, 10]).edge_positions[1:]
    assert sorted(at_hop_0) != sorted(at_hop_1)


def test_a_node_draws_the_same_whoever_is_in_the_batch() -> None:
    topology = random_topology(1000, 20_000)
    alone = sample(topology, [3], [5])
    among = sample(topology, [900, 3, 17], [5])
    np.testing.assert_array_equal(among.edge_positions[among.indptr[1] : among.indptr[2]], alone.edge_positions)


def test_batches_do_not_depend_on_threads_or_the_order_of_calls() -> None:
    topology = random_topology(5000, 100_000)
    sampler = open_sampler(topology, neighbor_spec([5, 5, 5]), seed=11)

    def draw(number: int) -> SampledBatch:
        seeds = keyed_permutation(5000, 11, 0, 0)[number * 40 : number * 40 + 40]
        return sampler.sample(seeds, purpose=Purpose.TRAIN, epoch=2, number=number)

    in_order = [draw(number) for number in range(60)]
    with ThreadPoolExecutor(4) as threads:
        reversed_order = list(threads.map(draw, reversed(range(60))))
    for ours, theirs in zip(in_order, reversed(reversed_order), strict=True):
        oracle.assert_same_batch(theirs, ours)


def test_a_batch_that_is_held_keeps_its_memory_and_one_that_is_not_leaves_it_to_the_next() -> None:
    topology = random_topology(20_000, 200_000)
    pool = BufferPool(1 << 30)
    sampler = open_sampler(topology, neighbor_spec([10, 10]), 0, pool)

    def draw(number: int) -> SampledBatch:
        return sampler.sample(np.arange(500) + number, purpose=Purpose.TRAIN, epoch=0, number=number)

    expected = [sample(topology, np.arange(500) + n, [10, 10], (0, Purpose.TRAIN, 0, n)) for n in range(4)]
    held = draw(0)
    node_ids = draw(1).node_ids  # one array holds the batch's memory
    assert pool.free_bytes == 0
    for number in (2, 3, 2):
        oracle.assert_same_batch(draw(number), expected[number])
    assert expected[2].num_bytes <= pool.free_bytes < 1.2 * expected[2].num_bytes + (2 << 20)
    oracle.assert_same_batch(held, expected[0])
    np.testing.assert_array_equal(node_ids, expected[1].node_ids)


@pytest.mark.parametrize("seeds", [[5], [-1], [0, 3, 0], [2**40]])
def test_bad_seeds_are_refused_by_name(seeds: list[int]) -> None:
    topology = make_topology([[1], [2], [3], [4], [0]])
    sampler = open_sampler(topology, neighbor_spec([2]), 0)
    with pytest.raises(ConfigError, match=f"seed {seeds[0]} is"):
        sampler.sample(np.array(seeds), purpose=Purpose.TRAIN, epoch=0, number=0)
    batch = sampler.sample(np.array([0]), purpose=Purpose.TRAIN, epoch=0, number=0)
    assert batch.num_nodes == 2  # and the sampler is fit for use


@pytest.mark.parametrize("fanouts", [[0], [-2], [3, 0], [2**31]])
def test_bad_fanouts_are_refused(fanouts: list[int]) -> None:
    with pytest.raises(ConfigError, match="fan-out"):
        open_sampler(make_topology([[0]]), neighbor_spec(fanouts), 0)


def test_a_batch_of_no_hops_has_its_seeds_alone() -> None:
    batch = open_sampler(make_topology([[1], [0]]), neighbor_spec([]), 0).sample(
        np.array([1, 0]), purpose=Purpose.TRAIN, epoch=0, number=0
    )
    assert batch.node_ids.tolist() == [1, 0]
    assert (len(batch.sources), batch.num_sampled_nodes, batch.num_sampled_edges) == (0, (2,), ())


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_that_is_no_64_bit_number_is_refused(seed: int) -> None:
    with pytest.raises(ConfigError, match="seed"):
        open_sampler(make_topology([[0]]), neighbor_spec([1]), seed)


@pytest.mark.parametrize("bad_index", [5, 2**31, -1, 2**62])
def test_an_index_outside_the_graph_is_an_error(bad_index: int) -> None:
    topology = make_topology([[1], [2], [bad_index], [4], [0]], wide=True)
    assert sample(topology, [0], [1]).num_nodes == 2
    with pytest.raises(FormatError, match=rf"indices.bin: .*indices\[2\] is {bad_index}"):
        sample(topology, [0], [1, 1, 1])


@examples(50)
@given(damage=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=4, max_size=4))
def test_a_damaged_indptr_is_an_error_or_is_sampled_in_bounds(damage: list[int]) -> None:
    topology = Topology(Path("indices.bin"), np.array([0, *damage], np.int64), np.zeros(9, np.uint32))
    try:
        batch = sample(topology, [0, 1, 2, 3], [3])
    except FormatError as error:
        assert "topology is damaged" in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert batch.num_sampled_edges[0] <= 12


@given(num_items=st.integers(0, 300), key=st.tuples(*[st.integers(0, 2**64 - 1)] * 3))
def test_a_permutation_is_sorted_by_the_hash_of_key_and_item(num_items: int, key: tuple[int, int, int]) -> None:
    folded = oracle.absorb(*key)
    expected = sorted(
        range(num_items), key=lambda item: oracle.mix64(((folded ^ item) + 0x9E3779B97F4A7C15) & (2**64 - 1))
    )
    assert keyed_permutation(num_items, *key).tolist() == expected

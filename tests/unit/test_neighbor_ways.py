"""Claims about the ways to draw neighbours: each batch is the definition's, wherever lists, weights and times are."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import BufferPool
from diskhop.config.sampled import SUBGRAPHS
from diskhop.errors import ConfigError
from diskhop.protocols import Purpose, SampledBatch
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.neighbor_ways import STRATEGIES, NeighborWays
from diskhop.sampling.samplers import open_sampler
from tests.columns import PLACES, open_place, random_graph, write_graph
from tests.examples import examples
from tests.graphs import memory_folder
from tests.unit import ways_oracle as oracle
from tests.unit.sampling_oracle import assert_same_batch

KEY = (5, Purpose.TRAIN, 1, 3)


def sample(
    topology: AnyTopology,
    ways: NeighborWays,
    seeds: list[int] | NDArray[np.int64],
    fanouts: list[int],
    number: int = KEY[3],
    times: list[int] | None = None,
) -> SampledBatch:
    sampler = open_sampler(topology, ways.spec(fanouts), KEY[0])
    given_times = None if times is None else np.array(times, np.int64)
    return sampler.sample(
        np.array(seeds, np.int64), purpose=Purpose(KEY[1]), epoch=KEY[2], number=number, times=given_times
    )


@st.composite
def any_ways(draw: st.DrawFn) -> NeighborWays:
    times = draw(st.sampled_from(["", "times"]))
    weights = draw(st.sampled_from(["", "weights"]))
    return NeighborWays(
        replace=draw(st.booleans()),
        weights=weights,
        times=times,
        strategy=draw(st.sampled_from(STRATEGIES)) if times and not weights else "uniform",
        disjoint=draw(st.booleans()),
        subgraph=draw(st.sampled_from(SUBGRAPHS)),
    )


@st.composite
def graphs(draw: st.DrawFn) -> oracle.Graph:
    num_nodes = draw(st.integers(1, 20))
    degrees = draw(st.lists(st.integers(0, 12), min_size=num_nodes, max_size=num_nodes))
    num_edges = sum(degrees)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    of_edges = draw(st.booleans())
    # Of few values, so that many are equal; 0 among them.
    weights = np.array([0, 0.5, 1, 3e30])[rng.integers(0, 4, num_edges)].astype(np.float32)
    return oracle.Graph(
        indptr=np.cumsum([0, *degrees], dtype=np.int64),
        indices=rng.integers(0, num_nodes, num_edges).astype(np.uint32),
        weights=weights,
        edge_times=rng.integers(-3, 3, num_edges) if of_edges else None,
        node_times=None if of_edges else rng.integers(-3, 3, num_nodes),
    )


@examples(150)
@given(graph=graphs(), ways=any_ways(), data=st.data())
def test_a_batch_is_the_definitions(
    tmp_path_factory: pytest.TempPathFactory, graph: oracle.Graph, ways: NeighborWays, data: st.DataObject
) -> None:
    nodes = st.integers(0, len(graph.indptr) - 2)
    seeds = data.draw(st.lists(nodes, max_size=6, unique=not ways.is_disjoint))
    fanouts = data.draw(st.lists(st.sampled_from([-1, 1, 2, 3, 20]), min_size=1, max_size=3))
    needs_times = ways.times != "" and graph.edge_times is not None
    times = data.draw(st.lists(st.integers(-4, 4), min_size=len(seeds), max_size=len(seeds))) if needs_times else None
    expected = oracle.sample(graph, ways, seeds, fanouts, KEY, times)
    with memory_folder(tmp_path_factory.getbasetemp()) as folder:
        files = write_graph(folder, graph)
        for place in PLACES:
            with open_place(files, place) as topology:
                assert_same_batch(sample(topology, ways, seeds, fanouts, times=times), expected)


WAYS = [
    NeighborWays(replace=True),
    NeighborWays(weights="weights"),
    NeighborWays(weights="weights", replace=True, subgraph="induced"),
    NeighborWays(disjoint=True, subgraph="bidirectional"),
    NeighborWays(times="times", strategy="last"),
    NeighborWays(times="times", weights="weights", subgraph="induced"),
]


def words(ways: NeighborWays) -> str:
    return "-".join(f"{name}={value}" for name, value in ways.parameters())


# Whether nodes or edges have the times counts only where times do.
@pytest.mark.fast(
    "weights=weights-False",
    "times=times-strategy=last-True",
    "replace=1-weights=weights-subgraph=induced",
    "disjoint=1-subgraph=bidirectional",
    "replace=1-False",
)
@pytest.mark.parametrize(
    ("ways", "node_times"),
    [(ways, node_times) for ways in WAYS for node_times in ((False, True) if ways.times else (False,))],
    ids=lambda value: words(value) if isinstance(value, NeighborWays) else str(value),
)
def test_large_batches_in_pieces_and_threads_change_nothing(
    tmp_path: Path, ways: NeighborWays, node_times: bool
) -> None:
    """Lists of 300,000 edges are looked at in three pieces; threads share readers and the pool's memory."""
    graph = random_graph(3000, 300_000, node_times=node_times)
    files = write_graph(tmp_path, graph)
    rng = np.random.default_rng(1)
    seeds = [rng.permutation(3000)[:count] for count in (10, 40, 220, 100)]
    times = [rng.integers(5, 20, len(each)).tolist() if ways.times else None for each in seeds]
    with open_place(files, "memory") as topology:
        expected = [sample(topology, ways, seeds[n], [20, 30], n, times[n]) for n in range(len(seeds))]
    definition = oracle.sample(graph, ways, seeds[0].tolist(), [20, 30], (*KEY[:3], 0), times[0])
    assert_same_batch(expected[0], definition)
    for place in PLACES:
        pool = BufferPool(1 << 24)
        with open_place(files, place, pool) as topology:
            sampler = open_sampler(topology, ways.spec([20, 30]), KEY[0], pool)

            def one(number: int) -> SampledBatch:
                given = times[number]
                given_times = None if given is None else np.array(given, np.int64)
                return sampler.sample(  # noqa: B023
                    seeds[number], purpose=Purpose(KEY[1]), epoch=KEY[2], number=number, times=given_times
                )

            with ThreadPoolExecutor(4) as threads:
                for batch, wanted in zip(threads.map(one, range(len(seeds))), expected, strict=True):
                    assert_same_batch(batch, wanted)
            assert sampler.workspace_bytes > 0
            assert sampler.reading_bytes > 0


@examples(60)
@given(graph=graphs(), ways=any_ways(), data=st.data())
def test_no_neighbour_is_later_than_its_seed(graph: oracle.Graph, ways: NeighborWays, data: st.DataObject) -> None:
    ways = replace(ways, times="times")
    nodes = st.integers(0, len(graph.indptr) - 2)
    seeds = data.draw(st.lists(nodes, min_size=1, max_size=6))
    times = data.draw(st.lists(st.integers(-4, 4), min_size=len(seeds), max_size=len(seeds)))
    with tempfile.TemporaryDirectory() as folder:
        files = write_graph(Path(folder), graph)
        with open_place(files, "mapped") as topology:
            batch = sample(topology, ways, seeds, [3, 2, -1], times=times)
    assert batch.seed_of is not None
    targets = np.repeat(np.arange(len(batch.indptr) - 1), np.diff(batch.indptr))
    latest = np.array(times)[batch.seed_of]
    assert np.all(batch.seed_of[targets] == batch.seed_of[batch.sources])
    if graph.edge_times is not None:
        assert np.all(graph.edge_times[batch.edge_positions] <= latest[targets])
    else:
        assert graph.node_times is not None
        is_neighbor = np.arange(batch.num_nodes) >= batch.num_seeds
        assert np.all(graph.node_times[batch.node_ids[is_neighbor]] <= latest[is_neighbor])


@pytest.mark.parametrize("disjoint", [False, True])
def test_an_induced_subgraph_is_scipys_submatrix(tmp_path: Path, disjoint: bool) -> None:
    graph = random_graph(400, 6000, seed=3)
    matrix = scipy.sparse.csr_matrix((np.ones(6000), graph.indices, graph.indptr), (400, 400))
    seeds = [1, 17, 300, 42]
    ways = NeighborWays(subgraph="induced", disjoint=disjoint)
    with open_place(write_graph(tmp_path, graph), "memory") as topology:
        batch = sample(topology, ways, seeds, [4, 3])
        drawn = sample(topology, replace(ways, subgraph="directional"), seeds, [4, 3])
    np.testing.assert_array_equal(batch.node_ids, drawn.node_ids)
    ours = scipy.sparse.csr_matrix((np.ones(len(batch.sources)), batch.sources, batch.indptr), (batch.num_nodes,) * 2)
    for seed in range(len(seeds) if disjoint else 1):
        part = np.flatnonzero(batch.seed_of == seed) if batch.seed_of is not None else np.arange(batch.num_nodes)
        ids = batch.node_ids[part]
        assert (ours[part][:, part] != matrix[ids][:, ids]).nnz == 0
    assert disjoint or ours.sum() == matrix[batch.node_ids][:, batch.node_ids].sum()
    assert not batch.by_hop
    assert batch.num_sampled_nodes == (*drawn.num_sampled_nodes, 0)


def test_a_bidirectional_subgraph_is_pygs(tmp_path: Path) -> None:
    import torch
    from torch_geometric.sampler.utils import to_bidirectional

    graph = random_graph(200, 3000, seed=4)
    with open_place(write_graph(tmp_path, graph), "memory") as topology:
        batch = sample(topology, NeighborWays(subgraph="bidirectional"), [3, 70, 11], [4, 3])
        drawn = sample(topology, NeighborWays(), [3, 70, 11], [4, 3])
    row = torch.from_numpy(drawn.sources).long()
    col = torch.from_numpy(np.repeat(np.arange(len(drawn.indptr) - 1), np.diff(drawn.indptr)))
    wanted_row, wanted_col, _ = to_bidirectional(row, col, row, col)
    np.testing.assert_array_equal(batch.sources, wanted_row.numpy())
    np.testing.assert_array_equal(np.repeat(np.arange(batch.num_nodes), np.diff(batch.indptr)), wanted_col.numpy())
    # An edge has the position of the drawn edge that it is, or is the opposite of.
    ends = np.sort(np.stack([graph.indices, np.repeat(np.arange(200), np.diff(graph.indptr))]), axis=0)
    ours = np.sort(np.stack([batch.node_ids[batch.sources], batch.node_ids[wanted_col.numpy()]]), axis=0)
    np.testing.assert_array_equal(ends[:, batch.edge_positions], ours)


def test_a_seed_may_repeat_where_each_has_a_subgraph(tmp_path: Path) -> None:
    graph = random_graph(100, 3000, seed=5)
    with open_place(write_graph(tmp_path, graph), "memory") as topology:
        batch = sample(topology, NeighborWays(disjoint=True), [1, 1, 1, 0], [5])
        with pytest.raises(ConfigError, match="seed 1 is repeated"):
            sample(topology, NeighborWays(replace=True), [1, 1], [5])
    drawn = [batch.edge_positions[batch.indptr[seed] : batch.indptr[seed + 1]].tolist() for seed in range(3)]
    assert len({tuple(each) for each in drawn}) == 3, "each of them has draws of its own"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subgraph": "inducd"}, r"unknown subgraph_type 'inducd' \(did you mean 'induced'\?\)"),
        ({"times": "times", "strategy": "first"}, "unknown temporal_strategy 'first'"),
        ({"strategy": "last"}, "temporal_strategy must be 'uniform' without times, got 'last'; name the times"),
        (
            {"strategy": "last", "times": "t", "weights": "w"},
            "temporal_strategy must be 'uniform' where neighbours are drawn by",
        ),
    ],
)
def test_ways_that_mean_nothing_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        NeighborWays(**given)


@pytest.mark.parametrize("weight", [-1, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", PLACES)
def test_weights_that_are_no_probabilities_are_named(tmp_path: Path, place: str, weight: float) -> None:
    graph = random_graph(100, 2000)
    assert graph.weights is not None
    graph.weights[1777] = weight
    files = write_graph(tmp_path, graph)
    with (
        open_place(files, place) as topology,
        pytest.raises(
            ConfigError, match=f"weights 'weights' must be at least 0 and finite.* got {weight:g} at edge 1777"
        ),
    ):
        sample(topology, NeighborWays(weights="weights"), np.arange(100), [3])


def test_edge_times_need_times_of_the_seeds(tmp_path: Path) -> None:
    files = write_graph(tmp_path, random_graph(100, 2000))
    with open_place(files, "memory") as topology, pytest.raises(ConfigError, match="the seeds have no times"):
        sample(topology, NeighborWays(times="times"), [3], [3])
    with (
        open_place(replace(files, columns=()), "memory") as topology,
        pytest.raises(ConfigError, match="opened without weights"),
    ):
        sample(topology, NeighborWays(weights="weights"), [3], [3])

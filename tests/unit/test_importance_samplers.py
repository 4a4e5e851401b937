"""Claims about LABOR, LADIES and FastGCN: each batch is the definition's, counts are as wanted, and sums unbiased."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import BufferPool
from diskhop.config.sampler import FASTGCN, IMPORTANCE, LABOR, LADIES
from diskhop.errors import ConfigError
from diskhop.nn.layers.aggregate import Block, BlockWeights, weighted_sum
from diskhop.nn.layers.gcn import gcn_weights
from diskhop.protocols import Purpose, SampledBatch, Sampler, SamplerSpec, neighbor_spec
from diskhop.sampling.importance import importance_spec
from diskhop.sampling.samplers import open_sampler
from tests.columns import PLACES, open_place, random_graph, write_graph
from tests.examples import examples
from tests.graphs import memory_folder
from tests.unit import importance_oracle as oracle
from tests.unit.sampling_oracle import assert_same_batch
from tests.unit.ways_oracle import Graph

KEY = (5, Purpose.TRAIN, 1, 7)
Settings = dict[str, int]
# Kinds and settings whose arithmetic differs.
CASES: list[tuple[str, Settings]] = [
    (LABOR, {}),
    (LABOR, {"importance": 1}),
    (LABOR, {"batch_dependency": 3}),
    (LADIES, {}),
    (FASTGCN, {"batch_dependency": 100}),
]
# Standard errors that a mean over random draws may be away from its expectation; the draws are fixed by the seed.
SIGMAS = 4.5


def sample(sampler: Sampler, seeds: NDArray[np.int64] | list[int], number: int = KEY[3]) -> SampledBatch:
    return sampler.sample(np.array(seeds, np.int64), purpose=Purpose(KEY[1]), epoch=KEY[2], number=number)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    num_nodes = draw(st.integers(1, 20))
    degrees = draw(st.lists(st.integers(0, 12), min_size=num_nodes, max_size=num_nodes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    # Of few nodes, so that lists share them, and have some repeatedly.
    indices = rng.integers(0, draw(st.integers(1, num_nodes)), sum(degrees)).astype(np.uint32)
    return Graph(indptr=np.cumsum([0, *degrees], dtype=np.int64), indices=indices)


@st.composite
def settings(draw: st.DrawFn) -> tuple[str, Settings]:
    kind = draw(st.sampled_from(IMPORTANCE))
    chosen: Settings = {"batch_dependency": draw(st.sampled_from([1, 2, 5, 1000]))}
    return kind, chosen | ({"importance": draw(st.integers(0, 1))} if kind == LABOR else {})


@examples(150)
@given(graph=graphs(), case=settings(), data=st.data())
def test_a_batch_is_the_definitions(
    tmp_path_factory: pytest.TempPathFactory, graph: Graph, case: tuple[str, Settings], data: st.DataObject
) -> None:
    kind, chosen = case
    seeds = data.draw(st.lists(st.integers(0, len(graph.indptr) - 2), max_size=6, unique=True))
    fanouts = data.draw(st.lists(st.sampled_from([-1, 1, 2, 3, 7, 20]), min_size=1, max_size=3))
    expected = oracle.sample(graph.indptr, graph.indices, seeds, fanouts, KEY, kind, **chosen)
    with memory_folder(tmp_path_factory.getbasetemp()) as folder:
        files = write_graph(folder, graph)
        for place in PLACES:
            with open_place(files, place) as topology:
                sampler = open_sampler(topology, importance_spec(kind, fanouts, **chosen), KEY[0])
                assert_same_batch(sample(sampler, seeds), expected)


@pytest.mark.fast(2)
@pytest.mark.parametrize(("kind", "chosen"), CASES, ids=str)
def test_large_batches_in_pieces_and_threads_change_nothing(tmp_path: Path, kind: str, chosen: Settings) -> None:
    """Lists of 300,000 edges are looked at in three pieces; threads share readers and the pool's memory."""
    graph = random_graph(3000, 300_000)
    files = write_graph(tmp_path, Graph(indptr=graph.indptr, indices=graph.indices))
    rng = np.random.default_rng(1)
    seeds = [rng.permutation(3000)[:count] for count in (10, 220, 40, 100)]
    fanouts = [200, 300] if kind != LABOR else [20, 30]
    spec = importance_spec(kind, fanouts, **chosen)
    with open_place(files, "memory") as topology:
        sampler = open_sampler(topology, spec, KEY[0])
        expected = [sample(sampler, seeds[number], number) for number in range(len(seeds))]
        assert sampler.workspace_bytes > 0
    definition = oracle.sample(graph.indptr, graph.indices, seeds[2].tolist(), fanouts, (*KEY[:3], 2), kind, **chosen)
    assert_same_batch(expected[2], definition)
    for place in PLACES:
        pool = BufferPool(1 << 24)
        with open_place(files, place, pool) as topology, ThreadPoolExecutor(4) as threads:
            sampler = open_sampler(topology, spec, KEY[0], pool)
            found = threads.map(lambda number: sample(sampler, seeds[number], number), range(len(seeds)))  # noqa: B023
            for batch, wanted in zip(found, expected, strict=True):
                assert_same_batch(batch, wanted)


def counts_of(sampler: Sampler, seeds: NDArray[np.int64], num_batches: int) -> NDArray[np.int64]:
    """Edges of each seed in each batch (batches, seeds)."""
    return np.stack([np.diff(sample(sampler, seeds, number).indptr)[: len(seeds)] for number in range(num_batches)])


@pytest.mark.fast(1)
@pytest.mark.parametrize("importance", [0, 1])
@pytest.mark.parametrize("batch_dependency", [1, 4])
def test_labor_keeps_as_many_edges_of_a_list_as_neighbour_sampling(
    tmp_path: Path, importance: int, batch_dependency: int
) -> None:
    graph = random_graph(400, 12_000, seed=3)
    seeds, degrees = np.arange(400), np.diff(graph.indptr)
    spec = importance_spec(LABOR, (10,), importance=importance, batch_dependency=batch_dependency)
    num_batches = 1200
    with open_place(write_graph(tmp_path, Graph(indptr=graph.indptr, indices=graph.indices)), "memory") as topology:
        counts = counts_of(open_sampler(topology, spec, 1), seeds, num_batches)
    wanted = np.minimum(10, degrees)
    np.testing.assert_array_equal(
        counts[:, degrees <= 10], np.broadcast_to(wanted[degrees <= 10], (num_batches, (degrees <= 10).sum()))
    )
    # A count of parallel edges, which are kept together, varies more than a sum of independent ones: at most fourfold.
    errors = np.abs(counts.mean(0) - wanted) / np.sqrt(4 * np.maximum(wanted, 1) / (num_batches / batch_dependency))
    assert errors.max() < SIGMAS
    total = counts[:, degrees > 10].sum(1).mean() / wanted[degrees > 10].sum()
    assert abs(total - 1) < 0.02


def test_labor_reaches_fewer_nodes_and_with_importance_fewer_still(tmp_path: Path) -> None:
    graph = random_graph(2000, 60_000, seed=4)
    seeds = np.random.default_rng(0).permutation(2000)[:300]
    specs = [neighbor_spec((10, 10)), importance_spec(LABOR, (10, 10)), importance_spec(LABOR, (10, 10), importance=1)]
    with open_place(write_graph(tmp_path, Graph(indptr=graph.indptr, indices=graph.indices)), "memory") as topology:
        nodes, labor, balanced = (
            np.mean(
                [sample(open_sampler(topology, spec, 1), seeds, number).num_sampled_nodes[1] for number in range(20)]
            )
            for spec in specs
        )
    assert labor < 0.9 * nodes
    assert balanced < 0.99 * labor


def estimates_of(sampler: Sampler, seeds: NDArray[np.int64], values: NDArray[np.float64], num_batches: int) -> Any:
    """Weighted sums over the kept neighbours of each seed, in each batch (batches, seeds)."""
    rows = []
    for number in range(num_batches):
        batch = sample(sampler, seeds, number)
        assert batch.edge_weights is not None
        ends = batch.indptr[: len(seeds) + 1]
        targets = np.repeat(np.arange(len(seeds)), np.diff(ends))
        kept = slice(0, ends[-1])
        terms = batch.edge_weights[kept] * values[batch.node_ids[batch.sources[kept]]]
        rows.append(np.bincount(targets, terms, minlength=len(seeds)))
    return np.array(rows)


@pytest.mark.fast(2)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("kind", "count"), [(LADIES, 40), (LADIES, 200), (FASTGCN, 60), (FASTGCN, 250)])
def test_weighted_sums_of_ladies_and_fastgcn_are_unbiased(tmp_path: Path, kind: str, count: int, seed: int) -> None:
    """The mean of 3000 batches is within 4.5 standard errors of the sum over all neighbours, for each seed."""
    graph = random_graph(300, 4000, seed=seed)
    rng = np.random.default_rng(seed)
    values, seeds = rng.normal(2, 1, 300), rng.permutation(300)[:60]
    with open_place(write_graph(tmp_path, Graph(indptr=graph.indptr, indices=graph.indices)), "memory") as topology:
        estimates = estimates_of(open_sampler(topology, importance_spec(kind, (count,)), 3), seeds, values, 3000)
    wanted = np.array([values[graph.indices[graph.indptr[node] : graph.indptr[node + 1]]].sum() for node in seeds])
    errors = np.abs(estimates.mean(0) - wanted)
    bounds = SIGMAS * estimates.std(0) / np.sqrt(len(estimates)) + 1e-5 * np.abs(wanted)
    assert (errors <= bounds).all()
    # The draws do vary, so that the bound is not an empty one.
    assert np.max(estimates.std(0)[wanted > 0] / wanted[wanted > 0]) > 0.1


@pytest.mark.fast(1)
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize(("kind", "count"), [(LADIES, 60), (FASTGCN, 100)])
def test_gcn_by_degrees_of_the_graph_is_unbiased(tmp_path: Path, kind: str, count: int, is_weighted: bool) -> None:
    """The mean of 1000 batches, with a node's own row in each, is the layer's value with all neighbours."""
    graph, seeds = random_graph(300, 4000, seed=2), np.random.default_rng(2).permutation(300)[:40]
    degrees, rng = np.diff(graph.indptr), np.random.default_rng(3)
    rows, weights = torch.from_numpy(rng.normal(1, 1, (300, 2)).astype(np.float32)), rng.uniform(0.5, 2, 4000)
    strengths = np.bincount(np.repeat(np.arange(300), degrees), weights, minlength=300)

    def forward(sampler: Sampler, number: int) -> NDArray[np.float32]:
        batch = sample(sampler, seeds, number)
        of_edges = weights[batch.edge_positions].astype(np.float32)
        given = BlockWeights(
            torch.from_numpy(of_edges), torch.from_numpy(strengths[batch.node_ids]), torch.ones(batch.num_nodes)
        )
        block = Block.of(batch, torch.from_numpy(degrees[batch.node_ids]), weights=given if is_weighted else None)
        layer = block.layer(0)
        return weighted_sum(rows[batch.node_ids], layer, *gcn_weights(layer)).numpy()

    with open_place(write_graph(tmp_path, Graph(indptr=graph.indptr, indices=graph.indices)), "memory") as topology:
        wanted = forward(open_sampler(topology, neighbor_spec((-1,)), 3), 0)
        sampler = open_sampler(topology, importance_spec(kind, (count,)), 3)
        sums = np.array([forward(sampler, number) for number in range(1000)], np.float64)
    errors = np.abs(sums.mean(0) - wanted)
    assert (errors <= SIGMAS * sums.std(0) / np.sqrt(len(sums)) + 1e-5).all()
    assert np.median(sums.std(0)) > 0.05


def test_ladies_takes_its_count_of_nodes_and_fastgcn_does_in_the_mean(tmp_path: Path) -> None:
    graph = random_graph(500, 10_000, seed=2)
    seeds = np.arange(500)
    with open_place(write_graph(tmp_path, Graph(indptr=graph.indptr, indices=graph.indices)), "memory") as topology:
        sampler = open_sampler(topology, importance_spec(LADIES, (90,)), 1)
        assert {len(np.unique(sample(sampler, seeds, number).sources)) for number in range(20)} == {90}
        sampler = open_sampler(topology, importance_spec(FASTGCN, (90,)), 1)
        # Every node is somebody's neighbour here, so that those of the batch are those that were drawn.
        assert len(np.unique(graph.indices)) == 500
        drawn = [len(np.unique(sample(sampler, seeds, number).sources)) for number in range(300)]
    assert abs(np.mean(drawn) - 90) < SIGMAS * np.sqrt(90 / 300)


@pytest.mark.parametrize("kind", IMPORTANCE)
def test_consecutive_batches_share_all_but_one_of_k_draws(tmp_path: Path, kind: str) -> None:
    graph = random_graph(2000, 60_000, seed=5)
    seeds = np.arange(0, 2000, 4)

    def kept(sampler: Sampler, number: int) -> set[int]:
        return set(sample(sampler, seeds, number).edge_positions.tolist())

    shared: dict[tuple[int, int], float] = {}
    fanout = 5 if kind == LABOR else 400
    with open_place(write_graph(tmp_path, Graph(indptr=graph.indptr, indices=graph.indices)), "memory") as topology:
        for dependency in (1, 10):
            sampler = open_sampler(topology, importance_spec(kind, (fanout,), batch_dependency=dependency), 1)
            batches = [kept(sampler, number) for number in range(24)]
            for apart in (1, 10):
                ratios = [len(one & other) / len(one) for one, other in zip(batches, batches[apart:], strict=False)]
                shared[dependency, apart] = float(np.mean(ratios))
    independent = shared[1, 1]
    assert abs(shared[10, 10] - independent) < 0.05
    # A draw that is replaced keeps an edge by chance as often as independent ones do.
    assert abs(shared[10, 1] - (0.9 + 0.1 * independent)) < 0.04


BAD: list[tuple[str, tuple[int, ...], tuple[tuple[str, Any], ...], str]] = [
    (LABOR, (), (), "fan-outs must be one or more"),
    (LADIES, (0,), (), "fan-outs must be one or more"),
    (LABOR, (5,), (("batch_dependency", 0),), "batch_dependency must be a whole number of batches, at least 1, got 0"),
    (FASTGCN, (5,), (("batch_dependency", 1.5),), "batch_dependency must be a whole number"),
    (FASTGCN, (5,), (("batch_dependency", float("inf")),), "batch_dependency must be a whole number"),
    (LADIES, (5,), (("batch_dependency", "many"),), "batch_dependency must be a whole number"),
    (LABOR, (5,), (("importance", 2),), "importance must be 0"),
    (LADIES, (5,), (("importance", 1),), "the sampler 'ladies' has no parameter 'importance', only batch_dependency"),
    (LABOR, (5,), (("importance", 1), ("importance", 1)), "with 'importance' once"),
]


@pytest.mark.parametrize(("kind", "fanouts", "parameters", "error"), BAD, ids=str)
def test_settings_that_cannot_be_served_are_refused_in_one_line(
    tmp_path: Path, kind: str, fanouts: tuple[int, ...], parameters: tuple[tuple[str, Any], ...], error: str
) -> None:
    files = write_graph(tmp_path, random_graph(10, 20))
    with open_place(files, "memory") as topology, pytest.raises(ConfigError, match=error) as raised:
        open_sampler(topology, SamplerSpec(kind, fanouts, parameters), 1)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", IMPORTANCE)
def test_seeds_are_checked_and_may_be_none(tmp_path: Path, kind: str) -> None:
    files = write_graph(tmp_path, random_graph(10, 60))
    with open_place(files, "memory") as topology:
        sampler = open_sampler(topology, importance_spec(kind, (4, 4)), 1)
        assert sample(sampler, []).num_nodes == 0
        for seeds in ([10], [-1], [3, 3]):
            with pytest.raises(ConfigError, match="batch 7 cannot be sampled: seed"):
                sample(sampler, seeds)

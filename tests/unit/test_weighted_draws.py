"""Claims about how often edges are drawn, by chi-square tests. Draws are keyed: each run has the same result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from diskhop.protocols import Purpose, SampledBatch
from diskhop.sampling.neighbor_ways import NeighborWays
from diskhop.sampling.samplers import open_sampler
from tests.columns import open_place, write_graph
from tests.unit.ways_oracle import Graph

WEIGHTS = [1.0, 2.0, 0.0, 3.0, 4.0]
DRAWN = [place for place, weight in enumerate(WEIGHTS) if weight > 0]
TOTAL = sum(WEIGHTS)
NUM_LISTS = 30_000
# With 20 tests, one below this happens in one of 500 choices of keys.
LEAST_PROBABILITY = 1e-4


def equal_lists(num_lists: int = NUM_LISTS) -> Graph:
    """Every node has the nodes 0 to 4 as neighbours, with WEIGHTS and the times 0 to 4."""
    length = len(WEIGHTS)
    return Graph(
        indptr=np.arange(num_lists + 1, dtype=np.int64) * length,
        indices=np.tile(np.arange(length, dtype=np.uint32), num_lists),
        weights=np.tile(np.array(WEIGHTS, np.float32), num_lists),
        edge_times=np.tile(np.arange(length), num_lists),
    )


def draw(folder: Path, ways: NeighborWays, fanout: int, latest: int | None = None) -> NDArray[np.int64]:
    """The drawn places of each list, (lists, fanout)."""
    with open_place(write_graph(folder, equal_lists()), "memory") as topology:
        times = None if latest is None else np.full(NUM_LISTS, latest)
        batch = open_sampler(topology, ways.spec([fanout]), 3).sample(
            np.arange(NUM_LISTS), purpose=Purpose.TRAIN, epoch=0, number=0, times=times
        )
    return (batch.edge_positions % len(WEIGHTS)).reshape(NUM_LISTS, fanout)


def check(observed: Iterable[tuple[int, ...]], expected: Mapping[Any, float]) -> None:
    """Compare the counts of outcomes with their probabilities."""
    counts = Counter(observed)
    assert counts.keys() <= expected.keys(), "only what has a probability is drawn"
    assert abs(sum(expected.values()) - 1) < 1e-12
    num_draws = sum(counts.values())
    found = scipy.stats.chisquare(
        [counts[outcome] for outcome in expected], [num_draws * probability for probability in expected.values()]
    )
    assert found.pvalue > LEAST_PROBABILITY


def as_tuples(draws: NDArray[np.int64]) -> list[tuple[int, ...]]:
    return [tuple(each) for each in draws.tolist()]


def test_draws_by_weights_are_those_of_one_after_another(tmp_path: Path) -> None:
    expected = {}
    for first, second, third in permutations(DRAWN, 3):
        left = TOTAL - WEIGHTS[first]
        probability = WEIGHTS[first] / TOTAL * WEIGHTS[second] / left
        expected[first, second, third] = probability * WEIGHTS[third] / (left - WEIGHTS[second])
    check(as_tuples(draw(tmp_path, NeighborWays(weights="weights"), 3)), expected)


def test_draws_by_weights_with_replacement_are_independent(tmp_path: Path) -> None:
    pairs = {(one, other): WEIGHTS[one] * WEIGHTS[other] / TOTAL**2 for one, other in product(DRAWN, DRAWN)}
    check(as_tuples(draw(tmp_path, NeighborWays(weights="weights", replace=True), 2)), pairs)


def test_uniform_draws_with_replacement_are_independent(tmp_path: Path) -> None:
    pairs = dict.fromkeys(product(range(5), range(5)), 1 / 25)
    check(as_tuples(draw(tmp_path, NeighborWays(replace=True), 2)), pairs)


def test_draws_among_earlier_edges_are_uniform_or_by_weights(tmp_path: Path) -> None:
    check(as_tuples(draw(tmp_path, NeighborWays(times="times"), 1, latest=2)), {(place,): 1 / 3 for place in range(3)})
    ways = NeighborWays(times="times", weights="weights")
    check(as_tuples(draw(tmp_path, ways, 1, latest=3)), {(0,): 1 / 6, (1,): 2 / 6, (3,): 3 / 6})


def test_subgraphs_of_one_node_are_drawn_independently(tmp_path: Path) -> None:
    graph = equal_lists(5)
    pairs = []
    with open_place(write_graph(tmp_path, graph), "memory") as topology:
        sampler = open_sampler(topology, NeighborWays(disjoint=True).spec([1]), 3)
        for number in range(5000):
            batch = sampler.sample(np.array([2, 2]), purpose=Purpose.TRAIN, epoch=0, number=number)
            pairs.append(tuple((batch.edge_positions % 5).tolist()))
    check(pairs, dict.fromkeys(product(range(5), range(5)), 1 / 25))


def test_extreme_weights_are_drawn_as_they_should(tmp_path: Path) -> None:
    """Floats as small and large as there are, and a list in which one edge has nearly all the weight."""
    tiny, huge = float(np.finfo(np.float32).smallest_subnormal), float(np.finfo(np.float32).max)

    def sample(weights: list[float], ways: NeighborWays, fanout: int) -> SampledBatch:
        graph = Graph(
            indptr=np.array([0, *[len(weights)] * len(weights)], np.int64),
            indices=np.arange(len(weights), dtype=np.uint32),
            weights=np.array(weights, np.float32),
        )
        with open_place(write_graph(tmp_path, graph), "memory") as topology:
            sampler = open_sampler(topology, ways.spec([fanout]), 3)
            return sampler.sample(np.array([0]), purpose=Purpose.TRAIN, epoch=0, number=0)

    by_weights, again = NeighborWays(weights="weights"), NeighborWays(weights="weights", replace=True)
    assert sample([tiny, huge, tiny, 0], by_weights, 1).edge_positions.tolist() == [1]
    assert sorted(sample([tiny, huge, tiny, 0], by_weights, 3).edge_positions.tolist()) == [0, 1, 2]
    assert set(sample([tiny, huge, tiny, 0], again, 500).edge_positions.tolist()) == {1}
    assert set(sample([0, tiny, 0, tiny, 0], again, 500).edge_positions.tolist()) == {1, 3}
    assert set(sample([huge] * 4, again, 500).edge_positions.tolist()) == {0, 1, 2, 3}
    for ways in (by_weights, again):
        for fanout in (1, 10, -1):
            assert sample([0, 0, 0], ways, fanout).edge_positions.tolist() == [], "nothing can be drawn"

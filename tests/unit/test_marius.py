"""MariusGNN: COMET's order of states, every training node once an epoch, and neighbours among resident nodes alone."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from diskhop.errors import ConfigError
from diskhop.policies.comet import comet_states
from diskhop.protocols import NodeRows, Purpose, SampledBatch, SamplerSpec
from diskhop.sampling.marius import marius_spec, marius_starts, nodes_per_partition, states_of
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.starts import EpochKey, Starts
from diskhop.sampling.topology import Topology

NUM_NODES, NUM_PARTITIONS = 400, 8
SIZE = nodes_per_partition(NUM_NODES, NUM_PARTITIONS)


def random_topology() -> Topology:
    rng = np.random.default_rng(0)
    degrees = rng.integers(0, 40, NUM_NODES)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    return Topology(Path("indices.bin"), indptr, rng.integers(0, NUM_NODES, indptr[-1]).astype(np.uint32))


TOPOLOGY = random_topology()
TRAIN = NodeRows(np.flatnonzero(np.random.default_rng(1).random(NUM_NODES) < 0.4))


def starts_of(spec: SamplerSpec, epoch: int = 0, seed: int = 3) -> Starts:
    return marius_starts(
        spec,
        EpochKey(num_nodes=NUM_NODES, seeds=TRAIN, batch_size=20, seed=seed, purpose=Purpose.TRAIN, epoch=epoch),
    )


@pytest.mark.parametrize(("num_partitions", "num_resident"), [(8, 2), (8, 4), (8, 8), (12, 6), (16, 4), (5, 2), (1, 1)])
def test_states_are_one_swap_apart_and_bring_all_pairs_together(num_partitions: int, num_resident: int) -> None:
    order = np.random.default_rng(0).permutation(num_partitions).tolist()
    states = comet_states(num_partitions, num_resident, order)
    assert all(len(state) == num_resident for state in states)
    met = {pair for state in states for pair in combinations(state, 2)}
    assert met == set(combinations(range(num_partitions), 2))
    if num_resident == num_partitions:
        assert len(states) == 1
        return
    size = num_resident // 2
    assert all(len(set(after) - set(before)) == size for before, after in pairwise(states))
    # A swap brings one new pair of logical partitions together at most: fewer states cannot have all.
    num_logical = num_partitions // size
    assert len(states) == num_logical * (num_logical - 1) // 2
    times_resident = np.bincount(np.concatenate(states))
    assert set(times_resident) == {num_logical - 1}


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((63, 2), "node partitions must be from 1 to 62, got 63; use --node-partitions 16"),
        ((0, 2), "node partitions must be from 1 to 62, got 0"),
        ((16, 3), "resident partitions must be twice a divisor of the 16 node partitions, got 3"),
        ((16, 6), "must be twice a divisor"),
        ((16, 1), "must be twice a divisor"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(numbers: tuple[int, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_sampler(TOPOLOGY, marius_spec((3,), *numbers), 0)


def test_bad_specs_are_refused() -> None:
    for spec in (SamplerSpec("marius", (3,)), SamplerSpec("marius", (3,), (("partitions", 4), ("resident", "two")))):
        with pytest.raises(ConfigError, match="parameters must be numbers of partitions and resident"):
            open_sampler(TOPOLOGY, spec, 0)


@pytest.mark.parametrize("num_resident", [2, 4, 8])
def test_every_training_node_is_a_seed_once_while_it_is_resident(num_resident: int) -> None:
    spec = marius_spec((3,), NUM_PARTITIONS, num_resident)
    starts = starts_of(spec)
    assert np.array_equal(np.sort(starts.seeds), TRAIN)
    assert starts.times is not None
    assert starts.row_starts is not None
    assert (starts.times >> (starts.seeds // SIZE) & 1).all()
    assert starts.row_starts[0] == 0
    assert starts.row_starts[-1] == len(TRAIN)
    assert 0 < np.diff(starts.row_starts).min() <= np.diff(starts.row_starts).max() <= 20
    states = [sum(1 << each for each in state) for state in states_of(spec, 3, 0)]
    seen = [int(starts.times[first]) for first in starts.row_starts[:-1]]
    for first, end in pairwise(starts.row_starts):
        assert len(set(starts.times[first:end])) == 1, "a batch is of one state"
    assert sorted(seen, key=states.index) == seen, "states come in COMET's order"
    assert np.array_equal(starts.seeds, starts_of(spec).seeds)
    assert not np.array_equal(starts.seeds, starts_of(spec, epoch=1).seeds)
    if num_resident < NUM_PARTITIONS:
        assert states_of(spec, 3, 0) != states_of(spec, 3, 1)


def sample_all(spec: SamplerSpec, starts: Starts) -> list[tuple[int, SampledBatch]]:
    sampler = open_sampler(TOPOLOGY, spec, 3)
    assert starts.times is not None
    assert starts.row_starts is not None
    batches = []
    for number, (first, end) in enumerate(pairwise(starts.row_starts)):
        times = starts.times[first:end]
        seeds = starts.seeds[first:end]
        batch = sampler.sample(seeds, purpose=Purpose.TRAIN, epoch=0, number=number, times=times)
        batches.append((int(times[0]), batch))
    return batches


def resident_neighbors(node: int, mask: int) -> NDArray[np.int64]:
    """Positions of the edges from resident nodes."""
    positions = np.arange(TOPOLOGY.indptr[node], TOPOLOGY.indptr[node + 1])
    found: NDArray[np.int64] = positions[mask >> (TOPOLOGY.indices[positions] // SIZE) & 1 == 1]
    return found


@pytest.mark.parametrize("fanouts", [(3, 2), (-1,), (5, -1)])
def test_neighbours_are_resident(fanouts: tuple[int, ...]) -> None:
    spec = marius_spec(fanouts, NUM_PARTITIONS, 4)
    for mask, batch in sample_all(spec, starts_of(spec)):
        assert (mask >> (batch.node_ids // SIZE) & 1 == 1).all()
        np.testing.assert_array_equal(TOPOLOGY.indices[batch.edge_positions], batch.node_ids[batch.sources])
        hop = np.repeat(np.arange(len(fanouts)), batch.num_sampled_nodes[:-1])
        for place in range(len(batch.indptr) - 1):
            drawn = batch.edge_positions[batch.indptr[place] : batch.indptr[place + 1]]
            candidates = resident_neighbors(int(batch.node_ids[place]), mask)
            assert np.isin(drawn, candidates).all()
            assert len(np.unique(drawn)) == len(drawn)
            fanout = fanouts[hop[place]]
            assert len(drawn) == len(candidates) if fanout < 0 else len(drawn) == min(fanout, len(candidates))


def test_draws_among_resident_neighbours_are_uniform() -> None:
    spec = marius_spec((2,), NUM_PARTITIONS, 4)
    mask = 0b1111
    node = int(np.argmax([len(resident_neighbors(each, mask)) for each in range(4 * SIZE)]))
    candidates = resident_neighbors(node, mask)
    sampler = open_sampler(TOPOLOGY, spec, 0)
    counts = np.zeros(TOPOLOGY.num_edges)
    seeds, times = np.array([node]), np.array([mask])
    for number in range(4000):
        batch = sampler.sample(seeds, purpose=Purpose.TRAIN, epoch=0, number=number, times=times)
        counts[batch.edge_positions] += 1
    expected = 8000 / len(candidates)
    assert np.abs(counts[candidates] - expected).max() < 5 * np.sqrt(expected)


def test_all_resident_is_neighbour_sampling() -> None:
    spec = marius_spec((-1, -1), NUM_PARTITIONS, NUM_PARTITIONS)
    plain = open_sampler(TOPOLOGY, SamplerSpec("neighbor", (-1, -1)), 3)
    for _, batch in sample_all(spec, starts_of(spec)):
        seeds = batch.node_ids[: batch.num_seeds]
        expected = plain.sample(seeds, purpose=Purpose.TRAIN, epoch=0, number=batch.number)
        np.testing.assert_array_equal(batch.node_ids, expected.node_ids)
        np.testing.assert_array_equal(batch.edge_positions, expected.edge_positions)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (None, "the seeds have no resident partitions"),
        (np.array([1, 3]), "different resident partitions"),
        (np.array([2, 2]), "seed 0 is in no resident partition"),
    ],
)
def test_seeds_that_are_not_resident_are_refused(times: NDArray[np.int64] | None, message: str) -> None:
    sampler = open_sampler(TOPOLOGY, marius_spec((2,), NUM_PARTITIONS, 4), 0)
    with pytest.raises(ConfigError, match=message):
        sampler.sample(np.array([0, 1]), purpose=Purpose.TRAIN, epoch=0, number=0, times=times)

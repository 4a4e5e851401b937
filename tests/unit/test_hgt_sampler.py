"""Claims about sampling by budget: what is chosen, and that nothing but the key decides it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.errors import ConfigError
from diskhop.protocols import Purpose, SampledBatch, SamplerSpec
from diskhop.sampling.hgt import hgt_spec
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.topology import Topology
from tests.examples import examples
from tests.typed import typed_lists
from tests.unit import budget_oracle
from tests.unit.sampling_oracle import assert_same_batch
from tests.unit.ways_oracle import Graph

_KEY = (3, Purpose.VALID, 1, 2)


def sample(topology: Topology, spec: SamplerSpec, seeds: list[int], number: int = 2) -> SampledBatch:
    seed, purpose, epoch, _ = _KEY
    sampler = open_sampler(topology, spec, seed)
    return sampler.sample(np.array(seeds, np.int64), purpose=purpose, epoch=epoch, number=number)


@examples(60)
@given(data=st.data(), case=typed_lists())
def test_batches_are_those_of_the_definition(data, case) -> None:  # type: ignore[no-untyped-def]
    types, indptr, indices = case
    num_hops = data.draw(st.integers(1, 3))
    counts = st.lists(st.sampled_from([-1, 0, 1, 2, 5]), min_size=num_hops, max_size=num_hops)
    by_type = {name: data.draw(counts) for name in types.node_types}
    seeds = (
        data.draw(st.lists(st.integers(0, types.total_nodes - 1), unique=True, max_size=4)) if types.total_nodes else []
    )
    is_typed = not types.is_single
    topology = Topology(Path("x"), indptr, indices.astype(np.uint32), types=types)
    actual = sample(topology, hgt_spec([1] * num_hops, by_type), seeds)
    graph = Graph(indptr, indices, types=types if is_typed else None)
    expected = budget_oracle.sample(graph, seeds, [list(hop) for hop in zip(*by_type.values(), strict=True)], _KEY)
    assert_same_batch(actual, expected)


def test_nodes_are_drawn_in_proportion_to_squared_budgets() -> None:
    """Node 0 has three lists of one edge to node 1, and one to node 2: budgets 3/4 and 1/4, squares 9 to 1."""
    indptr = np.array([0, 4, 4, 4], np.int64)
    topology = Topology(Path("x"), indptr, np.array([1, 1, 1, 2], np.uint32))
    drawn = [sample(topology, hgt_spec((1,)), [0], number).node_ids[1] for number in range(4000)]
    assert np.mean(np.array(drawn) == 1) == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (SamplerSpec("hgt", ()), "fan-outs must be one or more counts"),
        (SamplerSpec("hgt", (3,), (("nodes", "node=1,2"),)), "'node' has 2 counts, and the sampler 1 hops"),
        (SamplerSpec("hgt", (3,), (("nodes", "paper=1"),)), "'paper', which the graph does not have, only node"),
        (SamplerSpec("hgt", (3,), (("width", 1),)), "no parameter 'width', only nodes; leave it out"),
    ],
    ids=str,
)
def test_bad_counts_are_refused(spec: SamplerSpec, message: str) -> None:
    topology = Topology(Path("x"), np.array([0, 0], np.int64), np.empty(0, np.uint32))
    with pytest.raises(ConfigError, match=message):
        open_sampler(topology, spec, 0)

"""Edges that a batch is scored on carry no messages: they are left out as if one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from diskhop._native import BufferPool
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.io.engine import open_engine
from diskhop.protocols import Purpose, SampledBatch, SamplerSpec
from diskhop.sampling.importance import importance_spec
from diskhop.sampling.message_edges import leave_out
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.topology import open_topology
from tests.runs import small_graph

SPECS = (
    SamplerSpec("neighbor", (5, 4)),
    SamplerSpec("neighbor", (-1, -1)),
    SamplerSpec("neighbor", (5, 4), (("subgraph", "induced"),)),
    SamplerSpec("neighbor", (5, 4), (("subgraph", "bidirectional"),)),
    importance_spec("labor", (5, 4)),
    importance_spec("ladies", (60, 60)),
    importance_spec("fastgcn", (70, 70)),
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm", num_nodes=80, num_edges=600)


def edges_by_hop(batch: SampledBatch) -> list[list[tuple[int, int]]]:
    """Edges of each hop, as source and destination in the batch."""
    targets = np.repeat(np.arange(len(batch.indptr) - 1), np.diff(batch.indptr))
    edges = list(zip(batch.sources.tolist(), targets.tolist(), strict=True))
    ends = np.cumsum([0, *batch.num_sampled_edges])
    assert ends[-1] == len(edges)
    return [edges[start:stop] for start, stop in pairwise(ends)]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_pairs_of_seeds_are_left_out_in_both_directions(dataset: Dataset, spec: SamplerSpec) -> None:
    engine = open_engine("threads", 1).engine
    rng = np.random.default_rng(0)
    seeds = np.sort(rng.choice(80, 24, replace=False))
    with open_topology(dataset.topology, "memory", engine, Budget(10**8)) as topology:
        sampler = open_sampler(topology, spec, 1, BufferPool(0))
        batch = sampler.sample(seeds, purpose=Purpose.TRAIN, epoch=0, number=0)
    sources, destinations = rng.integers(0, 24, (2, 60))
    kept, is_kept = leave_out(batch, sources, destinations)
    pairs = set(zip(sources.tolist(), destinations.tolist(), strict=True))
    pairs |= {(v, u) for u, v in pairs}
    wanted = [[edge for edge in hop if edge not in pairs] for hop in edges_by_hop(batch)]
    assert edges_by_hop(kept) == wanted
    assert wanted != edges_by_hop(batch)
    np.testing.assert_array_equal(kept.edge_positions, batch.edge_positions[is_kept])
    assert kept.num_sampled_nodes == batch.num_sampled_nodes
    assert kept.node_ids is batch.node_ids


def test_a_batch_without_such_edges_is_not_copied(dataset: Dataset) -> None:
    engine = open_engine("threads", 1).engine
    with open_topology(dataset.topology, "memory", engine, Budget(10**8)) as topology:
        sampler = open_sampler(topology, SPECS[0], 1, BufferPool(0))
        batch = sampler.sample(np.array([3]), purpose=Purpose.TRAIN, epoch=0, number=0)
    none = np.empty(0, np.int64)
    assert leave_out(batch, none, none)[0] is batch

"""GraphSAINT: what is drawn, the edges of batches, and norms that make expected sums those of the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.errors import BudgetError, ConfigError, FormatError
from diskhop.nn.layers.aggregate import Block, mean_and_self
from diskhop.nn.layers.gcn import gcn_weights
from diskhop.protocols import Purpose, SampledBatch, SamplerSpec
from diskhop.sampling.keyed import draw_below, key_of
from diskhop.sampling.norms import NormsSpec, make_norms, open_norms
from diskhop.sampling.saint import saint_spec
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.topology import Topology
from tests.unit.sampling_oracle import absorb, mix64

SPECS = [saint_spec("saint-node", 40), saint_spec("saint-edge", 25), saint_spec("saint-walk", 15, 2)]
each_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
NUM_NODES = 120


def random_topology(seed: int = 0, num_nodes: int = NUM_NODES, num_edges: int = 700) -> Topology:
    """A graph with opposite edges, hubs, self-loops and nodes without edges; no edge is there twice."""
    rng = np.random.default_rng(seed)
    ends = (rng.random((2, num_edges)) ** 2 * (num_nodes - 5)).astype(np.int64)
    keys = np.unique(np.concatenate([ends[0] * num_nodes + ends[1], ends[1] * num_nodes + ends[0]]))
    targets, sources = np.divmod(keys, num_nodes)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=num_nodes))]).astype(np.int64)
    return Topology(Path("indices.bin"), indptr, sources.astype(np.uint32))


TOPOLOGY = random_topology()
DEGREES = np.diff(TOPOLOGY.indptr)


def batches_of(spec: SamplerSpec, count: int, topology: Topology = TOPOLOGY, seed: int = 3) -> list[SampledBatch]:
    sampler = open_sampler(topology, spec, seed)
    none = np.empty(0, np.int64)
    return [sampler.sample(none, purpose=Purpose.TRAIN, epoch=0, number=number) for number in range(count)]


def share_of_batches(batches: list[SampledBatch]) -> NDArray[np.float64]:
    counts = np.zeros(NUM_NODES)
    for batch in batches:
        counts[batch.node_ids] += 1
    return counts / len(batches)


def test_draws_are_those_of_the_core() -> None:
    key = key_of((7, 1, 2, 3))
    assert key == absorb(7, 1, 2, 3)
    golden = 0x9E3779B97F4A7C15
    words = [mix64((key + number * golden) % 2**64) for number in range(1, 6)]
    assert draw_below(1000, 5, key).tolist() == [int((word >> 11) / 2**53 * 1000) for word in words]
    assert np.bincount(draw_below(4, 40_000, key)) == pytest.approx(10_000, abs=400)


@each_spec
def test_edges_are_all_among_the_nodes(spec: SamplerSpec) -> None:
    matrix = scipy.sparse.csr_array(
        (np.arange(TOPOLOGY.num_edges) + 1, TOPOLOGY.indices.astype(np.int64), TOPOLOGY.indptr),
        shape=(NUM_NODES, NUM_NODES),
    )
    for batch in batches_of(spec, 20):
        nodes = batch.node_ids
        assert np.array_equal(nodes, np.unique(nodes))
        assert batch.num_seeds == batch.num_nodes == len(batch.indptr) - 1
        ours = scipy.sparse.csr_array((batch.edge_positions + 1, batch.sources, batch.indptr), shape=(len(nodes),) * 2)
        assert (ours - matrix[nodes][:, nodes]).nnz == 0


def test_nodes_are_drawn_in_proportion_to_their_degrees() -> None:
    shares = share_of_batches(batches_of(saint_spec("saint-node", 40), 4000))
    expected = 1 - (1 - DEGREES / DEGREES.sum()) ** 40
    assert np.abs(shares - expected).max() < 5 * np.sqrt(0.25 / 4000)


@pytest.mark.slow
def test_edges_are_drawn_by_the_degrees_of_their_ends() -> None:
    batches = batches_of(saint_spec("saint-edge", 1), 8_000)
    drawn = np.zeros((NUM_NODES, NUM_NODES))
    for batch in batches:
        assert batch.num_nodes <= 2
        drawn[batch.node_ids[0], batch.node_ids[-1]] += 1 / len(batches)
    has_edges = DEGREES > 0
    # Roots without edges are drawn again as long as there are others in the batch: here they stand alone.
    alone = np.flatnonzero(~has_edges)
    assert drawn[alone, alone].sum() == pytest.approx(len(alone) / NUM_NODES, abs=0.01)
    matrix = scipy.sparse.csr_array(
        (np.ones(TOPOLOGY.num_edges), TOPOLOGY.indices.astype(np.int64), TOPOLOGY.indptr), shape=drawn.shape
    ).toarray()
    inverse = 1 / np.maximum(DEGREES, 1)
    wanted = matrix * (inverse[:, None] + inverse[None, :]) / NUM_NODES
    np.fill_diagonal(wanted, matrix.diagonal() * inverse / NUM_NODES)
    upper = np.triu(wanted)
    found = drawn.copy()
    found[alone, alone] = 0
    assert np.abs(found - upper).max() < 5 * np.sqrt(upper.max() / 8_000)


def test_a_walk_follows_in_edges_and_stays_where_there_are_none() -> None:
    # Node i has the in-neighbour i - 1, node 0 has none.
    indptr = np.concatenate([[0, 0], np.arange(1, 10)]).astype(np.int64)
    line = Topology(Path("indices.bin"), indptr, np.arange(9, dtype=np.uint32))
    for batch in batches_of(saint_spec("saint-walk", 1, 3), 30, line):
        last = int(batch.node_ids[-1])
        assert batch.node_ids.tolist() == list(range(max(0, last - 3), last + 1))
    assert len({int(batch.node_ids[-1]) for batch in batches_of(saint_spec("saint-walk", 1, 3), 60, line)}) == 10


def norms_of(
    folder: Path, spec: SamplerSpec, coverage: int, memory_bytes: int = 10**9
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    of = NormsSpec(dataset_hash="0", sampler=spec, coverage=coverage)
    made = of.folder(folder)
    if not made.exists():
        sampler = open_sampler(TOPOLOGY, spec, 0)
        make_norms(of, made, TOPOLOGY, sampler, Budget(memory_bytes), threads=2, fewest_edges=100)
    norms = open_norms(made, of, NUM_NODES, TOPOLOGY.num_edges)
    return norms.node.map(), norms.edge.map()


@pytest.mark.slow
def test_norms_are_those_of_the_exact_probabilities(tmp_path: Path) -> None:
    draws = 40
    node, edge = norms_of(tmp_path, saint_spec("saint-node", draws), 3000)
    share = DEGREES / DEGREES.sum()
    of_nodes = 1 - (1 - share) ** draws
    targets = np.repeat(np.arange(NUM_NODES), DEGREES)
    sources = TOPOLOGY.indices.astype(np.int64)
    neither = np.where(sources == targets, 1 - share[targets], 1 - share[targets] - share[sources]) ** draws
    of_edges = 1 - (1 - share[targets]) ** draws - (1 - share[sources]) ** draws + neither
    seen = DEGREES > 0
    assert node[seen] * NUM_NODES == pytest.approx(1 / of_nodes[seen], rel=0.1)
    assert edge == pytest.approx(of_nodes[targets] / of_edges, rel=0.25)
    is_loop = sources == targets
    assert is_loop.any()
    assert edge[is_loop] == pytest.approx(1)
    assert node[~seen].min() > node[seen].max(), "what was never drawn counts as drawn once"


@pytest.mark.fast("saint-node")
@each_spec
def test_sums_with_norms_are_unbiased(tmp_path: Path, spec: SamplerSpec) -> None:
    """Within 3 % of the graph's sums, over 3000 batches that are not those of the norms."""
    node, edge = norms_of(tmp_path, spec, 1000)
    values = np.random.default_rng(1).random(NUM_NODES) + 0.5
    targets = np.repeat(np.arange(NUM_NODES), DEGREES)
    of_graph = np.bincount(targets, values[TOPOLOGY.indices], minlength=NUM_NODES)
    can_occur = np.zeros(NUM_NODES, np.bool_)
    sums, counts, means = np.zeros(NUM_NODES), np.zeros(NUM_NODES), []
    for batch in batches_of(spec, 3000):
        can_occur[batch.node_ids] = True
        means.append(float((node[batch.node_ids] * values[batch.node_ids]).sum()))
        local = np.repeat(np.arange(batch.num_nodes), np.diff(batch.indptr))
        weighted = values[batch.node_ids[batch.sources]] * edge[batch.edge_positions]
        sums[batch.node_ids] += np.bincount(local, weighted, minlength=batch.num_nodes)
        counts[batch.node_ids] += 1
    expected = values[can_occur].sum() / NUM_NODES
    assert np.mean(means) == pytest.approx(expected, rel=0.03)
    often = counts > 300
    assert often.sum() > 50
    ratio = sums[often].sum() / (of_graph[often] * counts[often]).sum()
    assert ratio == pytest.approx(1, rel=0.03)
    assert sums[often] / counts[often] == pytest.approx(of_graph[often], rel=0.2)


@each_spec
def test_norms_need_little_memory_and_are_the_same(tmp_path: Path, spec: SamplerSpec) -> None:
    wide = norms_of(tmp_path / "wide", spec, 20)
    # The blocks of 2^18 edges, the counters of nodes, and those of a third of the edges.
    tight_bytes = 40 * 2**18 + 12 * NUM_NODES + 4 * (TOPOLOGY.num_edges // 3)
    tight = norms_of(tmp_path / "tight", spec, 20, tight_bytes)
    for found, expected in zip(tight, wide, strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(BudgetError):
        norms_of(tmp_path / "none", spec, 20, 10_000)


def test_damaged_norms_are_refused(tmp_path: Path) -> None:
    spec = SPECS[0]
    norms_of(tmp_path, spec, 2)
    (folder,) = tmp_path.iterdir()
    (folder / "edge_norm.bin").write_bytes(b"")
    with pytest.raises(FormatError, match=r"edge_norm\.bin: is missing or not"):
        norms_of(tmp_path, spec, 2)


@pytest.mark.parametrize(
    "spec",
    [
        SamplerSpec("saint-node", (3,), (("draws", 4),)),
        SamplerSpec("saint-node", ()),
        SamplerSpec("saint-walk", (), (("draws", 4),)),
        saint_spec("saint-walk", 4, 0),
        SamplerSpec("saint-edge", (), (("draws", "many"),)),
    ],
)
def test_bad_specs_are_refused(spec: SamplerSpec) -> None:
    with pytest.raises(ConfigError):
        open_sampler(TOPOLOGY, spec, 0)


def test_layers_use_norms_of_edges() -> None:
    """All edges of every node, with importance 1, give sums by the graph's degrees."""
    (batch,) = batches_of(saint_spec("saint-walk", 2000, 1), 1)
    assert batch.num_nodes == NUM_NODES
    x = torch.rand(NUM_NODES, 8)
    degrees = torch.from_numpy(DEGREES)
    plain = Block.of(batch, degrees).layer(0)
    weighted = Block.of(batch, degrees, importance=torch.ones(len(batch.sources))).layer(0)
    torch.testing.assert_close(mean_and_self(x, weighted), mean_and_self(x, plain))
    for found, expected in zip(gcn_weights(weighted), gcn_weights(plain), strict=True):
        torch.testing.assert_close(found, expected)
    doubled = Block.of(batch, degrees, importance=torch.full((len(batch.sources),), 2.0)).layer(0)
    torch.testing.assert_close(mean_and_self(x, doubled)[:, :8], 2 * mean_and_self(x, plain)[:, :8])

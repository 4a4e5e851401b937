"""Clusters of nodes: each node in one, balanced, in little memory, with many edges within."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray

from diskhop._native import StreamClusters
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError, FormatError
from diskhop.protocols import Purpose
from diskhop.sampling.cluster_sampler import cluster_spec
from diskhop.sampling.clusters import PASSES, ClustersSpec, make_clusters, most_nodes, open_clusters
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.topology import open_topology
from tests.graphs import threads_engine
from tests.runs import import_arrays

NUM_NODES, NUM_BLOCKS = 800, 8


def block_pairs(seed: int = 0) -> NDArray[np.int64]:
    """Edges in both directions, nine of ten between nodes of the same block; blocks are not consecutive nodes."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, NUM_NODES, 4000)
    within = (targets + NUM_BLOCKS * rng.integers(1, NUM_NODES // NUM_BLOCKS, 4000)) % NUM_NODES
    sources = np.where(rng.random(4000) < 0.9, within, rng.integers(0, NUM_NODES, 4000))
    return np.concatenate([np.stack([sources, targets], 1), np.stack([targets, sources], 1)])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    labels = np.arange(NUM_NODES) % NUM_BLOCKS
    x = np.random.default_rng(1).random((NUM_NODES, 4), np.float32)
    return import_arrays(tmp_path_factory.mktemp("graphs"), edge_index=block_pairs().T, x=x, y=labels)


def clusters_of(dataset: Dataset, folder: Path, number: int, memory_bytes: int = 10**8) -> Dataset:
    spec = ClustersSpec(dataset_hash=dataset.hash, num_clusters=number)
    made = spec.folder(folder)
    if not made.exists():
        make_clusters(spec, made, dataset.topology, threads_engine(), Budget(memory_bytes))
    return dataset.with_clusters(open_clusters(made, spec, dataset.num_nodes))


@pytest.mark.parametrize("number", [1, 8, 50, NUM_NODES])
def test_each_node_is_in_one_cluster_of_bounded_size(dataset: Dataset, tmp_path: Path, number: int) -> None:
    files = clusters_of(dataset, tmp_path, number).topology.clusters
    assert files is not None
    nodes, starts = np.fromfile(files.nodes_path, "<i8"), np.fromfile(files.starts_path, "<i8")
    assert np.array_equal(np.sort(nodes), np.arange(NUM_NODES))
    assert len(starts) == number + 1
    assert np.diff(starts).max() <= most_nodes(NUM_NODES, number) <= -(-NUM_NODES // number) * 1.1 + 1


def test_most_edges_are_within_clusters(dataset: Dataset, tmp_path: Path) -> None:
    """The graph has blocks; a random assignment would cut 7 of 8 edges."""
    files = clusters_of(dataset, tmp_path, NUM_BLOCKS).topology.clusters
    assert files is not None
    nodes, starts = np.fromfile(files.nodes_path, "<i8"), np.fromfile(files.starts_path, "<i8")
    cluster_of = np.empty(NUM_NODES, np.int64)
    cluster_of[nodes] = np.repeat(np.arange(NUM_BLOCKS), np.diff(starts))
    indptr = np.fromfile(dataset.topology.indptr_path, np.int64)
    sources = np.fromfile(dataset.topology.indices_path, np.uint32)
    within = (cluster_of[sources] == np.repeat(cluster_of, np.diff(indptr))).mean()
    assert within > 0.6
    assert files.inner_share == pytest.approx(within, abs=0.05)


def oracle(indptr: NDArray[np.int64], sources: NDArray[np.int64], number: int, capacity: int, passes: int) -> list[int]:
    """Linear deterministic greedy partitioning in plain Python."""
    num_nodes = len(indptr) - 1
    cluster_of = [-1] * num_nodes
    for _ in range(passes):
        sizes = [0] * number
        for node in range(num_nodes):
            counts = [0] * number
            for source in sources[indptr[node] : indptr[node + 1]]:
                if source != node and cluster_of[source] >= 0:
                    counts[cluster_of[source]] += 1
            free = [each for each in range(number) if counts[each] and sizes[each] < capacity]
            scores = {each: counts[each] * (1 - sizes[each] / capacity) for each in free}
            chosen = min(free, key=lambda each: (-scores[each], sizes[each], each), default=-1)
            if chosen < 0:
                chosen = min(range(number), key=lambda each: (sizes[each], each))
            sizes[chosen] += 1
            cluster_of[node] = chosen
    return cluster_of


@pytest.mark.parametrize("chunk", [1, 7, 10_000])
def test_the_core_finds_what_plain_python_finds(dataset: Dataset, chunk: int) -> None:
    indptr = np.fromfile(dataset.topology.indptr_path, np.int64)
    sources = np.fromfile(dataset.topology.indices_path, np.uint32)
    clusters = StreamClusters(indptr, 10, 90)
    for _ in range(3):
        clusters.start_pass()
        for first in range(0, len(sources), chunk):
            clusters.feed(sources[first : first + chunk])
        clusters.end_pass()
    assert clusters.cluster_of().tolist() == oracle(indptr, sources.astype(np.int64), 10, 90, 3)


def test_the_core_refuses_damaged_lists() -> None:
    indptr = np.array([0, 1, 3], np.int64)
    clusters = StreamClusters(indptr, 1, 2)
    clusters.start_pass()
    with pytest.raises(IndexError, match="a source is 2"):
        clusters.feed(np.array([2], np.uint32))
    clusters.start_pass()
    clusters.feed(np.array([1], np.uint32))
    with pytest.raises(IndexError, match="are missing"):
        clusters.end_pass()
    with pytest.raises(IndexError, match="more sources than edges"):
        clusters.feed(np.array([0, 0, 0], np.uint32))
    with pytest.raises(ValueError, match="1 clusters of up to 1 nodes do not have 2"):
        StreamClusters(indptr, 1, 1)


def test_an_epoch_has_each_node_once_with_the_edges_among_a_batch(dataset: Dataset, tmp_path: Path) -> None:
    clustered = clusters_of(dataset, tmp_path, 50)
    indptr = np.fromfile(dataset.topology.indptr_path, np.int64)
    sources = np.fromfile(dataset.topology.indices_path, np.uint32).astype(np.int64)
    matrix = scipy.sparse.csr_array((np.arange(len(sources)) + 1, sources, indptr), shape=(NUM_NODES,) * 2)
    seen = []
    with open_topology(clustered.topology, "mapped", threads_engine(), Budget(1)) as topology:
        sampler = open_sampler(topology, cluster_spec(50), 0)
        for number, chosen in enumerate(np.array_split(np.random.default_rng(0).permutation(50), 9)):
            batch = sampler.sample(chosen, purpose=Purpose.TRAIN, epoch=0, number=number)
            seen.append(batch.node_ids)
            shape = (batch.num_nodes,) * 2
            ours = scipy.sparse.csr_array((batch.edge_positions + 1, batch.sources, batch.indptr), shape=shape)
            assert (ours != matrix[batch.node_ids][:, batch.node_ids]).nnz == 0
    assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(NUM_NODES))


def test_little_memory_is_enough_or_refused(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match="finding clusters"):
        clusters_of(dataset, tmp_path / "none", 8, 1_000_000)
    with pytest.raises(ConfigError, match="clusters must be from 1 to the 800 nodes, got 801"):
        clusters_of(dataset, tmp_path / "many", 801)
    with (
        open_topology(dataset.topology, "mapped", threads_engine(), Budget(1)) as topology,
        pytest.raises(ConfigError, match="without 8 clusters"),
    ):
        open_sampler(topology, cluster_spec(8), 0)


def test_damaged_clusters_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    clusters_of(dataset, tmp_path, 8)
    (folder,) = tmp_path.iterdir()
    (folder / "starts.bin").write_bytes(b"1234")
    with pytest.raises(FormatError, match=r"starts\.bin: is missing or not 72 bytes"):
        clusters_of(dataset, tmp_path, 8)
    assert PASSES > 1

"""Cluster-GCN: training and the loader give each cluster once an epoch, from any store, and are as accurate."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.loader.cluster import ClusterData as PygClusterData
from torch_geometric.utils import sort_edge_index

import diskhop
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.derived.clean import list_derived
from diskhop.errors import BudgetError, ConfigError, ReadError
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.nodes.packing import pack
from diskhop.runs.plan import plan_run
from diskhop.runs.start import train
from tests.integration.test_accuracy import import_shared, mean_test
from tests.runs import OPTIONS, assert_same_run, small_graph

SMALL: dict[str, Any] = {
    **{name: value for name, value in OPTIONS.items() if name not in ("fanout", "eval_fanout", "batch_size")},
    "layers": 2,
    "self_term": False,
    "sampler": "cluster",
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm")


def test_a_run_is_the_same_from_any_store(dataset: Dataset, tmp_path: Path) -> None:
    options: dict[str, Any] = {"clusters": 12, "batch_size": 3, "scratch": str(tmp_path / "scratch")}
    for store, threads in (("memory", 1), ("direct", 4), ("belady", 2), ("packed", 1)):
        out = tmp_path / store
        result = train(dataset, **{**SMALL, **options, "store": store, "threads": threads}, out=out).result
        steps = [step["step"] for step in result.get("preparation", [])]
        assert ("find clusters" in steps) == (store == "memory")
        assert_same_run(tmp_path / "memory", out)
        # Each node is in one batch of an epoch.
        assert [(epoch["batches"], epoch["rows_requested"]) for epoch in result["epochs"]] == [(4, 600)] * 4


def test_packed_ahead_and_planned(dataset: Dataset, tmp_path: Path) -> None:
    options: dict[str, Any] = {**SMALL, "clusters": 12, "batch_size": 3}
    scratch: dict[str, Any] = {"scratch": str(tmp_path / "scratch"), "disk_bytes": 10**9}
    pack(dataset, **options, **scratch)
    packed = train(dataset, **options, **scratch, store="packed", out=tmp_path / "packed").result
    assert packed["plan"]["layout"]
    train(dataset, **options, store="memory", out=tmp_path / "memory")
    assert_same_run(tmp_path / "packed", tmp_path / "memory")
    ranking = plan_run(dataset, **{**options, "memory": "200MB"})
    assert {option.name for option in ranking.options} >= {"memory", "belady"}


@pytest.mark.fast("gcn")
@pytest.mark.parametrize("model", [pytest.param("sage", marks=pytest.mark.slow), "gcn", "gat"])
def test_it_learns(dataset: Dataset, tmp_path: Path, model: str) -> None:
    options: dict[str, Any] = {"model": model, "epochs": 60, "lr": 0.01, "scratch": str(tmp_path), "clusters": 12}
    assert train(dataset, **{**SMALL, **options, "batch_size": 4}, out=None).result["test"]["accuracy"] > 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clusters": 601}, "clusters must be from 1 to the 600 nodes, got 601"),
        ({"clusters": 0}, "clusters must be at least 1, got 0; remove --clusters, or use --clusters 2"),
        ({"sampler": "neighbor", "clusters": 3}, "--clusters 3 is for --sampler cluster, got neighbor: remove it"),
        ({"fanout": (4, 4)}, "--fanout is for samplers of neighbours"),
        ({"sample_coverage": 2}, "--sample-coverage 2 is for --sampler saint-node"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:20],
)
def test_options_without_effect_are_refused(dataset: Dataset, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train(dataset, **{**SMALL, **options}, out=None)


RNG = np.random.default_rng(0)
GRAPH = Data(
    x=torch.from_numpy(RNG.random((300, 6), np.float32)),
    y=torch.from_numpy(RNG.integers(0, 3, 300)),
    edge_index=torch.from_numpy(RNG.integers(0, 300, (2, 1500))),
    edge_attr=torch.from_numpy(RNG.random((1500, 2), np.float32)),
)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> diskhop.ClusterData:
    graph = diskhop.from_pyg(GRAPH, tmp_path_factory.mktemp("graphs") / "random")
    return diskhop.ClusterData(graph, num_parts=10, memory="200MB")


@pytest.mark.parametrize("store", ["memory", "direct"])
def test_the_loader_gives_each_node_once(clusters: diskhop.ClusterData, store: str) -> None:
    assert len(clusters) == 10
    with diskhop.ClusterLoader(clusters, batch_size=3, shuffle=True, memory="200MB", store=store) as loader:
        assert len(loader) == 4
        epochs = []
        for _ in range(2):
            batches = list(loader)
            epochs.append([batch.n_id.tolist() for batch in batches])
            assert sorted(torch.cat([batch.n_id for batch in batches]).tolist()) == list(range(300))
            for batch in batches:
                assert batch.num_nodes == len(batch.n_id)
                assert torch.equal(batch.x, GRAPH.x[batch.n_id])
                assert torch.equal(batch.n_id[batch.edge_index], GRAPH.edge_index[:, batch.e_id])
                assert torch.equal(batch.edge_attr, GRAPH.edge_attr[batch.e_id])
                assert batch.num_edges == GRAPH.subgraph(torch.sort(batch.n_id).values).num_edges
                assert "batch_size" not in batch
                assert torch.equal(batch.edge_index, sort_edge_index(batch.edge_index))
                by_target = batch.block.layer(0).edge_index()
                assert torch.equal(by_target, sort_edge_index(batch.edge_index, sort_by_row=False))
        assert epochs[0] != epochs[1]
        one = loader([4, 2])
        assert one.num_nodes == sum(loader([each]).num_nodes for each in (2, 4))


@pytest.mark.fast(3)
@pytest.mark.parametrize("order", ["input", "hot"])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("sparse_format", ["csr", "csc"])
def test_single_clusters_are_pygs_of_the_same_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sparse_format: str, keep: bool, order: Any
) -> None:
    # PyG leaves it to torch in which order the nodes of a cluster are.
    monkeypatch.setattr("torch_geometric.loader.cluster.index_sort", lambda values, max_value: values.sort(stable=True))
    graph = diskhop.from_pyg(GRAPH, tmp_path / "graph", order=order)
    clusters = diskhop.ClusterData(graph, 7, keep_inter_cluster_edges=keep, sparse_format=sparse_format, memory="200MB")
    ours = clusters.partition
    cluster_of = torch.empty(300, dtype=torch.int64)
    cluster_of[ours.node_perm] = torch.repeat_interleave(torch.arange(7), ours.partptr.diff())
    theirs = PygClusterData.__new__(PygClusterData)
    theirs.num_parts, theirs.sparse_format, theirs.keep_inter_cluster_edges = 7, sparse_format, keep
    theirs.partition = theirs._partition(GRAPH.edge_index, cluster_of)
    theirs.data = theirs._permute_data(GRAPH, theirs.partition)
    assert torch.equal(ours.partptr, theirs.partition.partptr)
    assert torch.equal(ours.edge_perm.sort().values, torch.arange(GRAPH.num_edges))
    if order == "input":
        # Of edges between the same nodes, torch may have either first.
        edges = GRAPH.edge_index
        assert torch.equal(edges[:, ours.edge_perm], edges[:, theirs.partition.edge_perm])
        for name in ("indptr", "index", "node_perm"):
            assert torch.equal(getattr(ours, name), getattr(theirs.partition, name)), name
    assert len(clusters) == len([*clusters]) == 7
    for number, (own, other) in enumerate(zip(clusters, theirs, strict=True)):
        nodes = slice(*ours.partptr[number : number + 2].tolist())
        assert torch.equal(own.n_id, ours.node_perm[nodes])
        assert torch.equal(own.x, GRAPH.x[own.n_id])
        assert torch.equal(own.edge_attr, GRAPH.edge_attr[own.e_id])
        ends = [*own.n_id[own.edge_index]] if not keep else _ends_in_the_graph(own, ours)
        assert torch.equal(torch.stack(ends), GRAPH.edge_index[:, own.e_id])
        assert len(own.e_id) == other.edge_index.shape[1]
        if order == "input":
            assert torch.equal(own.edge_index, other.edge_index)
    with pytest.raises(IndexError, match="cluster 7 is out of range; clusters are 0 to 6"):
        clusters[7]


def _ends_in_the_graph(own: Any, partition: Any) -> list[torch.Tensor]:
    """Sources and targets of edges of which the far end is a place in the partition."""
    near, far = (0, 1) if partition.sparse_format == "csr" else (1, 0)
    ends = [own.n_id[own.edge_index[near]], partition.node_perm[own.edge_index[far]]]
    return ends if near == 0 else ends[::-1]


def test_a_partition_reserves_its_memory(clusters: diskhop.ClusterData, tmp_path: Path) -> None:
    budget = Budget(200_000_000)
    given = diskhop.ClusterData(clusters.data, num_parts=10, memory=budget)
    assert given.partition is given.partition
    assert budget.table()["sorting edges by cluster"] == 80 * GRAPH.num_edges + 40 * 300
    assert budget.left_after({}) == 200_000_000 - (24 * GRAPH.num_edges + 16 * 300)
    given = diskhop.ClusterData(clusters.data, num_parts=10, memory=100_000)
    with pytest.raises(BudgetError, match="sorting edges by cluster 132 KB"):
        _ = given.partition


@pytest.mark.parametrize("sparse_format", ["csr", "csc"])
def test_values_that_a_script_adds_are_those_of_the_edges(clusters: diskhop.ClusterData, sparse_format: str) -> None:
    given = diskhop.ClusterData(clusters.data, num_parts=10, sparse_format=sparse_format)
    with diskhop.ClusterLoader(given, batch_size=3, memory="200MB", store="memory") as loader:
        numbers = torch.arange(GRAPH.num_edges)
        loader.data.edge_rank, loader.data.edge_attr, loader.data.age = numbers, 2 * numbers, numbers[:300]
        for batch in loader:
            assert torch.equal(batch.edge_rank, batch.e_id)
            assert torch.equal(batch.edge_attr, 2 * batch.e_id)
            assert torch.equal(batch.age, batch.n_id)
            assert torch.equal(batch.n_id[batch.edge_index], GRAPH.edge_index[:, batch.e_id])


def test_clean_keeps_clusters_in_use(clusters: diskhop.ClusterData, tmp_path: Path) -> None:
    def kept() -> list[str | None]:
        return [each.kept_because for each in list_derived(tmp_path)]

    found = diskhop.ClusterData(clusters.data, num_parts=7, save_dir=tmp_path, memory="200MB")
    assert kept() == ["in use"]
    copied = pickle.loads(pickle.dumps(found.data.clusters))
    del found
    assert kept() == ["in use"]
    del copied
    assert kept() == [None]


def test_a_run_keeps_its_clusters_from_clean(dataset: Dataset, tmp_path: Path) -> None:
    kept: list[str | None] = []

    class Watch(Callback):
        def batch_done(self, progress: BatchProgress) -> None:
            kept.extend(each.kept_because for each in list_derived(tmp_path) if each.what == "clusters")

    options = {**SMALL, "clusters": 12, "batch_size": 3, "scratch": str(tmp_path)}
    train(dataset, **options, out=None, callbacks=[Watch()])
    assert {*kept} == {"in use"}


def test_clusters_that_are_gone_are_one_line(dataset: Dataset, tmp_path: Path) -> None:
    clusters = diskhop.ClusterData(dataset, num_parts=7, save_dir=tmp_path, memory="200MB")
    assert clusters.data.clusters is not None
    clusters.data.clusters.starts_path.unlink()
    with pytest.raises(ReadError, match=r"starts.bin: cannot be read: .*; remove its folder, and it is made again"):
        diskhop.ClusterLoader(clusters, memory="200MB", store="memory")


def test_the_loader_refuses_what_it_cannot_do(clusters: diskhop.ClusterData) -> None:
    graph = clusters.data
    refused: list[tuple[dict[str, Any], str]] = [
        ({"num_parts": 301}, "num_parts must be from 1 to the 300 nodes, got 301; for example num_parts=2"),
        ({"num_parts": 4, "recursive": True}, "recursive must be False"),
        ({"num_parts": 4, "keep_inter_cluster_edges": 1}, "keep_inter_cluster_edges must be True or False"),
        ({"num_parts": 4, "sparse_format": "coo"}, "sparse_format"),
    ]
    for options, message in refused:
        with pytest.raises(ConfigError, match=message):
            diskhop.ClusterData(graph, **options)
    for arguments, message in (
        ({"sampler": "labor", "importance": 1}, "sampler='labor' is for loaders that sample neighbours"),
        ({"importance": 1}, "importance=1 is for loaders that sample neighbours"),
        ({"batch_dependency": 4}, "leave batch_dependency out"),
    ):
        with pytest.raises(ConfigError, match=message):
            diskhop.ClusterLoader(clusters, memory="200MB", **arguments)
    with pytest.raises(ConfigError, match="cluster_data must be a ClusterData"):
        diskhop.ClusterLoader(graph)  # type: ignore[arg-type]


CORA: dict[str, Any] = {"preset": "cora", "fanout": (-1, -1), "store": "memory"}


@pytest.mark.slow
def test_cora_one_seed(tmp_path: Path) -> None:
    options = {**CORA, "sampler": "cluster", "clusters": 30, "batch_size": 15, "epochs": 40, "eval_every": 4}
    assert mean_test(import_shared(tmp_path, "cora"), [{"seed": 0}], **options) >= 0.79


@pytest.mark.slow
def test_cora_is_within_two_points_of_neighbour_sampling(tmp_path: Path) -> None:
    dataset = import_shared(tmp_path, "cora")
    runs = [{"seed": seed} for seed in range(5)]
    neighbors = mean_test(dataset, runs, **CORA)
    found = mean_test(dataset, runs, **CORA, sampler="cluster", clusters=30, batch_size=15, epochs=200)
    assert found >= neighbors - 0.02

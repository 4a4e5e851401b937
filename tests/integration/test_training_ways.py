"""Training with replacement, by edge weights and on other subgraphs: the same run from any store, and it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.config.sampled import SampledConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.protocols import neighbor_spec
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.nodes.packing import pack
from diskhop.runs.nodes.samplers import draws_all, eval_sampler, train_sampler
from diskhop.runs.start import train
from diskhop.sampling.neighbor_ways import NeighborWays
from tests.runs import OPTIONS, assert_same_run, import_arrays, random_arrays, small_graph

WAYS: list[dict[str, Any]] = [
    {"replace": True},
    {"weighted": True},
    {"subgraph_type": "induced"},
    {"weighted": True, "replace": True, "subgraph_type": "bidirectional"},
]


def words(ways: dict[str, Any]) -> str:
    return "-".join(f"{name}={value}" for name, value in ways.items())


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Half of the edges join nodes of one class, and have nine tenths of the weight."""
    rng = np.random.default_rng(3)
    num_nodes, num_edges = 900, 9000
    labels = rng.integers(0, 3, num_nodes)
    sources, targets = rng.integers(0, num_nodes, (2, num_edges))
    same = rng.random(num_edges) < 0.5
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(4))
    counts = np.diff(starts)
    alike = order[starts[labels[targets]] + rng.integers(0, 1 << 30, num_edges) % counts[labels[targets]]]
    features = rng.normal(size=(num_nodes, 6)).astype(np.float32)
    features[np.arange(num_nodes), labels] += 0.7
    parts = rng.permutation(num_nodes)
    return import_arrays(
        tmp_path_factory.mktemp("graphs"),
        edge_index=np.stack([np.where(same, alike, sources), targets]),
        edge_weight=np.where(same, 9.0, 1.0).astype(np.float32),
        x=features,
        y=labels,
        train_idx=parts[:450],
        val_idx=parts[450:650],
        test_idx=parts[650:],
    )


def run(dataset: Dataset, out: Path, **options: Any) -> dict[str, Any]:
    return train(dataset, **{**OPTIONS, "model": "sage", **options}, out=out).result


@pytest.fixture(scope="module")
def plain_loss(dataset: Dataset, module_folder: Path) -> float:
    """The first epoch's, by neighbour sampling without options."""
    return float(run(dataset, module_folder / "plain", store="memory")["epochs"][0]["loss"])


@pytest.mark.fast(2)
@pytest.mark.parametrize("ways", WAYS, ids=words)
def test_a_run_is_the_same_from_any_store(
    dataset: Dataset, tmp_path: Path, ways: dict[str, Any], plain_loss: float
) -> None:
    results = [
        run(dataset, tmp_path / store, **ways, store=store, threads=threads)
        for store, threads in (("memory", 1), ("direct", 4), ("belady", 2), ("packed", 1))
    ]
    for store in ("direct", "belady", "packed"):
        assert_same_run(tmp_path / "memory", tmp_path / store)
    assert len({str(result["test"]) for result in results}) == 1
    assert ("columns" in results[0]["plan"]) == ("weighted" in ways)
    assert plain_loss != results[0]["epochs"][0]["loss"]


@pytest.mark.fast("sage")
@pytest.mark.parametrize("model", ["sage", pytest.param("gcn", marks=pytest.mark.slow), "gat"])
def test_weights_lead_to_neighbours_of_the_same_class(dataset: Dataset, tmp_path: Path, model: str) -> None:
    options = {"model": model, "epochs": 30, "fanout": (2, 2), "eval_fanout": (2, 2), "lr": 0.01}
    plain = run(dataset, tmp_path / "plain", **options)["test"]["accuracy"]
    weighted = run(dataset, tmp_path / "weighted", **options, weighted=True)["test"]["accuracy"]
    assert weighted > plain + 0.03


def test_batches_that_were_packed_ahead_are_those_of_the_same_way(dataset: Dataset, tmp_path: Path) -> None:
    options = {**OPTIONS, "scratch": str(tmp_path / "scratch"), "disk_bytes": 10**9}
    pack(dataset, **options, weighted=True)
    packed = run(dataset, tmp_path / "packed", **options, weighted=True, store="packed")
    assert packed["plan"]["layout"]
    run(dataset, tmp_path / "direct", weighted=True, store="direct")
    assert_same_run(tmp_path / "packed", tmp_path / "direct")
    other = run(dataset, tmp_path / "other", **options, store="packed")
    assert other["plan"]["layout"] != packed["plan"]["layout"]


def test_validation_takes_all_neighbours_as_they_are(dataset: Dataset) -> None:
    config, _, _ = resolve_config(dataset, {**OPTIONS, "weighted": True, "replace": True, "subgraph_type": "induced"})
    assert isinstance(config, SampledConfig)
    assert train_sampler(config) == NeighborWays(weights="weights", replace=True, subgraph="induced").spec((4, 4))
    assert eval_sampler(config) == neighbor_spec((-1, -1))
    config, _, _ = resolve_config(dataset, {**OPTIONS, "weighted": True, "eval_fanout": (20, 20), "fanout": (-1, -1)})
    assert isinstance(config, SampledConfig)
    assert eval_sampler(config) == NeighborWays(weights="weights").spec((20, 20))
    assert not draws_all(config)


def test_graphs_without_weights_and_other_models_are_refused(tmp_path: Path) -> None:
    graph = small_graph(tmp_path / "sbm")
    with pytest.raises(ConfigError, match="has no weights to sample by, and 'weights' is wanted; import the graph"):
        run(graph, tmp_path / "run", weighted=True)
    with pytest.raises(ConfigError, match="subgraph_type"):
        run(graph, tmp_path / "run", subgraph_type="whole")
    with pytest.raises(ConfigError, match="--weighted is for sage, gcn, gat"):
        train(graph, model="sgc", weighted=True, epochs=1)
    arrays = random_arrays()
    negative = import_arrays(tmp_path, **arrays, edge_weight=-np.ones(arrays["edge_index"].shape[1], np.float32))
    with pytest.raises(ConfigError, match="must be at least 0 and finite to sample by, got -1 at edge"):
        run(negative, tmp_path / "run", weighted=True)

"""Training on GraphSAINT's subgraphs: the same run from any store, norms beside the dataset, and as accurate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.dataset.dataset import Dataset
from diskhop.derived.clean import list_derived
from diskhop.errors import ConfigError
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.nodes.packing import pack
from diskhop.runs.start import train
from tests.integration.test_accuracy import import_shared, mean_test
from tests.runs import OPTIONS, assert_same_run, random_arrays, small_graph
from tests.runs import import_arrays as import_graph_of

KINDS = ("saint-node", "saint-edge", "saint-walk")
SMALL = {name: value for name, value in OPTIONS.items() if name not in ("fanout", "eval_fanout")}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm")


def run(dataset: Dataset, out: Path, **options: Any) -> dict[str, Any]:
    return train(dataset, **{**SMALL, "layers": 2, "self_term": False, "batch_size": 60, **options}, out=out).result


@pytest.mark.fast("saint-walk")
@pytest.mark.parametrize("sampler", KINDS)
def test_a_run_is_the_same_from_any_store(dataset: Dataset, tmp_path: Path, sampler: str) -> None:
    options = {"sampler": sampler, "sample_coverage": 3, "scratch": str(tmp_path / "scratch")}
    for store, threads in (("memory", 1), ("belady", 2), ("packed", 1)):
        # The norms are made by the first run, and found by the others.
        result = run(dataset, tmp_path / store, **options, store=store, threads=threads)
        steps = [step["step"] for step in result.get("preparation", [])]
        assert ("count norms" in steps) == (store == "memory")
        assert_same_run(tmp_path / "memory", tmp_path / store)
    (norms,) = (each for each in list_derived(tmp_path / "scratch") if each.what == "norms of GraphSAINT")
    assert norms.kept_because is None
    other = run(dataset, tmp_path / "other", **{**options, "sample_coverage": 0}, store="memory")
    assert other["epochs"][0]["loss"] != result["epochs"][0]["loss"]


@pytest.mark.fast("sage")
@pytest.mark.parametrize("model", ["sage", pytest.param("gcn", marks=pytest.mark.slow), "gat"])
def test_it_learns(dataset: Dataset, tmp_path: Path, model: str) -> None:
    options = {"model": model, "epochs": 80, "lr": 0.01, "scratch": str(tmp_path / "scratch")}
    assert run(dataset, tmp_path / "saint", **options, sampler="saint-walk")["test"]["accuracy"] > 0.8


def test_batches_packed_ahead_and_reused_samples(dataset: Dataset, tmp_path: Path) -> None:
    options: dict[str, Any] = {**SMALL, "layers": 2, "batch_size": 60, "sampler": "saint-walk", "sample_coverage": 0}
    scratch: dict[str, Any] = {"scratch": str(tmp_path / "scratch"), "disk_bytes": 10**9}
    pack(dataset, **options, **scratch)
    packed = train(dataset, **options, **scratch, store="packed", out=tmp_path / "packed").result
    assert packed["plan"]["layout"]
    train(dataset, **options, store="memory", out=tmp_path / "memory")
    assert_same_run(tmp_path / "packed", tmp_path / "memory")
    reused = train(dataset, **options, store="memory", reuse=True, out=tmp_path / "reused").result
    assert len({epoch["rows_requested"] for epoch in reused["epochs"]}) == 1


def test_a_run_keeps_its_norms_from_clean(dataset: Dataset, tmp_path: Path) -> None:
    kept: list[str | None] = []

    class Watch(Callback):
        def batch_done(self, progress: BatchProgress) -> None:
            kept.extend(each.kept_because for each in list_derived(tmp_path) if each.what == "norms of GraphSAINT")

    run(dataset, tmp_path / "run", sampler="saint-node", scratch=str(tmp_path), callbacks=[Watch()])
    assert {*kept} == {"in use"}


def test_batches_without_training_nodes_have_no_loss(tmp_path: Path) -> None:
    arrays = random_arrays(300)
    graph = import_graph_of(tmp_path, **arrays, train_idx=np.arange(2))
    options = {
        "sampler": "saint-node",
        "batch_size": 5,
        "scratch": str(tmp_path / "scratch"),
        "evaluate": False,
        "epochs": 1,
    }
    for more in ({}, {"sample_coverage": 0}, {"sample_coverage": 0, "accumulate": 7}):
        result = train(graph, **{**SMALL, "layers": 2, **options, **more}, out=None).result
        assert all(np.isfinite(epoch["loss"]) for epoch in result["epochs"])
        assert result["epochs"][0]["batches"] == 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "saint"}, "sampler must be one of neighbor, labor"),
        ({"sampler": "saint-walk", "fanout": (4, 4)}, "--fanout is for samplers of neighbours"),
        (
            {"sampler": "saint-node", "walk_length": 3},
            "--walk-length 3 is for --sampler saint-walk, got saint-node",
        ),
        ({"sampler": "saint-walk", "walk_length": 0}, "walk_length must be at least 1, got 0; remove --walk-length"),
        ({"sampler": "saint-edge", "weighted": True}, "--weighted is for --sampler neighbor, got saint-edge"),
        ({"sample_coverage": 3}, "--sample-coverage 3 is for --sampler saint-node, saint-edge, saint-walk"),
        ({"sampler": "saint-walk", "model": "gat", "sample_coverage": 3}, "--sample-coverage 3 gives them norms"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:30],
)
def test_options_without_effect_are_refused(dataset: Dataset, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train(dataset, **{**SMALL, "layers": 2, **options}, out=None)


CORA = {"preset": "cora", "sampler": "saint-walk", "batch_size": 500, "fanout": (-1, -1), "store": "memory"}


@pytest.mark.slow
def test_cora_one_seed(tmp_path: Path) -> None:
    dataset = import_shared(tmp_path, "cora")
    assert mean_test(dataset, [{"seed": 0}], **CORA, epochs=40, eval_every=4) >= 0.79


FIVE_SEEDS = [{"seed": seed} for seed in range(5)]


@pytest.fixture(scope="module")
def cora_by_neighbors(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, float]:
    """Cora, and its test accuracy with neighbour sampling."""
    dataset = import_shared(tmp_path_factory.mktemp("graphs"), "cora")
    return dataset, mean_test(dataset, FIVE_SEEDS, preset="cora", store="memory")


@pytest.mark.slow
@pytest.mark.parametrize("sampler", KINDS)
def test_cora_is_within_two_points_of_neighbour_sampling(
    cora_by_neighbors: tuple[Dataset, float], sampler: str
) -> None:
    dataset, neighbors = cora_by_neighbors
    assert mean_test(dataset, FIVE_SEEDS, **{**CORA, "sampler": sampler}, epochs=200) >= neighbors - 0.02

"""The presets reach the accuracies that the literature reports, on the real graphs, from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.dataset.dataset import Dataset
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from diskhop.runs.start import train

SHARED = Path(__file__).parents[3] / "shared" / "data"


def import_shared(folder: Path, name: str) -> Dataset:
    source = SHARED / name
    if not source.exists():
        pytest.skip(f"needs the graph '{name}' in ../shared/data")
    return import_graph(source, folder / name, engine=open_engine("auto").engine)


def mean_test(dataset: Dataset, runs: list[dict[str, Any]], **options: Any) -> float:
    results = [train(dataset, **{**options, **run}).result for run in runs]
    return float(np.mean([result["test"][result["metric"]] for result in results]))


FROM_DISK = {"store": "direct"}
CHUNKS_FROM_DISK = {"placement": "disk", "shuffle": "chunks"}


@pytest.mark.slow
def test_cora_gcn_one_seed(tmp_path: Path) -> None:
    assert mean_test(import_shared(tmp_path, "cora"), [{"seed": 0}], preset="cora", epochs=100, **FROM_DISK) >= 0.79


@pytest.mark.slow
@pytest.mark.parametrize(("model", "accuracy"), [("gcn", 0.805), ("gat", 0.815), ("sage", 0.79)])
def test_cora_public_split(tmp_path: Path, model: str, accuracy: float) -> None:
    runs = [{"seed": seed} for seed in range(5)]
    assert mean_test(import_shared(tmp_path, "cora"), runs, preset="cora", model=model, **FROM_DISK) >= accuracy


@pytest.mark.slow
def test_cora_links(tmp_path: Path) -> None:
    """The figures of the graph autoencoder (Kipf and Welling, 2016), on its shares of edges."""
    dataset = import_shared(tmp_path, "cora")
    tests = [train(dataset, task="link", preset="cora", seed=seed, store="direct").result["test"] for seed in range(3)]
    assert np.mean([tested["auc"] for tested in tests]) >= 0.91
    assert np.mean([tested["ap"] for tested in tests]) >= 0.92


@pytest.mark.slow
def test_tolokers_sage(tmp_path: Path) -> None:
    runs = [{"split": split} for split in range(3)]
    dataset = import_shared(tmp_path, "heterophilous-tolokers")
    assert mean_test(dataset, runs, preset="tolokers", model="sage", **FROM_DISK) >= 0.81


@pytest.mark.slow
def test_oewn_sage_with_three_hops(tmp_path: Path) -> None:
    options = {"preset": "oewn", "model": "sage", "layers": 3, **FROM_DISK}
    assert mean_test(import_shared(tmp_path, "oewn"), [{"seed": 0}], **options) >= 0.74


@pytest.mark.fast("disk")
@pytest.mark.parametrize("changes", [{}, CHUNKS_FROM_DISK], ids=["memory", "disk"])
def test_cora_sgc_public_split(tmp_path: Path, changes: dict[str, Any]) -> None:
    runs = [{"seed": seed} for seed in range(5)]
    assert abs(mean_test(import_shared(tmp_path, "cora"), runs, preset="cora", model="sgc", **changes) - 0.81) <= 0.005


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sign", "hoga"])
def test_oewn_with_four_hops(tmp_path: Path, model: str) -> None:
    dataset = import_shared(tmp_path, "oewn")
    runs: list[dict[str, Any]] = [{"seed": 0}, {"seed": 0, **CHUNKS_FROM_DISK}]
    by_rows, by_chunks = (mean_test(dataset, [run], preset="oewn", model=model) for run in runs)
    assert by_rows >= 0.77
    assert abs(by_rows - by_chunks) <= 0.005

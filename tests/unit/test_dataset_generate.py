"""The generated graph has the statistics it was asked for, streams, and repeats itself exactly."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.generate import features_alone_accuracy, generate_sbm
from diskhop.dataset.verify import verify
from diskhop.errors import ConfigError
from tests.graphs import folder_bytes, threads_engine

ASKED: dict[str, Any] = {
    "num_nodes": 20_000,
    "dim": 20,
    "num_classes": 7,
    "mean_degree": 12.0,
    "homophily": 0.6,
    "signal": 1.5,
    "train_fraction": 0.1,
    "eval_fraction": 0.05,
    "seed": 3,
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return generate_sbm(tmp_path_factory.mktemp("sbm") / "graph", engine=threads_engine(), **ASKED)


def topology_of(dataset: Dataset) -> tuple[Any, Any]:
    return (
        np.fromfile(dataset.topology.indptr_path, np.int64),
        np.fromfile(dataset.topology.indices_path, np.uint32).astype(np.int64),
    )


def test_neighbours_are_homophilous_sorted_and_never_the_node_itself(dataset: Dataset) -> None:
    indptr, indices = topology_of(dataset)
    labels = dataset.labels()
    assert labels is not None
    degrees = np.diff(indptr)
    destinations = np.repeat(np.arange(dataset.num_nodes), degrees)
    assert verify(dataset.path) == []
    assert degrees.mean() == pytest.approx(12, abs=0.1)
    assert degrees.var() == pytest.approx(12, rel=0.05)
    assert (np.diff(indices)[np.diff(destinations) == 0] >= 0).all()
    assert (indices != destinations).all()
    # 240 000 draws: three standard deviations are 0.003.
    assert (labels[indices] == labels[destinations]).mean() == pytest.approx(0.6, abs=0.003)
    out_degrees = np.bincount(indices, minlength=dataset.num_nodes)
    assert out_degrees.var() == pytest.approx(12, rel=0.1), "every member of a class is as likely as any other"


def test_features_are_class_means_and_unit_noise(dataset: Dataset) -> None:
    labels, table = dataset.labels(), dataset.features()
    assert labels is not None
    assert table is not None
    features = np.fromfile(table.path, np.float32).reshape(-1, 20).astype(np.float64)
    means = np.stack([features[labels == each].mean(axis=0) for each in range(7)])
    # Orthonormal up to the signal; each mean is over 2 857 nodes.
    np.testing.assert_allclose(means @ means.T, 1.5**2 * np.eye(7), atol=0.2)
    noise = features - means[labels]
    assert noise.std() == pytest.approx(1, abs=0.01)
    np.testing.assert_allclose(np.cov(noise.T), np.eye(20), atol=0.05)


def test_the_best_of_features_alone_is_the_nearest_mean(dataset: Dataset) -> None:
    labels, table = dataset.labels(), dataset.features()
    assert labels is not None
    assert table is not None
    features = np.fromfile(table.path, np.float32).reshape(-1, 20)
    means = np.stack([features[labels == each].mean(axis=0) for each in range(7)])
    accuracy = (np.argmax(features @ means.T, axis=1) == labels).mean()
    assert accuracy == pytest.approx(features_alone_accuracy(7, 1.5), abs=0.012)


@pytest.mark.parametrize(("num_classes", "signal"), [(2, 0.5), (7, 1.5), (40, 1.0), (40, 3.0), (172, 2.0)])
def test_the_accuracy_agrees_with_drawing(num_classes: int, signal: float) -> None:
    projections = np.random.default_rng(5).standard_normal((60_000, num_classes), np.float32)
    projections[:, 0] += signal
    drawn = (projections.argmax(axis=1) == 0).mean()
    assert features_alone_accuracy(num_classes, signal) == pytest.approx(drawn, abs=0.007)


def test_the_accuracy_has_its_limits() -> None:
    assert features_alone_accuracy(10, 0.0) == pytest.approx(0.1, abs=1e-9)
    assert features_alone_accuracy(10, 30.0) == pytest.approx(1.0, abs=1e-9)
    # Two classes: Phi(signal / sqrt(2)).
    assert features_alone_accuracy(2, 1.0) == pytest.approx(0.7602499389065233, abs=1e-9)


def test_splits_are_apart_and_of_their_size(dataset: Dataset) -> None:
    parts = [dataset.split(part) for part in ("train", "valid", "test")]
    sizes = [len(ids) for ids in parts if ids is not None]
    assert sizes == [pytest.approx(2000, abs=150), pytest.approx(1000, abs=110), pytest.approx(1000, abs=110)]
    everyone = np.concatenate([ids for ids in parts if ids is not None])
    assert len(np.unique(everyone)) == len(everyone)


def test_the_seed_decides_everything(dataset: Dataset, tmp_path: Path) -> None:
    again = generate_sbm(tmp_path / "again", engine=threads_engine(), **ASKED)
    assert folder_bytes(again.path) == folder_bytes(dataset.path)
    other = generate_sbm(tmp_path / "other", engine=threads_engine(), **(ASKED | {"seed": 4}))
    differing = [
        name for name, content in folder_bytes(other.path).items() if folder_bytes(again.path)[name] != content
    ]
    assert {"edges/edge/indices.bin", "nodes/node/features.bin", "nodes/node/splits/train.bin"} <= set(differing)


def test_memory_does_not_grow_with_the_graph(tmp_path: Path) -> None:
    tracemalloc.start()
    dataset = generate_sbm(tmp_path / "graph", engine=threads_engine(), **(ASKED | {"num_nodes": 300_000, "dim": 64}))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    table = dataset.features()
    assert table is not None
    assert table.path.stat().st_size == 76_800_000
    assert peak_bytes < 24_000_000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_classes": 1}, "num_classes must be at least 2, got 1"),
        ({"num_nodes": 13}, "num_nodes must be 2 for each class"),
        ({"dim": 7}, "dim must be so large that a power of 2 holds num_classes, got 7"),
        ({"dim": 0}, "dim must be"),
        ({"homophily": 1.1}, "homophily must be from 0 to 1, got 1.1"),
        ({"mean_degree": -1.0}, "mean_degree must be"),
        ({"signal": float("nan")}, "signal must be from 0 to 1000, got nan"),
        ({"train_fraction": 0.0}, "train_fraction must be more than 0"),
        ({"eval_fraction": 0.46}, "eval_fraction must be more than 0, at most half"),
        ({"seed": -1}, "seed must be from 0"),
    ],
)
def test_what_cannot_be_made_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        generate_sbm(tmp_path / "graph", engine=threads_engine(), **(ASKED | change))
    assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []

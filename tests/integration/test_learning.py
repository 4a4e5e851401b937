"""Steps of the optimiser: accumulated, clipped, at scheduled rates, and the same after an interruption."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.runs.start import train
from diskhop.runs.trainer import Trainer
from tests.runs import OPTIONS, assert_same_run, import_arrays, interrupt, random_arrays, small_graph

# All neighbours and nothing random: a batch of several parts is the parts together.
PLAIN = {**OPTIONS, "fanout": (-1, -1), "dropout": 0.0, "norm": "layer", "evaluate": False, "epochs": 3, "lr": 0.01}
SCHEDULES: list[dict[str, Any]] = [
    {"lr_schedule": "cosine", "warmup": 5},
    {"lr_schedule": "cosine", "accumulate": 4, "clip_norm": 0.1},
    {"lr_schedule": "plateau", "plateau_patience": 1, "plateau_factor": 0.3, "lr": 0.3},
    {"warmup": 20},
]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm")


@pytest.fixture(scope="module")
def of_tasks(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    arrays = random_arrays(300)
    tasks = np.random.default_rng(2).choice([0, 1, np.nan], (300, 5), p=[0.3, 0.2, 0.5])
    tasks[:, 0] = arrays["y"] == 0
    return import_arrays(tmp_path_factory.mktemp("tasks"), **{**arrays, "y": tasks})


def epochs_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.fast(2)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dataset", {}),
        ("dataset", {"class_weights": "1,2,3,.5"}),
        ("dataset", {"class_weights": "balanced", "loss": "focal", "clip_norm": 0.2}),
        ("of_tasks", {}),
        ("of_tasks", {"task": "regression", "model": "gcn"}),
    ],
)
def test_accumulated_batches_are_one_large_batch(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    """Also the last ones, which are fewer and smaller."""
    dataset = request.getfixturevalue(name)
    given = {**PLAIN, "store": "direct", **options}
    train(dataset, out=tmp_path / "large", **{**given, "batch_size": 80})
    train(dataset, out=tmp_path / "parts", accumulate=4, **{**given, "batch_size": 20})
    large, parts = epochs_of(tmp_path / "large"), epochs_of(tmp_path / "parts")
    assert parts[0]["batches"] >= 3 * large[0]["batches"]
    for one, other in zip(large, parts, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-6)
    expected = load_file(tmp_path / "large/model.safetensors")
    for key, tensor in load_file(tmp_path / "parts/model.safetensors").items():
        torch.testing.assert_close(tensor, expected[key], rtol=0, atol=2e-5)


def test_gradients_are_clipped_to_the_norm(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[float] = []
    take_step = Trainer._step

    def measured(self: Trainer, rate: float, weight: float) -> None:
        def measure() -> None:
            gradients = [each.grad for each in self.model.parameters() if each.grad is not None]
            norms.append(math.sqrt(sum(float(each.double().square().sum()) for each in gradients)))
            step()

        step = self.optimizer.step
        with monkeypatch.context() as patched:
            patched.setattr(self.optimizer, "step", measure)
            take_step(self, rate, weight)

    monkeypatch.setattr(Trainer, "_step", measured)
    train(dataset, store="direct", **PLAIN)
    free, norms = norms, []
    assert max(free) > 0.05
    train(dataset, store="direct", clip_norm=0.05, **PLAIN)
    assert max(norms) == pytest.approx(0.05, rel=1e-5)


def test_rates_follow_the_schedule(dataset: Dataset, tmp_path: Path) -> None:
    options = {**PLAIN, "epochs": 4, "store": "direct"}
    train(dataset, out=tmp_path / "cosine", lr_schedule="cosine", warmup=6, accumulate=2, **options)
    found = epochs_of(tmp_path / "cosine")
    assert found[0]["batches"] == 6, "three steps each"
    last = [0.01 * 3 / 6, 0.01] + [0.005 * (1 + math.cos(math.pi * step / 6)) for step in (2, 5)]
    assert [each["lr"] for each in found] == pytest.approx(last)
    train(dataset, out=tmp_path / "constant", **options)
    assert "lr" not in epochs_of(tmp_path / "constant")[0]


def test_the_rate_falls_on_a_plateau(dataset: Dataset, tmp_path: Path) -> None:
    options = {**PLAIN, "epochs": 8, "lr": 0.3, "evaluate": True, "store": "direct"}
    given: dict[str, Any] = {"lr_schedule": "plateau", "plateau_patience": 2, "plateau_factor": 0.1}
    train(dataset, out=tmp_path / "run", **given, **options)
    found = epochs_of(tmp_path / "run")
    rate, best, num_worse, expected = 0.3, -1.0, 0, []
    for epoch in found:
        expected.append(rate)
        num_worse = 0 if epoch["valid"] > best else num_worse + 1
        best = max(best, epoch["valid"])
        if num_worse == 2:
            rate, num_worse = rate * 0.1, 0
    assert [each["lr"] for each in found] == pytest.approx(expected)
    assert found[-1]["lr"] < 0.1


@pytest.mark.fast(3)
@pytest.mark.parametrize("options", SCHEDULES, ids=str)
@pytest.mark.parametrize("num_epochs", [1, 3])
def test_a_run_resumes_in_the_middle_of_its_schedule(
    dataset: Dataset, tmp_path: Path, options: dict[str, Any], num_epochs: int
) -> None:
    given = {**OPTIONS, "epochs": 5, "store": "direct", **options}
    train(dataset, out=tmp_path / "whole", **given)
    interrupt(dataset, tmp_path / "run", num_epochs, **given)
    train(dataset, out=tmp_path / "run", resume=True, **given)
    assert_same_run(tmp_path / "whole", tmp_path / "run")
    assert [each["lr"] for each in epochs_of(tmp_path / "run")] == [
        each["lr"] for each in epochs_of(tmp_path / "whole")
    ]


def test_a_plateau_needs_validation_nodes(tmp_path: Path) -> None:
    arrays = {**random_arrays(), "train_idx": np.arange(100)}
    graph = import_arrays(tmp_path, **arrays)
    with pytest.raises(ConfigError, match="--lr-schedule plateau needs validation nodes, and the split has none"):
        train(graph, lr_schedule="plateau", **OPTIONS)


def test_what_is_left_alone_changes_no_bit(dataset: Dataset, tmp_path: Path) -> None:
    train(dataset, out=tmp_path / "one", store="direct", **OPTIONS)
    plain: dict[str, Any] = {"lr_schedule": "constant", "warmup": 0, "accumulate": 1, "loss": "cross-entropy"}
    train(dataset, out=tmp_path / "two", store="direct", clip_norm=0.0, **plain, **OPTIONS)
    assert_same_run(tmp_path / "one", tmp_path / "two")

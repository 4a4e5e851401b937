"""The memory of a whole run: predicted, in the result, chosen by --total-memory, and refused where it does not fit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from torch import nn

import diskhop
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError
from diskhop.planning.overhead import MeasuredMemory
from diskhop.runs import fitted_memory, total_memory
from diskhop.runs.predict import memory as predict_memory
from diskhop.runs.predict.plan import plan_prediction
from diskhop.runs.predict.run import predict_run
from diskhop.runs.program_memory import measure_program
from diskhop.runs.start import embed, train
from diskhop.system.limits import MemoryLimit
from tests.runs import small_graph

MB = 10**6
MEMCAP = Path(__file__).parents[3] / "shared" / "tools" / "memcap"
QUICK: dict[str, Any] = {"epochs": 1, "max_batches": 1, "hidden": 8, "store": "direct", "seed": 0, "threads": 2}
EMBED: dict[str, Any] = {"model": "dot", "dim": 8, "epochs": 1, "evaluate": False, "seed": 0, "threads": 2}
# A process that has done nothing yet: what one that runs tests keeps differs from test to test.
PROGRAM = MeasuredMemory(300 * MB, 100 * MB, 0, 0)


@pytest.fixture(scope="module")
def dataset(module_folder: Path) -> Dataset:
    return small_graph(module_folder / "graph")


def limited(more_bytes: int) -> Any:
    """Let a run believe that its control group lets this process grow by that much."""
    limit = MemoryLimit(measure_program(0).program + more_bytes, "memory.max of /sys/fs/cgroup/box")
    return patch.object(fitted_memory, "memory_limit", lambda: limit)


def test_a_named_total_is_budget_and_overhead(dataset: Dataset) -> None:
    result = train(dataset, total_memory="4GB", **QUICK).result
    assert result["plan"]["memory_bytes"] + result["predicted_overhead_bytes"] == 4000 * MB
    assert result["predicted_overhead_bytes"] > 100 * MB, "Python and torch take that"


@pytest.mark.parametrize("options", [{"model": "sign", "hops": 2, "store": None}, {"task": "link", "max_batches": 2}])
def test_every_kind_of_run_predicts_its_overhead(dataset: Dataset, options: dict[str, Any]) -> None:
    wanted = {name: value for name, value in {**QUICK, **options}.items() if value is not None}
    result = train(dataset, total_memory="3GB", **wanted).result
    assert result["predicted_overhead_bytes"] > 100 * MB


def test_a_budget_with_ample_room_is_not_tried(dataset: Dataset) -> None:
    with limited(100_000 * MB), patch.object(total_memory._Trials, "predict", side_effect=AssertionError):
        assert "predicted_overhead_bytes" not in train(dataset, memory="200MB", **QUICK).result


def test_a_budget_that_does_not_fit_is_refused_before_anything_is_written(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with limited(700 * MB), pytest.raises(BudgetError, match=r"more than the .*cgroup/box\): use --memory \d+MB$"):
        train(dataset, memory="9GB", out=out, **QUICK)
    with limited(700 * MB), pytest.raises(BudgetError, match=r"^--total-memory 9 GB .*use --total-memory \d+MB$"):
        train(dataset, total_memory="9GB", out=out, **QUICK)
    assert not out.exists()


def test_what_is_suggested_works(dataset: Dataset) -> None:
    with limited(1000 * MB), pytest.raises(BudgetError) as refused:
        train(dataset, memory="9GB", **QUICK)
    memory = str(refused.value).rpartition("--memory ")[2]
    with limited(1000 * MB):
        assert train(dataset, memory=memory, **QUICK).result["predicted_overhead_bytes"]


def test_a_step_that_cannot_fit_is_not_tried_and_a_smaller_batch_is_named(dataset: Dataset) -> None:
    wide = {**QUICK, "hidden": 32768, "batch_size": 300, "eval_batch_size": 100}
    # A row of the wide model takes 131 kB in each layer.
    with limited(200 * MB), pytest.raises(BudgetError, match=r"--batch-size \d+|no batch size fits"):
        train(dataset, **wide)


def test_a_default_leaves_room_for_the_overhead(dataset: Dataset) -> None:
    limit_bytes = measure_program(0).program + 1510 * MB  # with what reading this takes
    with limited(1500 * MB):
        result = train(dataset, **QUICK).result
    assert result["plan"]["memory_bytes"] + result["predicted_overhead_bytes"] <= 0.85 * limit_bytes


def test_a_run_that_is_resumed_keeps_its_budget(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = train(dataset, total_memory="4GB", out=out, **QUICK).result
    again = train(dataset, out=out, resume=True).result
    assert again["plan"]["memory_bytes"] == first["plan"]["memory_bytes"]


@pytest.fixture(scope="module")
def trained(dataset: Dataset, module_folder: Path) -> Path:
    train(dataset, memory="200MB", out=module_folder / "trained", **QUICK)
    return module_folder / "trained"


def test_embeddings_have_a_total_that_is_budget_and_overhead(dataset: Dataset, tmp_path: Path) -> None:
    result = embed(dataset, total_memory="2GB", out=tmp_path / "run", **EMBED).result
    assert result["plan"]["memory_bytes"] + result["predicted_overhead_bytes"] == 2000 * MB
    again = embed(dataset, out=tmp_path / "run", resume=True).result
    assert again["plan"]["memory_bytes"] == result["plan"]["memory_bytes"]


def test_partitions_follow_from_the_budget_that_the_total_leaves(module_folder: Path, tmp_path: Path) -> None:
    large = small_graph(module_folder / "large", num_nodes=6000, num_edges=1000)
    wide = {**EMBED, "dim": 1024, "negatives": 10, "batch_size": 100, "chunk_size": 50}
    with patch.object(total_memory, "measure_program", lambda _: PROGRAM):
        whole = embed(large, total_memory="3GB", out=tmp_path / "whole", **wide).result
        assert whole["plan"]["num_partitions"] == 1
        # A partition of 25 MB.
        total = whole["predicted_overhead_bytes"] + sum(whole["plan"]["reserved"].values()) - 10 * MB
        parts = embed(large, total_memory=total, out=tmp_path / "parts", **wide).result
    assert parts["plan"]["num_partitions"] > 1
    assert parts["plan"]["memory_bytes"] + parts["predicted_overhead_bytes"] == total


def test_embeddings_that_do_not_fit_are_refused_before_anything_is_written(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with limited(700 * MB), pytest.raises(BudgetError, match=r"^--total-memory 9 GB .*use --total-memory \d+MB$"):
        embed(dataset, total_memory="9GB", out=out, **EMBED)
    with limited(700 * MB), pytest.raises(BudgetError, match=r"more than the .*cgroup/box\): use --memory \d+MB$"):
        embed(dataset, memory="9GB", out=out, **EMBED)
    with limited(20 * MB), pytest.raises(BudgetError, match=r"^Python, its libraries and a step .* or more$"):
        embed(dataset, out=out, **EMBED)
    assert not out.exists()


def test_predictions_have_a_total_that_is_budget_and_overhead(trained: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    result = predict_run(trained, out=tmp_path / "out", total_memory="2GB", on_plan=lines.append).result
    assert result["predicted_overhead_bytes"] > 100 * MB, "Python and torch take that"
    assert lines[0].startswith("total memory ")
    assert " = 2 GB: budget + predicted overhead (Python and libraries " in lines[0]
    planned = plan_prediction(trained, total_memory="2GB").to_dict()
    assert planned["memory_bytes"] + planned["predicted_overhead_bytes"] == 2000 * MB


def test_predictions_that_do_not_fit_are_refused_before_anything_is_written(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with limited(700 * MB), pytest.raises(BudgetError, match=r"^--total-memory 9 GB .*use --total-memory \d+MB$"):
        predict_run(trained, out=out, total_memory="9GB")
    with limited(700 * MB), pytest.raises(BudgetError, match=r"more than the .*cgroup/box\): use --memory \d+MB$"):
        predict_run(trained, out=out, memory="9GB")
    with limited(1 * MB), pytest.raises(BudgetError, match=r"leaves nothing for graph data .*; give it .* or more$"):
        predict_run(trained, out=out)
    assert not out.exists()


def test_a_total_that_leaves_too_little_for_a_prediction_is_refused_with_the_smallest_that_works(
    trained: Path, tmp_path: Path
) -> None:
    with patch.object(predict_memory, "measure_program", lambda _: PROGRAM):
        total = plan_prediction(trained, total_memory="2GB").to_dict()["predicted_overhead_bytes"] + MB
        with pytest.raises(BudgetError, match=r"is too small: graph data need .*; the smallest that works is") as error:
            predict_run(trained, out=tmp_path / "out", total_memory=total)
        smallest = str(error.value).rpartition("--total-memory ")[2]
        assert predict_run(trained, out=tmp_path / "out", total_memory=smallest).result["rows"]


def test_any_model_predicts_within_a_total(dataset: Dataset, tmp_path: Path) -> None:
    lines: list[str] = []
    layers = [nn.Identity()]
    with pytest.raises(BudgetError, match=r"^--total-memory 100 GB is more than"), limited(700 * MB):
        diskhop.predict(dataset, layers, total_memory="100GB")
    with pytest.raises(ConfigError, match="total_memory has no effect with a Budget"):
        diskhop.predict(dataset, layers, memory=Budget(200 * MB), total_memory="2GB")
    with pytest.raises(BudgetError, match="leaves nothing for graph data"):
        diskhop.predict(dataset, layers, total_memory="50MB", on_plan=lines.append)
    assert lines == []


def test_propagation_has_a_total_that_is_budget_and_overhead(dataset: Dataset, tmp_path: Path) -> None:
    lines: list[str] = []
    done = diskhop.propagate(dataset, hops=1, scratch=tmp_path / "scratch", total_memory="2GB", log=lines.append)
    assert lines[0].startswith("total memory ")
    assert 0 < done.memory["predicted_overhead_bytes"] < 2000 * MB
    assert done.memory["overhead_bytes"] > 0
    with limited(700 * MB), pytest.raises(BudgetError, match=r"^--total-memory 9 GB .*use --total-memory \d+MB$"):
        diskhop.propagate(dataset, hops=2, scratch=tmp_path / "other", total_memory="9GB")
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_a_run_in_a_group_of_its_total_finishes_and_in_half_of_it_is_refused(
    module_folder: Path, tmp_path: Path
) -> None:
    if not MEMCAP.exists():
        pytest.skip("needs ../shared/tools/memcap")
    wide = small_graph(module_folder / "wide", num_nodes=100_000, num_edges=1_000_000, dim=128, train_fraction=0.3)
    options = ["--model", "sage", "--epochs", "1", "--max-batches", "8", "--store", "belady", "--hidden", "256"]
    command = [sys.executable, "-m", "diskhop", "train", str(wide.path), *options]

    def run(limit_bytes: int, name: str, *more: str) -> subprocess.CompletedProcess[str]:
        capped = [str(MEMCAP), str(limit_bytes), *command, *more, "--out", str(tmp_path / name)]
        return subprocess.run(capped, capture_output=True, text=True, check=False)

    free = [*command, "--total-memory", "2GB", "--out", str(tmp_path / "free")]
    subprocess.run(free, capture_output=True, check=True)
    total = 200 * MB + json.loads((tmp_path / "free" / "result.json").read_text())["predicted_overhead_bytes"]
    capped = run(int(1.05 * total), "capped", "--total-memory", f"{total}B")
    if "mkdir" in capped.stderr or "Permission denied" in capped.stderr:
        pytest.skip("control groups cannot be made here")
    assert capped.returncode == 0, capped.stderr
    refused = run(total // 2, "refused", "--memory", "200MB")
    lines = [line for line in refused.stderr.splitlines() if not line.startswith(("memcap:", "Waiting for memory:"))]
    assert refused.returncode == 2
    assert len(lines) == 1, lines
    assert not (tmp_path / "refused").exists()

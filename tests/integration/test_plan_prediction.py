"""diskhop plan RUN --task predict: what a prediction takes is known before anything is computed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from diskhop.cli import run
from diskhop.runs.predict.plan import plan_prediction
from diskhop.runs.predict.run import predict_run
from diskhop.runs.start import train
from tests.runs import OPTIONS, folder_bytes, small_graph


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plans")
    graph = small_graph(folder / "graph", num_nodes=3000, num_edges=20_000)
    train(graph, out=folder / "sage", **{**OPTIONS, "epochs": 1})
    hops = {name: value for name, value in OPTIONS.items() if name != "fanout"}
    train(graph, out=folder / "sign", model="sign", hops=2, **{**hops, "epochs": 1})
    return folder


@pytest.mark.parametrize(
    ("name", "options", "steps"),
    [
        ("sage", [], ["read features", "layer 1", "layer 2"]),
        ("sage", ["--fanout", "3,3"], ["layer 1", "layer 2"]),
        ("sign", [], ["cut features", "sign hop 1", "sign hop 2", "model"]),
    ],
    ids=["exact", "sampled", "hops"],
)
def test_steps_are_shown_and_nothing_is_computed(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, options: list[str], steps: list[str]
) -> None:
    before = folder_bytes(folder)
    assert run(["plan", str(folder / name), "--task", "predict", *options]) == 0
    out = capsys.readouterr().out
    table = out[: out.index("\n\n")].splitlines()
    assert [re.split(r"\s\s+", line)[0] for line in table[1:]] == steps
    assert f"diskhop predict {folder / name}" in out
    assert run(["plan", str(folder / name), "--task", "predict", "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in found["steps"]] == steps
    assert found["seconds"] == pytest.approx(sum(each["seconds"] for each in found["steps"]))
    assert found["rows"] == 3000
    assert found["disk_bytes"] >= found["work_bytes"] > 0
    assert folder_bytes(folder) == before


def test_the_plan_is_the_one_that_is_carried_out(folder: Path, tmp_path: Path) -> None:
    planned = plan_prediction(folder / "sage", memory="10MB", what=("logits", "embedding"), threads=1)
    done = predict_run(folder / "sage", out=tmp_path / "out", memory="10MB", what=("logits", "embedding"), threads=1)
    assert [each.name for each in planned.outputs.steps] == [each["step"] for each in done.result["steps"]]
    assert planned.outputs.work_bytes == done.result["plan"]["work_bytes"]
    assert planned.files_bytes == pytest.approx(sum(done.result["files"].values()), rel=0.3)


def test_processes_of_a_machine_divide_its_memory(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", str(folder / "sage"), "--task", "predict", "--memory", "20MB"]
    assert run([*words, "--processes", "2"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"memory for .+ \S+ for each process +\n", shown)
    assert re.search(r"Memory of 2 processes: \S+ MB for each process +\n", shown)
    assert f"diskhop predict {folder / 'sage'} --processes 2 --memory 20MB" in shown
    both = plan_prediction(folder / "sage", memory="20MB", processes=2)
    assert both.outputs.num_processes == 2
    assert 2 * sum(both.outputs.reserved.values()) <= both.memory_bytes == 20_000_000


@pytest.mark.parametrize(("name", "options"), [("sage", {"fanout": (3, 3)}), ("sign", {})])
def test_processes_share_models_of_every_kind(folder: Path, name: str, options: dict[str, Any]) -> None:
    both = plan_prediction(folder / name, memory="60MB", processes=2, **options).outputs
    assert both.num_processes == 2
    assert 2 * sum(both.reserved.values()) <= 60_000_000
    assert both.reasons[-1].startswith("Memory of 2 processes: ")


def test_hop_tables_that_exist_are_not_planned_again(folder: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "tables"
    predict_run(folder / "sign", out=tmp_path / "out", scratch=str(scratch), memory="100MB")
    planned = plan_prediction(folder / "sign", scratch=str(scratch), memory="100MB")
    assert [each.name for each in planned.outputs.steps] == ["model"]
    assert "which exist" in planned.outputs.reasons[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["sage", "--task", "predict", "--store", "direct"], "--store has no effect with --task predict; remove it"),
        (["sage", "--task", "predict", "--preset", "cora"], "--preset has no effect with --task predict; remove it"),
        (["graph", "--nodes", "test"], "--nodes has no effect with --task train; remove it"),
        (["graph", "--dataset", "graph"], "--dataset has no effect with --task train; remove it"),
        (["graph", "--task", "predict"], "is no run of 'diskhop train'"),
        (["graph", "--task", "guess"], "unknown task 'guess'; the known ones are train, predict, classif"),
        (["sage", "--task", "predict", "--memory", "10KB"], "the smallest that works is --memory "),
        (["sage", "--task", "predict", "--what", "clas"], "--what 'clas' is unknown"),
        (["sage", "--task", "predict", "--processes", "0"], "processes must be at least 1, got 0; for example"),
    ],
)
def test_options_of_the_other_task_are_refused(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(folder)
    assert run(["plan", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line

"""diskhop evaluate RUN: a node classifier by all of its outputs, embeddings by ranks of edges."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from diskhop.cli import run
from diskhop.predicting.rows import ArrayRows
from diskhop.runs.evaluate.classifier import evaluate_classifier
from diskhop.runs.evaluate.run import evaluate_run
from diskhop.runs.predict.run import predict_run
from diskhop.runs.start import embed, train
from tests.runs import OPTIONS, small_graph


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluated")
    graph = small_graph(folder / "graph")
    train(graph, out=folder / "sage", **{**OPTIONS, "epochs": 2})
    hops = {name: value for name, value in OPTIONS.items() if name != "fanout"}
    train(graph, out=folder / "sign", model="sign", hops=2, **{**hops, "epochs": 2})
    embed(graph, out=folder / "embeddings", dim=8, epochs=1, memory="100MB")
    return folder


@pytest.mark.parametrize("name", ["sage", "sign"])
def test_metrics_are_those_of_the_predicted_logits(folder: Path, tmp_path: Path, name: str) -> None:
    predict_run(folder / name, out=tmp_path / "out", what=("logits",), format="npy")
    logits = np.load(tmp_path / "out/logits.npy")
    before = {path.name for path in (folder / name).iterdir()}
    found = evaluate_run(folder / name)
    assert {path.name for path in (folder / name).iterdir()} - before == {"evaluation.json"}

    expected = evaluate_classifier(folder / name, lambda *_: nullcontext(ArrayRows(logits)))
    assert found["parts"] == expected["parts"]
    assert set(found["parts"]) == {"train", "valid", "test"}


def test_parts_classes_and_confusions_are_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", str(folder / "sage")]) == 0
    out = capsys.readouterr().out
    for text in ("macro F1", "train  300", "confused in test", f"diskhop report {folder / 'sage'}"):
        assert text in out
    assert run(["evaluate", str(folder / "sage"), "--part", "valid", "--json", "--threads", "1"]) == 0
    assert list(json.loads(capsys.readouterr().out)["parts"]) == ["valid"]


def test_embeddings_rank_edges(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", str(folder / "embeddings"), "--eval-edges", "20", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["part"], found["protocol"]["edges"]) == ("test", "20 of 240")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nowhere"], "nowhere: is no run, config.toml is missing"),
        (
            ["sage", "--part", "tset"],
            "unknown part 'tset' (did you mean 'test'?); the known ones are train",
        ),
        (["sage", "--eval-edges", "5"], "--eval-edges is for runs of 'diskhop embed', and sage is none; remove it"),
        (["embeddings", "--dataset", "graph"], "embeddings: holds embeddings, which are of their own dataset"),
        (["embeddings", "--part", "train"], "unknown part 'train'; the known ones are"),
        (["sage", "--memory", "1KB"], "the smallest that works is --memory 1MB"),
    ],
)
def test_bad_input_is_one_line(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(folder)
    assert run(["evaluate", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line

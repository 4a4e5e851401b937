"""TensorBoard shows the values that runs recorded."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from diskhop.cli import run as run_command
from tests.embedding import small_triples
from tests.runs import small_graph

event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")


def scalars(run: Path) -> dict[str, list[Any]]:
    """Steps and values by name, from records of TensorFlow's kind: length, its sum, content, its sum."""
    found: dict[str, list[Any]] = {}
    for path in sorted((run / "tensorboard").iterdir()):
        content, at = path.read_bytes(), 0
        while at < len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            event: Any = event_pb2.Event.FromString(content[at + 12 : at + 12 + length])
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
            at += 12 + length + 4
    return found


def test_events_of_training_are_its_records(tmp_path: Path) -> None:
    graph = small_graph(tmp_path / "graph")
    options = ["--model", "sage", "--epochs", "3", "--batch-size", "64", "--memory", "100MB", "--tensorboard"]
    assert run_command(["train", str(graph.path), *options, "--out", str(tmp_path / "run")]) == 0
    epochs = json.loads((tmp_path / "run" / "result.json").read_text())["epochs"]
    found = scalars(tmp_path / "run")
    for name in ("loss", "valid", "bytes_read", "stall_seconds"):
        assert found[f"epoch/{name}"] == [(each["epoch"], pytest.approx(each[name], rel=1e-6)) for each in epochs]
    losses = [value for _, value in found["batch/loss"]]
    assert len(losses) == sum(epoch["batches"] for epoch in epochs)
    assert [step for step, _ in found["batch/loss"]] == sorted({step for step, _ in found["batch/loss"]})


def test_events_of_embeddings_are_their_records(tmp_path: Path) -> None:
    triples = small_triples(tmp_path)
    options = ["--epochs", "2", "--dim", "8", "--batch-size", "32", "--memory", "100MB", "--tensorboard"]
    assert run_command(["embed", str(triples.path), *options, "--out", str(tmp_path / "run")]) == 0
    epochs = json.loads((tmp_path / "run" / "result.json").read_text())["epochs"]
    assert scalars(tmp_path / "run")["epoch/loss"] == [
        (each["epoch"], pytest.approx(each["loss"], rel=1e-6)) for each in epochs
    ]


def test_without_a_folder_or_the_package_it_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = small_graph(tmp_path / "graph")
    assert run_command(["train", str(graph.path), "--tensorboard"]) == 2
    assert "--tensorboard writes to the run's folder: name one with --out" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert run_command(["train", str(graph.path), "--tensorboard", "--out", str(tmp_path / "run")]) == 2
    assert "pip install 'diskhop[tensorboard]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()

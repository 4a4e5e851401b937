"""diskhop predict as its users type it: mistakes end with one line, the right exit code and nothing half-written."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from diskhop.cli import run
from diskhop.io.destinations import StagedDirectory
from diskhop.predicting.output import PREDICTIONS
from diskhop.reporting.predictions import read_predictions
from diskhop.runs.checkpoint import load_tensors, save_tensors
from diskhop.runs.nodes.task import read_task
from diskhop.runs.start import embed, train
from tests.runs import OPTIONS, import_arrays, random_arrays, small_graph


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph, a run of each kind, and a graph that none of them fits."""
    folder = tmp_path_factory.mktemp("predict")
    graph = small_graph(folder / "graph")
    train(graph, out=folder / "sage", **{**OPTIONS, "epochs": 1})
    hops = {name: value for name, value in OPTIONS.items() if name != "fanout"}
    train(graph, out=folder / "sign", model="sign", hops=2, **{**hops, "epochs": 1})
    embed(graph, out=folder / "embeddings", dim=8, epochs=1, memory="100MB")
    small_graph(folder / "wider", dim=17, num_classes=5)
    np.save(folder / "unknown.npy", np.array([3, 9_999]))
    (folder / "words.txt").write_text("abc\n")
    (folder / "empty.txt").touch()
    broken_run(folder, "missing", lambda parameters: parameters.pop("convs.1.lin_l.weight"))
    broken_run(folder, "nan", lambda parameters: parameters["convs.1.lin_l.weight"].fill_(np.nan))
    broken_run(folder, "huge", lambda parameters: parameters["convs.0.lin_l.weight"].fill_(3e38))
    for name in ("cut", "no-model", "schema"):
        shutil.copytree(folder / "sage", folder / name)
    os.truncate(folder / "cut/model.safetensors", 1000)
    (folder / "no-model/model.safetensors").unlink()
    (folder / "schema/schema.json").write_text("{\n")
    return folder


def broken_run(folder: Path, name: str, change: Any) -> None:
    """A copy of the run `sage` with other parameters, and a checksum that fits them."""
    shutil.copytree(folder / "sage", folder / name)
    path = folder / name / "model.safetensors"
    parameters, facts = load_tensors(path)
    change(parameters)
    save_tensors(path, parameters, {"model": facts["model"]})


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


MISTAKES = [
    ("nowhere", [], 2, r"nowhere: is no run of 'diskhop train', config\.toml is missing; name the folder of one"),
    ("graph", [], 2, "is no run of 'diskhop train'"),
    ("embeddings", [], 2, "made by 'diskhop embed'; name a run of 'diskhop train'"),
    ("sage", ["--dataset", "nowhere"], 2, "nowhere: does not exist; give the folder of a dataset"),
    ("cut", [], 2, r"cut/model\.safetensors: is damaged, its checksum does not match; copy the run again"),
    ("no-model", [], 2, r"model\.safetensors is missing; finish the run: diskhop train --resume --out no-model"),
    ("schema", [], 2, r"schema\.json: is damaged: Expecting property name .*; copy the run again, or train again"),
    ("missing", [], 2, r"model\.safetensors: does not fit .*: convs\.1\.lin_l\.weight is missing"),
    ("sage", ["--what", "clas"], 2, "--what 'clas' is unknown; use one or more of class, probability"),
    ("sage", ["--what", "embedding", "--layer", "3"], 2, "--layer must be from 1 to 2, the layers of the model, got 3"),
    ("sage", ["--layer", "1"], 2, "add --what embedding"),
    ("sign", ["--what", "embedding", "--layer", "1"], 2, "--layer is for sage, gcn and gat"),
    ("sign", ["--fanout", "5"], 2, "--fanout is for sage, gcn and gat"),
    ("sage", ["--fanout", "5,5,5"], 2, "for example --fanout 20,20"),
    ("sage", ["--format", "csv"], 2, "--format must be one of parquet, npy, tsv"),
    ("sage", ["--nodes", "tst"], 2, "--nodes 'tst' is none of all, train, valid, test, and no file"),
    ("sage", ["--nodes", "graph"], 2, "graph: is a folder; name a file of node ids"),
    (
        "sage",
        ["--nodes", "unknown.npy"],
        2,
        r"unknown\.npy has id 9999, which no node of .* has; ids are 0 to 599",
    ),
    ("sage", ["--nodes", "words.txt"], 2, r"words\.txt:1: 'abc' is no node id; write one id per line"),
    ("sage", ["--nodes", "empty.txt"], 2, r"empty\.txt: has no ids; write one per line"),
    ("sage", ["--nodes", "sage/model.safetensors"], 2, "is no text; --nodes needs .npy, or one node id per line"),
    ("sage", ["--memory", "10KB"], 2, r"--memory 10 KB is too small: .*; the smallest that works is --memory \d+MB"),
    ("sage", ["--disk", "10KB"], 2, r"--disk 10 KB is too small: .*; the smallest that works is --disk 1MB"),
    ("sage", ["--disk", "10KB", "--fanout", "2"], 2, "--disk 10 KB is too small"),
    ("sage", ["--require", "tset>=.5"], 2, "for example --require 'test>=.70'"),
    ("sage", ["--progress", "dots"], 2, "--progress must be one of bars, json"),
    ("sage", ["--require", "test>=1.1"], 1, r"accuracy on test is 0\.\d+, --require 'test>=1\.1' does not hold; noth"),
    ("nan", [], 1, r"graph: the output of layer 2 for nodes 0, 1, .* has NaN or infinite values"),
    ("nan", ["--fanout", "3"], 1, r"layer 2 \(SageLayer\): its result for node 0 is not finite"),
    ("huge", [], 1, "graph: the output of layer 1 for nodes .* has NaN or infinite values"),
]


@pytest.mark.parametrize(("name", "options", "code", "message"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_is_one_line(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    options: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(folder)
    before = names_in(folder)
    progress = [] if "--progress" in options else ["--progress", "json"]
    assert run(["predict", name, "--out", "out", *options, *progress]) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, lines
    assert re.search(message, lines[0]), lines[0]
    assert names_in(folder) - before <= {".out.work"}, "nothing but finished work stays"
    if ".out.work" in names_in(folder):
        assert "finished work is kept in" in lines[0]
        shutil.rmtree(folder / ".out.work")


def test_the_smallest_memory_and_disk_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for flag in ("--memory", "--disk"):
        assert run(["predict", "sage", "--out", "small", flag, "10KB", "--overwrite"]) == 2
        found = re.search(rf"the smallest that works is {flag} (\w+)", capsys.readouterr().err)
        assert found is not None
        assert run(["predict", "sage", "--out", "small", flag, found[1], "--overwrite"]) == 0
    shutil.rmtree("small")


def test_each_mismatch_of_a_newer_dataset_is_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["predict", str(folder / "sage"), "--dataset", str(folder / "wider"), "--out", str(folder / "out")]
    assert run(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "17 feature columns" in lines[0]
    assert "5 classes" in lines[1]
    assert not (folder / "out").exists()


def test_a_full_disk_is_one_line_that_says_how_much(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("diskhop.predicting.disk.free_bytes", lambda _: 1000)
    assert run(["predict", str(folder / "sage"), "--out", str(folder / "out"), "--progress", "json"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert re.search(r"take \d+ KB, only \S+ KB are free; free some space, or choose another disk with --scratch", line)
    assert not (folder / "out").exists()
    shutil.rmtree(folder / ".out.work", ignore_errors=True)


def test_a_destination_that_cannot_be_used_is_refused_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = folder / "taken"
    taken.mkdir()
    (taken / "thesis.txt").touch()
    refused = (
        (taken, "already exists and is not predictions"),
        (folder / "no/out", "create it first with"),
        (
            Path("/proc/out"),
            "/proc/out: cannot be written: No such file or directory; choose a destination where files",
        ),
    )
    for out, message in refused:
        assert run(["predict", str(folder / "sage"), "--out", str(out)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line
    assert run(["predict", str(folder / "sage"), "--out", str(taken), "--overwrite"]) == 2
    assert names_in(taken) == {"thesis.txt"}


def test_a_read_only_disk_is_one_line(folder: Path, small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert run(["predict", str(folder / "sage"), "--out", str(small_disk / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search("out: cannot be written: Read-only .*; choose a destination", line)


def test_a_second_writer_is_refused_by_process_id(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StagedDirectory(folder / "shared", PREDICTIONS):
        assert run(["predict", str(folder / "sage"), "--out", str(folder / "shared")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"shared: process \d+ is writing to it .*; wait until it ends or choose another destination", line)


def test_ctrl_c_leaves_nothing_half_written_and_the_next_call_resumes(folder: Path) -> None:
    out = folder / "interrupted"
    arguments = ["predict", str(folder / "sage"), "--out", str(out), "--progress", "json"]
    # A child interrupts itself when the second layer is reported, whatever the machine's speed.
    code = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from diskhop.predicting.streamed.table_work import TableWork
write = TableWork.write
def interrupt(self, steps, step, stage):
    if stage == "layer 2":
        os.kill(os.getpid(), signal.SIGINT)
    write(self, steps, step, stage)
TableWork.write = interrupt
from diskhop.cli import run
sys.exit(run({arguments!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("diskhop: interrupted; finished work is kept in")
    assert names_in(folder) & {"interrupted", ".interrupted.partial", ".interrupted.work"} == {".interrupted.work"}
    assert run(arguments) == 0
    assert names_in(folder) & {"interrupted", ".interrupted.partial", ".interrupted.work"} == {"interrupted"}
    assert run(["predict", str(folder / "sage"), "--out", str(folder / "whole")]) == 0
    assert (out / "part-00000.parquet").read_bytes() == (folder / "whole/part-00000.parquet").read_bytes()


@pytest.mark.slow
def test_ctrl_c_waits_for_rows_that_are_written(folder: Path) -> None:
    """Workers write from memory that is free once the writers are closed."""
    arguments = ["predict", str(folder / "sage"), "--out", str(folder / "stopped"), "--threads", "2"]
    code = f"""
import os, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
from diskhop.hops.stream.parts import BandWriter
from diskhop.predicting.streamed.row_step import RowsOfTable
make, leave, closing = RowsOfTable.make, BandWriter.__exit__, threading.Event()
def interrupt(*arguments):
    assert threading.current_thread() is not threading.main_thread()
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGINT)
        early = closing.wait(0.2)
    os.write(1, b"closed too early\\n" if early else b"open\\n")  # whole lines, of two workers
    make(*arguments)
def close(*arguments):
    closing.set()
    leave(*arguments)
RowsOfTable.make, BandWriter.__exit__ = interrupt, close
from diskhop.cli import run
sys.exit(run({arguments!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    assert done.stdout.splitlines()[0] == "open"
    assert done.stderr.splitlines()[-1].startswith("diskhop: interrupted")


def test_json_and_progress_are_for_machines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["predict", str(folder / "sage"), "--out", str(folder / "machine"), "--progress", "json", "--json"]
    assert run([*arguments, "--require", "test>=0", "--nodes", "test"]) == 0
    captured = capsys.readouterr()
    stages = [json.loads(line) for line in captured.err.splitlines()]
    assert {"reading features", "layer 1", "layer 2", "predictions"} <= {each["stage"] for each in stages}
    result = json.loads(captured.out)
    assert result["rows"] == 120
    assert set(result["metrics"]) == {"test"}
    assert [each["step"] for each in result["steps"]] == ["read features", "layer 1", "layer 2"]


def test_tables_may_lie_on_another_disk(folder: Path, tmp_path: Path) -> None:
    arguments = ["predict", str(folder / "sage"), "--out", str(folder / "apart"), "--scratch", str(tmp_path)]
    assert run(arguments) == 0
    assert list(tmp_path.iterdir()) == []
    assert (folder / "apart/_SUCCESS").exists()


def test_nodes_of_a_file_are_predicted(tmp_path: Path) -> None:
    arrays = random_arrays()
    dataset = import_arrays(tmp_path, "numbers", **arrays)
    train(dataset, out=tmp_path / "run", **{**OPTIONS, "epochs": 1})
    (tmp_path / "few.txt").write_text("5\n199\n")
    out = tmp_path / "few"
    assert run(["predict", str(tmp_path / "run"), "--nodes", str(tmp_path / "few.txt"), "--out", str(out)]) == 0
    assert pq.read_table(out).column("id").to_pylist() == [5, 199]


@pytest.mark.fast("parquet")
@pytest.mark.parametrize("format_name", ["parquet", "npy", "tsv"])
def test_a_report_shows_predictions(folder: Path, tmp_path: Path, format_name: str) -> None:
    out = tmp_path / "reported"
    arguments = ["predict", str(folder / "sage"), "--out", str(out), "--format", format_name, "--require", "test>=0"]
    assert run(arguments) == 0
    assert run(["report", str(out)]) == 0
    assert names_in(tmp_path) == {"reported", "reported.html"}
    page = (tmp_path / "reported.html").read_text()
    for text in ("600", "id, class, probability", f"of {format_name}", "test metric", "seconds of each step"):
        assert text in page
    record = read_predictions(out)
    if format_name == "tsv":
        assert record.class_counts == {}
    else:
        assert sum(record.class_counts.values()) == 600
        assert "nodes by predicted class" in page
    # The page is no part of the predictions, so another night may replace them.
    assert run([*arguments, "--overwrite"]) == 0
    assert run(["report", str(folder / "sage"), str(out), "--out", str(tmp_path / "both.html")]) == 0


def test_a_dataset_without_a_split_is_measured_on_that_of_its_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = import_arrays(tmp_path, **random_arrays())
    trained = train(graph, out=tmp_path / "run", **{**OPTIONS, "epochs": 1, "evaluate": True, "eval_fanout": (-1, -1)})
    conditions = ["--require", "test>=0", "--require", "valid>=0"]
    assert run(["predict", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--json", *conditions]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert metrics["test"] == pytest.approx(trained.result["test"]["accuracy"])
    assert set(metrics) == {"test", "valid"}
    out = tmp_path / "nodes"
    assert run(["predict", str(tmp_path / "run"), "--out", str(out), "--nodes", "test"]) == 0
    drawn = read_task(graph, split=0, evaluate=True, memory_bytes=1 << 20).seeds.test
    assert drawn is not None
    assert pq.read_table(out).column("id").to_pylist() == sorted(drawn.tolist())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nodes", "test"], "has no nodes in split 'test'; use --nodes all, or a file of ids"),
        (["--require", "test>=0"], "has no split, and this run has not drawn one for it; remove --require, or import"),
    ],
)
def test_another_dataset_without_a_split_has_no_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    train(import_arrays(tmp_path, **random_arrays()), out=tmp_path / "run", **{**OPTIONS, "epochs": 1})
    newer = import_arrays(tmp_path, "newer", **random_arrays(250))
    out = tmp_path / "out"
    assert run(["predict", str(tmp_path / "run"), "--dataset", str(newer.path), "--out", str(out), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line

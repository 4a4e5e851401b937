"""The command line: what it prints, and that bad input ends with one line, exit code 2 and nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import diskhop
from diskhop.budget import format_bytes
from diskhop.cli import run

Arrays = dict[str, object]


def good_arrays() -> Arrays:
    generator = np.random.default_rng(0)
    return {
        "edge_index": generator.integers(0, 60, (2, 300)),
        "x": generator.normal(size=(60, 5)).astype(np.float32),
        "y": generator.integers(0, 3, 60),
        "train_idx": np.arange(0, 30),
        "val_idx": np.arange(30, 45),
        "test_idx": np.arange(45, 60),
    }


def write_source(folder: Path, arrays: Arrays) -> Path:
    folder.mkdir()
    np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "source", good_arrays())


@pytest.fixture
def graph(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert run(["import", str(source), str(tmp_path / "graph")]) == 0
    capsys.readouterr()
    return tmp_path / "graph"


def expect_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], *words: str, begun: bool = False) -> str:
    """The error's line, the only one unless the run had `begun` and told what it chose."""
    capsys.readouterr()
    assert run(arguments) == 2
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert begun or len(lines) == 1, captured.err
    assert "Traceback" not in captured.err
    assert sum(line.startswith("diskhop: ") for line in lines) == 1
    for word in words:
        assert word in lines[-1], lines[-1]
    return lines[-1]


def test_import_inspect_verify(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = tmp_path / "graph"
    assert run(["import", str(source), str(graph), "--json"]) == 0
    captured = capsys.readouterr()
    described = json.loads(captured.out)
    estimate = described.pop("import")["estimate"]
    assert estimate["result_bytes"] <= estimate["work_bytes"]
    (told,) = captured.err.splitlines()
    assert told.startswith(f"{source}, ")
    assert f"about {format_bytes(estimate['result_bytes'])} on disk (" in told
    assert run(["inspect", str(graph), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == described
    assert described["nodes"]["node"]["count"] == 60
    assert run(["inspect", str(graph)]) == 0
    assert run(["verify", str(graph)]) == 0
    assert "every checksum matches" in capsys.readouterr().out


def test_import_and_inspect_do_not_load_torch(source: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from diskhop.cli import run\n"
        f"assert run(['import', {str(source)!r}, {str(tmp_path / 'graph')!r}]) == 0\n"
        f"assert run(['inspect', {str(tmp_path / 'graph')!r}]) == 0\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [
        (["--version"], {"numpy", "torch", "duckdb", "pyarrow", "plotly"}),
        (["--help"], {"torch", "duckdb", "pyarrow", "plotly"}),
    ],
)
def test_a_command_loads_what_it_needs(arguments: list[str], loaded: set[str]) -> None:
    program = (
        "import sys; from diskhop.cli import run\n"
        f"assert run({arguments!r}) == 0\n"
        f"assert not {loaded!r} & set(sys.modules), {loaded!r} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_python_runs_the_package_as_the_command() -> None:
    def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "diskhop", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert ran("--version").stdout.strip() == diskhop.__version__
    missing = ran("inspect")
    assert missing.returncode == 2
    assert missing.stderr == "diskhop: Missing argument 'DATASET'. See: diskhop inspect --help\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--batch-size", "0"], "--batch-size must be from 1 to 2147483647, got 0; for example --batch-size 1000"),
        (["--fanout", "10,0"], "--fanout must be counts from 1 to 2147483647, or -1 for all neighbours, got [10, 0]"),
        (["--fanout", "ten"], "--fanout: 'ten' must be whole numbers separated by commas, as 10,10"),
        (["--memory", "2XB"], "--memory: size '2XB' is not a number"),
        (["--direction", "up"], "--direction must be one of in, out, both, got 'up'; for example --direction in"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "train"])
def test_a_value_that_breaks_a_rule_names_its_flag_and_one_that_works(
    command: str, arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "graph", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"diskhop: {line}")


def test_doctor_says_what_to_expect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert run(["doctor", str(tmp_path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["device"]["bytes_per_second"] > 0
    assert report["device"]["overhead_seconds"] > 0


def change(**arrays: object) -> Callable[[], Arrays]:
    return lambda: {**good_arrays(), **arrays}


def edges(*pairs: tuple[int, int]) -> np.ndarray:
    return np.ascontiguousarray(np.array(pairs, np.int64).T)


def nan_features() -> np.ndarray:
    x = np.zeros((60, 5), np.float32)
    x[17, 3] = np.nan
    return x


BAD_SOURCES: dict[str, tuple[Callable[[], Arrays], list[str]]] = {
    "id out of range": (change(edge_index=edges((0, 1), (2, 60))), ["edge_index", "60"]),
    "negative id": (change(edge_index=edges((0, 1), (-1, 2))), ["edge_index", "-1"]),
    "edges of the wrong shape": (change(edge_index=np.zeros((3, 4), np.int64)), ["edge_index", "(3, 4)"]),
    "edges that are not integers": (change(edge_index=np.zeros((2, 4))), ["edge_index", "float64"]),
    "array of objects": (change(x=np.array([[{}]] * 60, dtype=object)), ["x", "object"]),
    "NaN features": (change(x=nan_features()), ["feature 3 of node 17"]),
    "features of another length": (change(x=np.zeros((59, 5), np.float32)), ["59", "60"]),
    "labels of another length": (change(y=np.zeros(61, np.int64)), ["y", "61"]),
    "label out of range": (change(y=np.full(60, -5)), ["y", "-5"]),
    "an empty split": (change(val_idx=np.zeros(0, np.int64)), ["val", "empty"]),
    "split out of range": (change(test_idx=np.array([60])), ["test", "60"]),
    "a graph without nodes": (
        lambda: {"edge_index": np.zeros((2, 0), np.int64), "num_nodes": np.array(0)},
        ["no nodes"],
    ),
}


@pytest.mark.parametrize("case", BAD_SOURCES)
def test_a_bad_source_is_one_line_and_leaves_nothing(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays, words = BAD_SOURCES[case]
    source = write_source(tmp_path / "source", arrays())
    expect_one_line(capsys, ["import", str(source), str(tmp_path / "graph")], *words, begun=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_a_graph_without_edges_imports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_source(tmp_path / "source", {**good_arrays(), "edge_index": np.zeros((2, 0), np.int64)})
    assert run(["import", str(source), str(tmp_path / "graph")]) == 0


def test_paths_that_are_not_there_or_not_datasets(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "nowhere")
    expect_one_line(capsys, ["import", missing, str(tmp_path / "graph")], "nowhere")
    for command in ("inspect", "verify", "train", "clean"):
        expect_one_line(capsys, [command, missing], "nowhere")
        expect_one_line(capsys, [command, str(source)], "not a diskhop dataset")
    empty = tmp_path / "empty"
    empty.mkdir()
    expect_one_line(capsys, ["import", str(empty), str(tmp_path / "graph")], "empty", "npz")


def test_an_existing_destination_is_left_alone(source: Path, graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (graph / "manifest.json").read_bytes()
    expect_one_line(capsys, ["import", str(source), str(graph)], "exists")
    assert (graph / "manifest.json").read_bytes() == before


def test_destinations_that_cannot_be_are_one_line(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    expect_one_line(capsys, ["import", str(source), "/"], "/: is the root")
    expect_one_line(capsys, ["import", str(source), str(loop)], "loop: ", "is a symbolic link to itself")
    assert {path.name for path in tmp_path.iterdir()} == {"loop", "source"}


def test_sources_may_have_names_that_are_not_utf_8(tmp_path: Path) -> None:
    folder = tmp_path / "\udcff"
    folder.mkdir()
    (folder / "e.csv").write_text("a,b\na,c\n")
    (folder / "graph.csv").write_text("0,1\n")
    for name in ("e", "graph"):
        assert run(["import", str(folder / f"{name}.csv"), str(tmp_path / name)]) == 0


def test_what_is_printed_may_name_what_is_not_utf_8(source: Path, tmp_path: Path) -> None:
    program = "from diskhop.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "import", str(source), f"{tmp_path}/\udcff"],
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict", "COLUMNS": "1000"},  # paths are not folded
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert os.fsencode(tmp_path) + b"/\xff" in done.stdout


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "diskhop: this machine has too little memory; use a smaller --memory"),
        (OSError(errno.EIO, "Input/output error", "/some/file"), "diskhop: /some/file: failed: Input/output error"),
        (OSError(errno.ENOSPC, "No space"), "diskhop: the output cannot be written: No space"),
    ],
)
def test_what_the_system_refuses_is_one_line(
    error: Exception, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("diskhop.cli.app.load_commands", fail)
    assert run(["inspect", "graph"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(told)
    assert printed.count("\n") == 1


def test_a_newer_format_is_refused(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = graph / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format_version": 1', '"format_version": 2'))
    expect_one_line(capsys, ["inspect", str(graph)], "version 2", "update")


def data_files(graph: Path) -> list[Path]:
    return sorted(path for path in graph.rglob("*.bin") if path.stat().st_size)


def test_truncated_and_flipped_files_are_named(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for position, path in enumerate(data_files(graph)):
        name = str(path.relative_to(graph))
        damaged = tmp_path / f"damaged-{position}"
        shutil.copytree(graph, damaged)
        os.truncate(damaged / name, path.stat().st_size - 1)
        expect_one_line(capsys, ["inspect", str(damaged)], path.name, "bytes")
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 4
        (damaged / name).write_bytes(raw)
        expect_one_line(capsys, ["train", str(damaged), "--epochs", "1"], path.name)


def test_bad_options_list_the_known(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expect_one_line(capsys, ["train", str(graph), "--model", "sagee"], "sagee", "sage", "gcn", "gat")
    expect_one_line(capsys, ["train", str(graph), "--store", "magic"], "magic", "direct", "mapped")
    expect_one_line(capsys, ["train", str(graph), "--preset", "coraa"], "coraa", "cora", "tolokers")
    expect_one_line(capsys, ["train", str(graph), "--engine", "magic"], "magic", "uring", "threads")
    expect_one_line(capsys, ["train", str(graph), "--metric", "magic"], "magic", "accuracy", "auc")
    expect_one_line(capsys, ["train", str(graph), "--modle", "sage"], "--modle", "--model")
    expect_one_line(capsys, ["train", str(graph), "--memory", "2 potatoes"], "2 potatoes")
    expect_one_line(capsys, ["train", str(graph), "--epochs", "-1"], "epochs")
    expect_one_line(capsys, ["train", str(graph), "--fanout", "ten"], "ten")
    expect_one_line(capsys, ["frobnicate"], "frobnicate")
    expect_one_line(capsys, ["train", str(graph), "--pinned", "luck"], "luck", "degree", "accesses")
    for option, value in (("--cache", "1MB"), ("--disk", "1GB"), ("--scratch", "s"), ("--pinned", "degree")):
        options = ["train", str(graph), "--store", "direct", "--epochs", "1", option, value]
        expect_one_line(capsys, options, option, "no effect with --store direct", "remove it", begun=True)
    for store in ("belady", "packed"):
        options = ["train", str(graph), "--epochs", "1", "--store", store]
        expect_one_line(capsys, [*options, "--disk", "1KB"], "--disk 1 KB is too small", begun=True)
        expect_one_line(capsys, [*options, "--scratch", "/dev/null/x"], "/dev/null/x", "--scratch", begun=True)


def test_every_store_trains_the_same_model(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models: list[bytes] = []
    for store, *options in (
        ["memory"],
        ["static", "--cache", "2KB"],
        ["static", "--cache", "2KB", "--pinned", "accesses"],
        ["belady", "--cache", "2KB", "--scratch", str(tmp_path / "scratch"), "--disk", "300KB"],
        ["belady"],
        ["packed", "--cache", "2KB", "--scratch", str(tmp_path / "scratch"), "--disk", "300KB"],
        ["packed", "--pinned", "accesses", "--cache", "2KB"],
        ["packed"],
        ["shared", "--ordered"],
        ["shared", "--ordered", "--cache", "2KB", "--threads", "1"],
    ):
        out = tmp_path / f"run-{len(models)}"
        train = ["train", str(graph), "--epochs", "2", "--batch-size", "5", "--out", str(out), "--store", store]
        assert run([*train, *options]) == 0, capsys.readouterr().err
        models.append((out / "model.safetensors").read_bytes())
    assert len(set(models)) == 1
    assert not list((tmp_path / "scratch").iterdir())


def test_reuse_is_said_in_one_line_and_kept(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = {}
    for name, options in (("reused", ["--reuse"]), ("drawn", [])):
        train = ["train", str(graph), "--epochs", "3", "--batch-size", "5", "--out", str(tmp_path / name), *options]
        assert run(train) == 0
        told = capsys.readouterr().err.splitlines()
        assert sum("drawn once and reused" in line for line in told) == len(options)
        assert f"reuse = {'true' if options else 'false'}" in (tmp_path / name / "config.toml").read_text()
        results[name] = json.loads((tmp_path / name / "result.json").read_text())
    first, drawn = (results[name]["epochs"] for name in ("reused", "drawn"))
    assert first[0]["loss"] == drawn[0]["loss"]
    assert first[1]["loss"] != drawn[1]["loss"]
    assert (results["reused"]["reuse"], results["drawn"]["reuse"]) == (True, False)


def test_too_small_a_budget_names_the_smallest_that_works(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = expect_one_line(
        capsys, ["train", str(graph), "--epochs", "1", "--memory", "10KB"], "10 KB", "smallest that works is "
    )
    smallest = line.rsplit("smallest that works is --memory ", 1)[1]
    out = tmp_path / "run"
    assert run(["train", str(graph), "--epochs", "1", "--memory", smallest, "--out", str(out)]) == 0


def test_training_needs_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = good_arrays()
    del arrays["y"]
    source = write_source(tmp_path / "source", arrays)
    assert run(["import", str(source), str(tmp_path / "graph")]) == 0
    expect_one_line(capsys, ["train", str(tmp_path / "graph")], "labels")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_or_read_only_disk_is_one_line(
    source: Path, graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk is not permitted here")
    try:
        # About what it takes is there, and what files take beside their bytes is not.
        expect_one_line(capsys, ["import", str(source), str(disk / "graph")], str(disk), begun=True)
        assert list(disk.iterdir()) == []
        expect_one_line(
            capsys, ["train", str(graph), "--epochs", "1", "--out", str(disk / "run")], str(disk), begun=True
        )
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        expect_one_line(capsys, ["import", str(source), str(disk / "graph")], str(disk))
        expect_one_line(capsys, ["train", str(graph), "--epochs", "1", "--out", str(disk / "run2")], str(disk))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_train_on_hops_prints_its_choices_and_what_it_found(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", str(graph), "--model", "sign", "--hops", "2", "--direction", "both", "--epochs", "1"]) == 0
    captured = capsys.readouterr()
    assert "Propagating before training: " in captured.err
    assert "operators sign as in the paper on sign" in " ".join(captured.err.split())
    assert "bytes" in captured.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "sign", "--fanout", "10,10"], ("--fanout is for", "sage, gcn, gat", "'sign'")),
        (["--model", "hoga", "--store", "direct"], ("--store is for", "sage, gcn, gat", "'hoga'")),
        (["--model", "sage", "--hops", "2"], ("--hops is for", "sgc, sign, hoga", "'sage'")),
        (["--model", "sgc", "--operator", "sgc", "--operator", "sign"], ("sgc takes one operator",)),
        (["--model", "sign", "--operator", "laplace"], ("unknown operator 'laplace'",)),
        (["--model", "sign", "--hops", "0"], ("hops must be from 1",)),
    ],
)
def test_options_of_another_kind_of_model_end_with_one_line(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: tuple[str, ...]
) -> None:
    expect_one_line(capsys, ["train", str(graph), "--out", str(tmp_path / "run"), *arguments], *words)
    assert not (tmp_path / "run").exists()

"""A worker process that is killed within a part: one line, nothing hangs or stays; the next call makes the bytes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from diskhop.cli import run
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.partitions import sort
from diskhop.predicting.row_files import RowFile
from diskhop.runs.start import train
from diskhop.runtime.workers import PipeLane
from tests.embedding import committed_bytes
from tests.executing import result_bytes
from tests.graphs import random_pairs
from tests.runs import import_arrays

pytestmark = pytest.mark.slow
NUM_NODES = 9000
PROCESSES = ["--executor", "processes", "--workers", "2"]
SHARED = ["--memory", "300MB", "--threads", "2", "--engine", "threads"]
LINE = "was ended by SIGKILL before its work was done, probably because memory ran out; use fewer --workers or free"


@pytest.fixture(scope="module")
def graph(module_folder: Path) -> Dataset:
    rng = np.random.default_rng(0)
    return import_arrays(
        module_folder,
        "graph",
        edge_index=random_pairs(NUM_NODES, 20_000),
        x=rng.normal(size=(NUM_NODES, 16)).astype(np.float32),
        y=rng.integers(0, 3, NUM_NODES),
        train_idx=np.arange(300),
        val_idx=np.arange(300, 400),
        test_idx=np.arange(400, 500),
    )


def kill_in_part(monkeypatch: pytest.MonkeyPatch, wanted: int) -> list[int]:
    """Kill the worker of a part of the job, once it has begun. Returns the parts that are left until then."""
    left, lock, whole = [wanted], threading.Lock(), PipeLane.send

    def send(lane: PipeLane, what: str, about: object) -> None:
        whole(lane, what, about)
        if what == "run":
            with lock:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(lane._process.pid, signal.SIGKILL)

    monkeypatch.setattr(PipeLane, "send", send)
    return left


def require_line(words: list[str], capfd: pytest.CaptureFixture[str], left: list[int]) -> None:
    assert run([*words, *PROCESSES]) == 1
    (line,) = [each for each in capfd.readouterr().err.splitlines() if each.startswith("diskhop: ")]
    assert line.startswith("diskhop: worker process ")
    assert LINE in line
    assert left[0] <= 0
    assert all(process.name() != "python" for process in psutil.Process().children())


@pytest.mark.parametrize("part", [1, 3, 6, 8, 13])
def test_an_embedding_whose_edges_were_being_sorted_is_resumed(
    graph: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], part: int
) -> None:
    """Each of four ranges is counted and then placed, first of the edges of training, then of those dealt out again."""
    monkeypatch.setattr(sort, "LEAST_RANGE_EDGES", 1 << 12)
    options = ["--model", "dot", "--dim", "4", "--epochs", "1", "--partitions", "4", "--buffer", "2"]
    options += ["--repartitions", "2", "--batch-size", "5000", *SHARED]

    def words(out: str) -> list[str]:
        return ["embed", str(graph.path), "--out", str(tmp_path / out), *options]

    assert run(words("alone")) == 0
    with monkeypatch.context() as patched:
        require_line(words("killed"), capfd, kill_in_part(patched, part))
    assert run(["embed", "--resume", "--out", str(tmp_path / "killed"), *PROCESSES]) == 0
    assert committed_bytes(tmp_path / "killed") == committed_bytes(tmp_path / "alone")


@pytest.mark.parametrize("model", ["sign", "sage"])
def test_predictions_resume_after_a_worker_was_killed(
    graph: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    model: str,
) -> None:
    monkeypatch.setattr(RowFile, "range_rows", property(lambda file: 1024))
    options = {"hops": 2} if model == "sign" else {"fanout": (4, 4)}
    train(graph, out=tmp_path / "run", model=model, hidden=8, epochs=1, memory="300MB", threads=2, **options)

    def words(out: str) -> list[str]:
        fanout = ["--fanout", "3,3"] if model == "sage" else []
        what = ["--what", "class,embedding", "--format", "npy", "--scratch", str(tmp_path / f"{out} scratch")]
        return ["predict", str(tmp_path / "run"), "--out", str(tmp_path / out), *what, *fanout, *SHARED]

    assert run(words("alone")) == 0
    whole: Callable[..., None] = RowFile.write

    def write(file: RowFile, *arguments: object, **more: object) -> None:
        """Kill a worker in the first job of the rows."""
        with pytest.MonkeyPatch.context() as inner:
            lefts.append(kill_in_part(inner, 2))
            whole(file, *arguments, **more)

    lefts = list[list[int]]()
    with monkeypatch.context() as patched:
        patched.setattr(RowFile, "write", write)
        assert run([*words("killed"), *PROCESSES]) == 1
    told = capfd.readouterr().err
    assert LINE in told
    assert "run the same command again to resume" in told
    assert lefts[0][0] <= 0
    assert not (tmp_path / "killed").exists()
    assert all(process.name() != "python" for process in psutil.Process().children())
    assert run([*words("killed"), *PROCESSES]) == 0
    assert result_bytes(tmp_path / "killed") == result_bytes(tmp_path / "alone")

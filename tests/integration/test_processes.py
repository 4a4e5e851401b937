"""Datasets, engines and loaders in other processes: right, or one line, and never a wait without an end."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import diskhop
from diskhop._native import Engine, File, why_no_uring
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, FormatError
from diskhop.runtime.process import ends_in_child
from diskhop.stores.stores import STORES
from tests.forks import fork
from tests.runs import small_graph

ENGINES = ["threads", pytest.param("uring", marks=pytest.mark.skipif(bool(why_no_uring()), reason=why_no_uring()))]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "g", num_nodes=100, num_edges=800)


def one(number: int) -> NDArray[np.uint64]:
    return np.array([number], np.uint64)


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_is_refused_in_a_forked_child_and_goes_on_in_the_parent(tmp_path: Path, name: str) -> None:
    (tmp_path / "f").write_bytes(bytes(range(256)) * 16)
    engine, file, content = Engine(name, 4), File(str(tmp_path / "f"), "read", False), np.zeros(4096, np.uint8)
    engine.wait(engine.submit_read(file, one(0), one(4096), content, one(0)))
    begun = engine.submit_read(file, one(0), one(4096), content, one(0))

    def use() -> None:
        nonlocal engine
        asks: list[Callable[[Engine], object]] = [
            lambda engine: engine.submit_read(file, one(0), one(4096), content, one(0)),
            lambda engine: engine.submit_fsync(file),
            lambda engine: engine.wait(begun),
            lambda engine: engine.poll(begun),
        ]
        for ask in asks:
            with pytest.raises(ConfigError, match=rf"this engine is of process {os.getppid()}.*make a new one"):
                ask(engine)
        del engine
        gc.collect()

    assert fork(use) == 0
    engine.wait(begun)
    assert content.tobytes() == (tmp_path / "f").read_bytes()


def test_a_pickled_dataset_is_the_one_that_is_there(dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "g"
    shutil.copytree(dataset.path, path)
    pickled = pickle.dumps(diskhop.open_dataset(path))
    found = pickle.loads(pickled)
    assert found.hash == dataset.hash
    assert np.array_equal(found.degrees, dataset.degrees)

    shutil.rmtree(path)
    with pytest.raises(FormatError, match="does not exist"):
        pickle.loads(pickled)
    small_graph(path, num_nodes=100, num_edges=800, seed=2)
    with pytest.raises(FormatError, match=r"was replaced since the Dataset was pickled.*open it again"):
        pickle.loads(pickled)


def test_what_a_transform_raises_reaches_the_caller_with_its_traceback(dataset: Dataset) -> None:
    def transform(data: Any) -> Any:
        if data.input_id[0] >= 20:
            raise KeyError("of the transform")
        return data

    with diskhop.NeighborLoader(dataset, [2], batch_size=10, memory="50MB", transform=transform) as loader:
        batches = iter(loader)
        next(batches), next(batches)
        with pytest.raises(KeyError, match="of the transform") as caught:
            next(batches)
        assert caught.traceback[-1].name == "transform"
        with pytest.raises(StopIteration):
            next(batches)
        assert not [each.name for each in threading.enumerate() if each.name.startswith("diskhop_")]


@pytest.mark.parametrize(("ending", "code"), [("sys.exit(3)", 3), ("1 / 0", 1), ("pass", 1)])
def test_a_child_that_would_leave_a_callback_ends(ending: str, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    with ends_in_child():
        child = os.fork()
        if child == 0:
            exec(ending)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    told = {"pass": "cannot continue its work; end it with os._exit(0)", "1 / 0": "ZeroDivisionError"}.get(ending, "")
    assert told in capfd.readouterr().err


# What follows runs in processes of its own, since a fork of pytest's would take along its threads.
BEGIN = """
import os, subprocess, sys, warnings
from multiprocessing import get_context
import torch
import diskhop

class Batches(torch.utils.data.IterableDataset):
    def __init__(self, loader):
        self.loader = loader
    def __iter__(self):
        return iter(self.loader)

def count(dataset):
    return dataset.num_nodes, dataset.features[[0]].shape[0]

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    kind, folder = sys.argv[1:]
    dataset = diskhop.open_dataset(folder)

    def make(**options):
        return diskhop.NeighborLoader(dataset, [2, 2], batch_size=10, memory="64MB", **options)
"""
PROGRAMS = {
    # A worker of a DataLoader refuses the loader in one line.
    "fork workers": """
    workers = torch.utils.data.DataLoader(Batches(make(store=kind)), batch_size=None, num_workers=2,
                                          multiprocessing_context="fork")
    try:
        list(workers)
    except diskhop.DiskhopError as error:
        assert "num_workers=0" in str(error), error
    else:
        sys.exit("the workers had batches")
    """,
    "spawn workers": """
    workers = torch.utils.data.DataLoader(Batches(make(store=kind)), batch_size=None, num_workers=2,
                                          multiprocessing_context="spawn")
    try:
        list(workers)
    except diskhop.DiskhopError as error:
        assert "cannot be pickled" in str(error), error
    else:
        sys.exit("the workers had batches")
    """,
    "pools": """
    for method in ("spawn", "forkserver", "fork"):
        with get_context(method).Pool(1) as pool:
            assert pool.apply_async(count, (dataset,)).get(60) == (100, 1)
    """,
    # Processes that a transform starts leave the parent's batches right.
    "transform": """
    def transform(data):
        subprocess.run([sys.executable, "-c", ""], check=True)
        child = get_context("fork").Process(target=print)
        child.start()
        child.join(60)
        assert child.exitcode == 0
        if os.fork() == 0:
            sys.exit(0)
        return data
    order = {"ordered": True} if kind == "shared" else {}
    with make(store=kind, **order) as loader, make(store=kind, transform=transform, **order) as other:
        for one, two in zip(loader, other, strict=True):
            assert torch.equal(one.x, two.x) and torch.equal(one.n_id, two.n_id)
    """,
    "exit": """
    loader = make(store=kind)
    batches = iter(loader)
    next(batches)
    first = loader([0])
    """,
    "callback": """
    class Forks(diskhop.Callback):
        def batch_done(self, progress):
            if progress.batch == 2 and os.fork() == 0:
                sys.exit(0)
        def epoch_done(self, record):
            assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    options = dict(epochs=2, batch_size=10, memory="64MB", store=kind, seed=0)
    options |= {"ordered": True} if kind == "shared" else {}
    runs = [diskhop.train(dataset, callbacks=callbacks, **options) for callbacks in ([], [Forks()])]
    losses = [[record["loss"] for record in run.result["epochs"]] for run in runs]
    assert losses[0] == losses[1]
    assert not list(dataset.path.glob("derived/run-*"))
    """,
}
KINDS = {"pools": ["direct"], "spawn workers": ["direct"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "kind"), [(name, kind) for name in PROGRAMS for kind in KINDS.get(name, [*STORES])]
)
def test_other_processes_neither_wait_nor_disturb(dataset: Dataset, tmp_path: Path, program: str, kind: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(BEGIN + PROGRAMS[program])
    done = subprocess.run(
        [sys.executable, str(script), kind, str(dataset.path)],
        timeout=300,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr

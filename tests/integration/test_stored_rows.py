"""Learned rows that exceed the memory are on disk, and train the same model."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

import diskhop
from diskhop.embedding.rows.layout import RowLayout
from diskhop.embedding.rows.module import RowPlace, StoredRows
from diskhop.embedding.rows.versions import read_rows
from diskhop.errors import DestinationError, ReadError, TrainingError
from diskhop.io.engine import open_engine
from diskhop.nn.typed.embeddings import LearnedRows
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.checkpoint import load_tensors
from diskhop.runs.learned_rows import memory_for_rows, place_learned
from diskhop.runs.predict.run import predict_run
from tests.ranks import RanksJob, folders_of, run_jobs
from tests.runs import InterruptedRunError, _Interrupter

OPTIONS: dict[str, Any] = {"epochs": 3, "batch_size": 100, "hidden": 32, "fanout": (4, 3), "threads": 1, "seed": 2}
LARGE, SMALL = "400MB", "50MB"
NUM_AUTHORS = 100_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of papers with features and of many authors without."""
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["paper"].x = torch.randn(600, 6, generator=generator)
    data["paper"].y = torch.randint(0, 3, (600,), generator=generator)
    data["author"].num_nodes = NUM_AUTHORS
    for number, part in enumerate(("train", "val", "test")):
        data["paper"][f"{part}_mask"] = torch.arange(600) % 3 == number
    ends = [torch.randint(0, count, (6000,), generator=generator) for count in (NUM_AUTHORS, 600)]
    data["author", "writes", "paper"].edge_index = torch.stack(ends)
    folder = tmp_path_factory.mktemp("stored") / "graph"
    diskhop.from_pyg(data, folder)
    return folder


class Rows(NamedTuple):
    authors: np.ndarray[Any, Any]
    others: dict[str, torch.Tensor]


def read_run(run: Path) -> Rows:
    """The rows of authors in a run's best model, and its other parameters."""
    tensors, _ = load_tensors(run / "model.safetensors")
    version = tensors.pop("learned.author.version", None)
    if version is None:
        authors = tensors.pop("learned.author.values").numpy()
        tensors.pop("learned.author.squares")
    else:
        file = run / "learned" / f"author.{int(version[0])}.bin"
        authors = read_rows(file, RowLayout(num_rows=NUM_AUTHORS, dim=32), open_engine().engine, 0, NUM_AUTHORS)
    return Rows(authors, tensors)


def assert_equal_runs(found: Path, expected: Path) -> None:
    rows, wanted = read_run(found), read_run(expected)
    np.testing.assert_array_equal(rows.authors, wanted.authors)
    assert rows.others.keys() == wanted.others.keys()
    assert all(torch.equal(tensor, rows.others[name]) for name, tensor in wanted.others.items())


@pytest.fixture(scope="module")
def in_memory(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "memory"
    trained = diskhop.train(path, out=run, memory=LARGE, **OPTIONS)
    assert trained.result["plan"]["reserved"]["checkpoints of learned features"] > 0
    return run


@pytest.fixture(scope="module")
def on_disk(path: Path, in_memory: Path) -> Path:
    run = in_memory.parent / "disk"
    trained = diskhop.train(path, out=run, memory=SMALL, **OPTIONS)
    reserved = trained.result["plan"]["reserved"]
    assert 0 < reserved["learned features"] < 13_000_000
    assert "checkpoints of learned features" not in reserved
    return run


def test_rows_on_disk_are_those_in_memory(in_memory: Path, on_disk: Path) -> None:
    assert_equal_runs(on_disk, in_memory)
    # The best model's and the last one's; the file in use is gone.
    assert 1 <= len(list((on_disk / "learned").iterdir())) <= 2


def test_predictions_read_rows_on_disk(path: Path, in_memory: Path, on_disk: Path, tmp_path: Path) -> None:
    for run in (in_memory, on_disk):
        predict_run(run, out=tmp_path / run.name, what=("logits",), memory="200MB", format="npy")
    files = [sorted((tmp_path / run.name).glob("*.npy")) for run in (in_memory, on_disk)]
    assert files[0]
    for found, expected in zip(*files, strict=True):
        np.testing.assert_array_equal(np.load(found), np.load(expected))


@pytest.mark.slow
def test_several_processes_are_refused_with_the_memory_that_rows_take(path: Path, tmp_path: Path) -> None:
    options = {**OPTIONS, "threads": 2, "memory": "100MB", "dataset": str(path)}
    ((first, _other),) = run_jobs([RanksJob(2, options, outs=folders_of(tmp_path / "run"))])
    least_bytes = memory_for_rows({"author": RowLayout(num_rows=NUM_AUTHORS, dim=32)}, is_summed=True)
    assert first == (
        "learned features of author exceed --memory 100 MB for 2 processes on one machine, and are trained in one "
        f"process from disk: use --memory {-(-2 * least_bytes // 1_000_000)}MB, or one process"
    )
    assert not (tmp_path / "run").exists()
    counts = {"author": NUM_AUTHORS}
    assert not place_learned(counts, 32, least_bytes, accumulate=2).is_on_disk
    assert place_learned(counts, 32, least_bytes - 1, accumulate=2).is_on_disk


class _Kill(Callback):
    def batch_done(self, progress: BatchProgress) -> None:
        if progress.epoch == 1 and progress.batch == 2:
            os.kill(os.getpid(), signal.SIGKILL)


def _train_and_die(path: Path, run: Path) -> None:
    diskhop.train(path, out=run, memory=SMALL, callbacks=[_Kill()], **OPTIONS)


@pytest.mark.slow
def test_a_killed_run_resumes_with_the_rows_of_its_checkpoint(path: Path, in_memory: Path, tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_train_and_die, args=(path, tmp_path / "run"))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert (tmp_path / "run" / "learned" / "author.work.bin").exists()
    diskhop.train(out=tmp_path / "run", resume=True)
    assert_equal_runs(tmp_path / "run", in_memory)


def test_resuming_removes_rows_that_a_crash_left(path: Path, tmp_path: Path) -> None:
    run, options = tmp_path / "run", {**OPTIONS, "epochs": 1}
    with pytest.raises(InterruptedRunError):
        diskhop.train(path, out=run, memory=SMALL, callbacks=[_Interrupter(1)], **options)
    shutil.copy(run / "learned" / "author.1.bin", run / "learned" / "author.0.bin")
    diskhop.train(out=run, resume=True)
    assert [file.name for file in (run / "learned").iterdir()] == ["author.1.bin"]


def test_a_disk_that_is_too_small_is_refused(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("diskhop.io.atomic.shutil.disk_usage", lambda _: usage._replace(free=40_000_000))
    message = "4 copies of the learned rows, for checkpoints, takes .*, only 40 MB are free"
    with pytest.raises(DestinationError, match=message) as raised:
        diskhop.train(path, out=tmp_path / "run", memory=SMALL, **OPTIONS)
    assert "\n" not in str(raised.value)


def test_a_damaged_version_is_refused(path: Path, on_disk: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(on_disk, run)
    for file in (run / "learned").iterdir():
        with file.open("r+b") as opened:
            opened.seek(1000)
            opened.write(b"damage")
    with pytest.raises(ReadError, match=r"author\..*bin: is damaged"):
        predict_run(run, out=tmp_path / "out", memory="200MB")


@pytest.mark.fast(3)
@pytest.mark.parametrize(("num_rows", "dim"), [(3000, 5), (3000, 64), (300, 1500)])
@pytest.mark.parametrize("num_cached", [1, 7, 10_000])
def test_rows_do_not_depend_on_the_cache(num_rows: int, dim: int, num_cached: int, tmp_path: Path) -> None:
    layout = RowLayout(num_rows=num_rows, dim=dim)
    stored = StoredRows("a", layout, layout.cache_bytes(num_cached), seed=3, key=1)
    expected = LearnedRows(num_rows, dim, seed=3, key=1, is_summed=True)
    stored.open(RowPlace(tmp_path, open_engine().engine))
    random, every = np.random.default_rng(0), np.arange(num_rows)
    for turn in range(6):
        for _ in range(1 + turn % 2):
            ids = random.choice(num_rows, 100, replace=False)
            weights = torch.randn(100, dim, generator=torch.Generator().manual_seed(turn))
            for rows in (stored, expected):
                torch.autograd.backward((rows(ids) * weights).sum())
        stored.step(0.1, 3.0)
        expected.step(0.1, 3.0)
        if turn == 3:
            stored.keep()
            kept = {name: tensor.clone() for name, tensor in stored.state_dict().items()}
            values = expected(every).detach().clone()
    assert torch.equal(stored(every), expected(every))
    stored.load_state_dict(kept)
    assert torch.equal(stored(every), values)
    stored.close()
    with pytest.raises(
        TrainingError, match=r"learned rows of a .* were closed with their run: use 'diskhop predict RUN'"
    ):
        stored(every)


def test_rows_are_on_disk_where_they_and_their_checkpoints_do_not_fit() -> None:
    assert not place_learned({"author": 1000}, 64, 2_000_000).is_on_disk
    assert place_learned({}, 64, 1).held() == {}
    place = place_learned({"author": 30_000, "venue": 10_000}, 64, 20_000_000)
    assert place.is_on_disk
    assert place.cache_bytes["venue"] <= place.cache_bytes["author"] / 2
    assert sum(place.cache_bytes.values()) <= 20_000_000 // 4
    assert "author, venue on disk" in place.describe()

"""A RUN folder belongs to one process at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from diskhop.dataset.dataset import Dataset
from diskhop.errors import BusyError
from diskhop.runs.start import embed, train
from tests.runs import small_graph

TRAIN: dict[str, Any] = {"model": "sgc", "hops": 1, "epochs": 1, "memory": "200MB", "engine": "threads"}
EMBED: dict[str, Any] = {"model": "dot", "dim": 4, "epochs": 1, "memory": "200MB", "engine": "threads"}


@contextmanager
def another_process(folder: Path) -> Iterator[None]:
    """Lock a folder as another process that trains there does."""
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


@pytest.fixture
def graph(tmp_path: Path) -> Dataset:
    return small_graph(tmp_path / "graph")


@pytest.mark.parametrize(("command", "options"), [(train, TRAIN), (embed, EMBED)])
def test_a_run_that_another_process_trains_is_refused(
    graph: Dataset, tmp_path: Path, command: Any, options: dict[str, Any]
) -> None:
    out = tmp_path / "run"
    with another_process(out), pytest.raises(BusyError, match=r"run: .*process \d* ?is writing to it"):
        command(graph, out=out, **options)
    assert not list(out.iterdir()), "nothing is written"
    command(graph, out=out, **options)
    before = (out / "result.json").read_bytes()
    with another_process(out), pytest.raises(BusyError, match="wait until it ends or choose another destination"):
        command(graph, out=out, resume=True)
    assert (out / "result.json").read_bytes() == before
    command(graph, out=out, resume=True)

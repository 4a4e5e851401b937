"""The error that is reported, of several, does not depend on threads."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from diskhop.errors import SourceError
from diskhop.runtime.tasks import Task, TaskTools, run_tasks
from tests.graphs import threads_engine


@dataclass
class Fails:
    """A task that fails, once `after` is set."""

    name: str
    after: threading.Event
    sets: threading.Event

    def write(self, path: Path, tools: TaskTools) -> None:
        try:
            assert self.after.wait(10)
            raise SourceError(self.name)
        finally:
            self.sets.set()


@dataclass
class Works:
    """A task that makes its file."""

    name: str

    def write(self, path: Path, tools: TaskTools) -> None:
        path.write_bytes(b"")


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_the_error_is_that_of_the_first_task_in_the_list(tmp_path: Path, threads: int) -> None:
    at_once, second_failed = threading.Event(), threading.Event()
    at_once.set()
    if threads == 1:
        second_failed.set()
    tasks: list[Task] = [
        Works("0"),
        Fails("first", after=second_failed, sets=threading.Event()),
        Fails("second", after=at_once, sets=second_failed),
        *(Works(f"{number}") for number in range(1, 2000)),
    ]
    with pytest.raises(SourceError, match="first"):
        run_tasks(tasks, tmp_path, TaskTools(threads_engine()), threads=threads)
    made = {path.name for path in tmp_path.iterdir()}
    assert "0" in made
    assert len(made) < 1000, "an error stops the rest"

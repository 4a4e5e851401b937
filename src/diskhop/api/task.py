"""diskhop.task(): the command `diskhop task`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diskhop.display import Display, Facts, Part, Row
from diskhop.runtime.array_index import run_index


@dataclass(frozen=True, slots=True, repr=False)
class TaskShare(Display):
    """A share of another command's tasks that was run.

    folder: that of the other command.
    index, of: number of the share, and of shares.
    tasks: tasks that it ran.
    stages: lists of tasks that it took part in.
    """

    folder: Path
    index: int
    of: int
    tasks: int
    stages: int

    def rows(self) -> list[Row]:
        """Return names and texts of lines for people."""
        stages = f"{self.stages} stage{'s' * (self.stages != 1)}"
        return [("tasks", f"{self.tasks} in {stages}"), ("folder", str(self.folder))]

    def _title(self) -> str:
        return f"Share {self.index} of {self.of}"

    def _parts(self) -> Sequence[Part]:
        return [Facts(self.rows())]


def task(folder: Path | str, *, index: int, of: int) -> TaskShare:
    """Run one share of a command's tasks, for array jobs of a scheduler, until the command ends.

    folder: that of a command, or function, with executor 'array:DIR'.
    index: number of this share, from 0; any order.
    of: number of shares.

    Raises ConfigError for an invalid index; WorkerError without a driver, or if it failed.

    >>> import threading
    >>> options = {"hops": 3, "memory": "200MB", "executor": "array:tasks"}
    >>> driver = threading.Thread(target=diskhop.propagate, args=("my-graph",), kwargs=options)
    >>> driver.start()
    >>> done = diskhop.task("tasks", index=0, of=1)
    >>> driver.join()
    """
    done = run_index(Path(folder), index, of)
    return TaskShare(Path(folder), index, of, done.parts, done.jobs)

"""Tools that a step of preprocessing works with: its folder, engine, budget, threads and progress."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from diskhop.budget import Budget
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools, WorkFolder


@dataclass(frozen=True, slots=True)
class WorkTools:
    """Tools of an import or export.

    folder: where finished stages are kept.
    tools: engine, fault injector and workers of the tasks.
    budget: memory to reserve from.
    threads: threads of all workers together.
    progress: receives (stage, done, total).
    held: reservations and open files that stay until the result is finished.
    part: name of the part that is worked on, where a source has several of a kind; it is added to stage names.
    """

    folder: WorkFolder
    tools: TaskTools
    budget: Budget
    threads: int
    progress: Progress
    held: ExitStack
    part: str = ""

    def stage(self, name: str, key: str) -> Path:
        """Open a stage of the work folder (see WorkFolder.stage)."""
        return self.folder.stage(f"{name}-{self.part}" if self.part else name, key)

    @property
    def spill(self) -> Path:
        """Folder for data that DuckDB does not keep in memory."""
        return self.folder.path / ".spill"

"""What a step of preprocessing works with: its folder, engine, budget, threads and progress."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from diskhop.budget import Budget
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools, WorkFolder


@dataclass(frozen=True, slots=True)
class WorkTools:
    """What reading a source works with. held: what stays reserved and open until the dataset is finished.

    part: of a source that has several of a kind, the one whose stages are made.
    """

    work: WorkFolder
    tools: TaskTools
    budget: Budget
    threads: int
    progress: Progress
    held: ExitStack
    part: str = ""

    def stage(self, name: str, key: str) -> Path:
        """A stage of the work folder, see WorkFolder."""
        return self.work.stage(f"{name}-{self.part}" if self.part else name, key)

    @property
    def spill(self) -> Path:
        """A folder for what DuckDB does not hold in memory."""
        return self.work.path / ".spill"

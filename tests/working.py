"""Tasks for worker processes, in a module that these can load."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from diskhop.errors import BudgetError
from diskhop.io.engine import open_engine
from diskhop.runtime.tasks import TaskTools, run_tasks
from diskhop.runtime.workers import Workers


@dataclass(frozen=True, slots=True)
class Sleeps:
    """Writes the process that does it, and takes its time. fails: raises an error then; dies: ends the process."""

    name: str
    seconds: float = 0
    fails: bool = False
    dies: bool = False

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task."""
        path.write_text(f"{os.getpid()} ")
        tools.count(1)
        time.sleep(self.seconds)
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fails:
            error = BudgetError("too small", 7)
            error.add_note("a note")
            raise error


def sleep() -> None:
    """Have two workers sleep for a minute, with their outputs in the folder that is the argument."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's children in the background ignore it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    engine = open_engine("threads").engine
    with Workers(2, 2, engine) as workers:
        tasks = [Sleeps(name, 60) for name in "ab"]
        run_tasks(tasks, Path(sys.argv[1]), TaskTools(engine, executor=workers), threads=2)

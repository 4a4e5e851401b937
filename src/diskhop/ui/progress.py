"""Progress bars on a terminal: one per stage of long work, with the time left; nothing is drawn elsewhere."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class StageProgress:
    """A bar per stage. Nothing is drawn before the first one, so that an early error stands alone."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Report that `done` of `total` of a stage is done."""
        if stage not in self._tasks:
            self._bars.start()
            self._tasks[stage] = self._bars.add_task(stage, total=total, status="")
        self._bars.update(self._tasks[stage], completed=done, total=total)


class JsonProgress:
    """Prints a line of JSON per report, for machines: at most one per stage and second, and the last of each."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: dict[str, float] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Report that `done` of `total` of a stage is done."""
        now = time.monotonic()
        if done < total and now - self._shown.get(stage, -1.0) < 1:
            return
        self._shown[stage] = now
        line = json.dumps({"stage": stage, "done": done, "total": total})
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def json_progress(console: Console) -> Iterator[JsonProgress]:
    """Open a JsonProgress on a console."""
    yield JsonProgress(console)


@contextmanager
def stage_progress(console: Console) -> Iterator[StageProgress]:
    """Open a StageProgress on a console; leaving the context removes its bars."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    bars = Progress(
        *columns,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    try:
        yield StageProgress(bars)
    finally:
        bars.stop()

"""Progress of long work: bars with the time left on a terminal and in a notebook, a line a minute in a log file.

Colours are left out where the environment has NO_COLOR.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 60.0


def draws_bars(console: Console) -> bool:
    """Whether bars can be drawn on a console: a terminal, or a notebook that has widgets."""
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


class MinuteLines:
    """Prints a line a minute, for logs; short work prints none. Nothing is printed where bars are drawn.

    clock: returns the seconds now.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._is_quiet = draws_bars(console)
        self._last: float | None = None

    def show(self, line: Callable[[], str]) -> None:
        """Print a line, if the last one was a minute ago."""
        if self._is_quiet:
            return
        now = self._clock()
        if self._last is None:
            self._last = now
        elif now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            self._console.print(line(), markup=False)


class StageProgress:
    """A bar per stage, or a line a minute. Nothing is drawn before the first one, so that an early error stands alone.

    clock: returns the seconds now.
    """

    def __init__(self, bars: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self._bars = bars
        self._clock = clock
        self._lines = MinuteLines(bars.console, clock)
        self._tasks: dict[str, TaskID] = {}
        self._began: dict[str, float] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Report that `done` of `total` of a stage is done."""
        if stage not in self._tasks:
            self._bars.start()
            self._tasks[stage] = self._bars.add_task(stage, total=total, status="")
            self._began[stage] = self._clock()
        self._bars.update(self._tasks[stage], completed=done, total=total)
        self._lines.show(lambda: self._line(stage, done, total))

    def _line(self, stage: str, done: int, total: int) -> str:
        seconds = self._clock() - self._began[stage]
        left = f", {seconds * (total - done) / done:.0f} s left" if 0 < done < total else ""
        share = f"{done / total:.0%}" if total else "100%"
        return f"{stage}: {share} after {seconds:.0f} s{left}"


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
        disable=not draws_bars(console),
    )
    try:
        yield StageProgress(bars)
    finally:
        bars.stop()

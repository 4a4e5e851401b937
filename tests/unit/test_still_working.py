"""A run that shows nothing yet says every ten seconds what it does."""

from __future__ import annotations

import io
import re
import threading

from rich.console import Console

from diskhop.ui.still_working import StillWorking


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def make(clock: Clock, out: io.StringIO | None = None, seconds_apart: float = 10.0) -> StillWorking:
    return StillWorking(Console(file=out or io.StringIO(), width=200), "Planning", seconds_apart, clock)


def test_a_line_has_the_work_its_seconds_and_its_bytes() -> None:
    clock = Clock()
    work = make(clock)
    clock.now = 10.0
    assert re.fullmatch(r"Planning: 10 s so far, \d[\d.]* [kMG]?B read from the disk", work.look())
    work.now_does("Reading what stays in memory")
    clock.now = 24.0
    assert work.look().startswith("Reading what stays in memory: 14 s so far")
    # Naming the same work again keeps its start.
    work.now_does("Reading what stays in memory")
    assert work.look().startswith("Reading what stays in memory: 14 s so far")


def test_after_a_minute_a_line_a_minute() -> None:
    clock = Clock()
    work = make(clock)
    said = []
    for second in range(10, 250, 10):
        clock.now = float(second)
        if work.look():
            said.append(second)
    assert said == [10, 20, 30, 40, 50, 60, 120, 180, 240]


def test_work_with_lines_of_its_own_has_none_after_a_minute() -> None:
    clock = Clock()
    work = make(clock)
    work.now_does("packing", has_lines=True)
    clock.now = 30.0
    assert work.look()
    clock.now = 100.0
    assert work.look() == ""


class Written(io.StringIO):
    """A file that says when it is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_written = threading.Event()

    def flush(self) -> None:
        self.is_written.set()


def test_lines_are_printed_until_the_work_ends() -> None:
    out = Written()
    with make(Clock(), out, seconds_apart=0.001) as work:
        assert out.is_written.wait(60)
        work.end()
        printed = out.getvalue()
    assert out.getvalue() == printed

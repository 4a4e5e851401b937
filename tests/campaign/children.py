"""Forked children that make tries: one that crashes or hangs is a failed try, and the campaign continues."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple

# A child that says nothing for so long hangs.
PATIENCE_SECONDS = 120.0


def tries_in_children(
    make: Callable[[int], Generator[str]], first: int, count: int, *, lot: int, patience: float = PATIENCE_SECONDS
) -> Generator[str]:
    """Yield the outcome of each try; see Case.run.

    make: called in a child with the number of a try, yields the outcome of that try and of those after it. lot: tries
    of one child. patience: seconds that a try may take.
    """
    number, end = first, first + count
    while number < end:
        stop = min(number + lot, end)
        with_child = _outcomes(make, number, stop - number, patience)
        for outcome in with_child:
            yield outcome
            number += 1


def _outcomes(make: Callable[[int], Generator[str]], first: int, count: int, patience: float) -> Generator[str]:
    """Yield the outcomes of a child until it has made its tries, or one has ended it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _end_with(lambda: _tell(make, first, count, writing))
    os.close(writing)
    num_told = 0
    pending = b""
    try:
        while num_told < count:
            if not select.select([reading], [], [], patience)[0]:
                os.kill(child, signal.SIGKILL)
                yield f"no end within {patience:.0f} s"
                return
            if not (content := os.read(reading, 1 << 16)):
                break
            *lines, pending = (pending + content).split(b"\n")
            for line in lines:
                num_told += 1
                yield json.loads(line)
    finally:
        os.close(reading)
        _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if num_told < count:
        yield f"the process ended {f'by {signal.Signals(-code).name}' if code < 0 else f'with code {code}'}"


def _tell(make: Callable[[int], Generator[str]], first: int, count: int, writing: int) -> None:
    for _, outcome in zip(range(count), make(first), strict=False):
        os.write(writing, json.dumps(outcome).encode() + b"\n")


class Ended(NamedTuple):
    """How a child has ended. code: exit code, negative for a signal; None for one that hung. told: its output."""

    code: int | None
    told: str


def start_child(action: Callable[[], int], told: Path) -> int:
    """Start an action in a forked child and return the child's number.

    action: returns the exit code. told: a file for what the child writes to stdout and stderr.
    """
    child = os.fork()
    if child == 0:
        _end_with(lambda: _with_output(action, told))
    return child


def run_in_child(action: Callable[[], int], told: Path, seconds: float) -> Ended:
    """Run an action in a forked child, which is killed after some seconds. told: see start_child()."""
    code = wait_for(start_child(action, told), seconds)
    return Ended(code, told.read_text(errors="replace"))


def wait_for(child: int, seconds: float) -> int | None:
    """Return the exit code of a child, or kill it after some seconds and return None."""
    descriptor = os.pidfd_open(child)
    try:
        hangs = not select.select([descriptor], [], [], seconds)[0]
    finally:
        os.close(descriptor)
    if hangs:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return None if hangs else os.waitstatus_to_exitcode(status)


def _with_output(action: Callable[[], int], told: Path) -> int:
    file = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    return action()


def _end_with(action: Callable[[], int | None]) -> None:
    """Run an action in a child, which ends then."""
    code = 70
    try:
        code = action() or 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)

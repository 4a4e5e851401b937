"""Waits for memory: how long processes stood still because memory was short, as the kernel counts it.

Pressure stall information (PSI) has, for the machine and for each control group of version 2, the microseconds in which
some process waited for memory. Memory above `memory.high` makes a group's processes wait too, and counts there, also if
the limit is of a group around it. So the innermost group tells most exactly whether this process waits; the machine's
waits, which may be those of other programs, are looked at where no group counts.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from diskhop.budget import format_bytes
from diskhop.system.figures import STATUS, read_figures
from diskhop.system.limits import GROUPS, OWN_GROUPS, memory_limit, own_groups

MACHINE = Path("/proc/pressure/memory")
SECONDS_APART = 5.0
_SECONDS_BETWEEN_LINES = 60.0
# Below, other programs come and go as they always do.
_LEAST_SHARE = 0.1
# A line may wait for whoever reads it.
_SECONDS_TO_END = 1.0


class MemoryPressure:
    """Waits of the last seconds, at most a line a minute.

    machine, groups, own: the kernel's files; see memory_limits().
    """

    def __init__(self, machine: Path = MACHINE, groups: Path = GROUPS, own: Path = OWN_GROUPS) -> None:
        self._files = [*(group / "memory.pressure" for group, _ in own_groups(groups, own)), machine]
        self._waits: tuple[Path, int] | None = None
        self._read_at = 0.0
        self._said_at: float | None = None

    def look(self, now: float) -> str:
        """Return a line if memory was short since the last look; '' if it was not, or a line was given a minute ago.

        now: seconds of any clock.
        """
        before, seconds = self._waits, now - self._read_at
        self._waits, self._read_at = next(_read_waits(self._files), None), now
        if before is None or self._waits is None or before[0] != self._waits[0]:
            return ""
        path, share = self._waits[0], (self._waits[1] - before[1]) / 1e6 / seconds
        if share < _LEAST_SHARE or (self._said_at is not None and now - self._said_at < _SECONDS_BETWEEN_LINES):
            return ""
        self._said_at = now
        return describe_wait(min(1.0, share), seconds, path)


def describe_wait(share: float, seconds: float, path: Path) -> str:
    """Return the line about a wait, with the figures of this process. path: the file that counts the waits."""
    own = read_figures(STATUS, ("VmRSS", "RssFile"))
    limit = memory_limit()
    where = "this machine" if path == MACHINE else f"control group {path.parent}"
    return (
        f"Waiting for memory: {share:.0%} of the last {seconds:.0f} s ({where}). Process {os.getpid()} has "
        f"{format_bytes(own['VmRSS'])}, {format_bytes(own['RssFile'])} of it pages of files, and may use "
        f"{format_bytes(limit.num_bytes)} ({limit.source}). Try a smaller --memory."
    )


@contextmanager
def watch_pressure(tell: Callable[[str], None]) -> Iterator[None]:
    """Look every five seconds in this context, in a thread of its own. tell: is given each line."""
    is_over = threading.Event()
    thread = threading.Thread(target=_watch, args=(tell, is_over), name="memory pressure", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(_SECONDS_TO_END)


def _watch(tell: Callable[[str], None], is_over: threading.Event) -> None:
    pressure = MemoryPressure()
    while True:
        line = pressure.look(time.monotonic())
        try:
            if line:
                tell(line)
        except OSError:  # the reader is gone
            return
        if is_over.wait(SECONDS_APART):
            return


def _read_waits(files: list[Path]) -> Iterator[tuple[Path, int]]:
    """Yield the microseconds of waits of every file that can be read."""
    for path in files:
        try:
            some, *_ = path.read_text(encoding="ascii").splitlines()
            yield path, int(some.rpartition("total=")[2])
        except (OSError, ValueError):  # no such kernel, or not for this process
            continue

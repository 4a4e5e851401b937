"""Lines about work that shows no progress of its own: a run before its first batch.

Every ten seconds of its first minute, and then every minute, a line says what goes on, for how long, and how much was
read from the disk meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from rich.console import Console

from diskhop.budget import format_bytes
from diskhop.system.transfers import transfers

SECONDS_APART = 10.0
_MANY_SECONDS = 60.0
PLANNING, PREPARING = "Planning", "Preparing"
# A line may wait for whoever reads it.
_SECONDS_TO_END = 1.0


class StillWorking:
    """Prints to a console while this context is open, in a thread of its own.

    doing: what goes on. seconds_apart: between two lines at first. clock: returns the seconds now.
    """

    def __init__(
        self,
        console: Console,
        doing: str = PLANNING,
        seconds_apart: float = SECONDS_APART,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._seconds_apart = seconds_apart
        self._clock = clock
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="still working", daemon=True)
        self._work = doing, clock(), transfers().bytes_read
        self._has_lines = False
        self._said_at = clock()

    def __enter__(self) -> StillWorking:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def now_does(self, doing: str, *, has_lines: bool = False) -> None:
        """Begin other work, unless it is the same. has_lines: it has lines of its own after the first minute."""
        self._has_lines = has_lines
        if doing != self._work[0]:
            self._work = doing, self._clock(), transfers().bytes_read

    def end(self) -> None:
        """Print no more lines. May be called repeatedly."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(_SECONDS_TO_END)

    def look(self) -> str:
        """Return the line about the work now; '' if none is due."""
        (doing, began, read_before), now = self._work, self._clock()
        if now - began > _MANY_SECONDS and (self._has_lines or now - self._said_at < _MANY_SECONDS):
            return ""
        self._said_at = now
        read = format_bytes(transfers().bytes_read - read_before)
        return f"{doing}: {now - began:.0f} s so far, {read} read from the disk"

    def _watch(self) -> None:
        while not self._is_over.wait(self._seconds_apart):
            line = self.look()
            with suppress(OSError):  # the reader is gone
                if line:
                    self._console.print(line, markup=False)

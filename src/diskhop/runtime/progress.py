"""Progress of long work."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from numpy.typing import NDArray


class Progress(Protocol):
    """A function that is called from time to time with a stage's name, the amount done and the total, in any unit."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show or record the progress."""


def silent(stage: str, done: int, total: int) -> None:
    """Ignore progress."""


class SharedProgress:
    """Progress of one stage that several threads report, one call at a time.

    done: what earlier work has done. total: all of the stage.
    """

    def __init__(self, progress: Progress, stage: str, done: int, total: int) -> None:
        self._progress = progress
        self._stage = stage
        self._done = done
        self._total = total
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Report that more is done."""
        with self._lock:
            self._done += count
            self._progress(self._stage, self._done, self._total)


def tracked(blocks: Iterable[NDArray[Any]], progress: Progress, stage: str, total: int) -> Iterator[NDArray[Any]]:
    """Pass blocks through and report their rows as progress."""
    done = 0
    for block in blocks:
        yield block
        done += len(block)
        progress(stage, done, total)

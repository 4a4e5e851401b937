"""Progress of long work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from numpy.typing import NDArray


class Progress(Protocol):
    """A function that is called from time to time with a stage's name, the amount done and the total, in any unit."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show or record the progress."""


def silent(stage: str, done: int, total: int) -> None:
    """Ignore progress."""


def tracked(blocks: Iterable[NDArray[Any]], progress: Progress, stage: str, total: int) -> Iterator[NDArray[Any]]:
    """Pass blocks through and report their rows as progress."""
    done = 0
    for block in blocks:
        yield block
        done += len(block)
        progress(stage, done, total)

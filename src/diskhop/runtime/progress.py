"""How long work tells how far it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from numpy.typing import NDArray


class Progress(Protocol):
    """Called from time to time with a stage's name, how much of it is done and how much there is, in any unit."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take note."""


def silent(stage: str, done: int, total: int) -> None:
    """The progress nobody sees."""


def tracked(blocks: Iterable[NDArray[Any]], progress: Progress, stage: str, total: int) -> Iterator[NDArray[Any]]:
    """Pass blocks on and report their rows."""
    done = 0
    for block in blocks:
        yield block
        done += len(block)
        progress(stage, done, total)

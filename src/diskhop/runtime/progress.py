"""How long work tells how far it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
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


def row_ranges(num_rows: int, rows_per_block: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of consecutive blocks of rows."""
    for start in range(0, num_rows, rows_per_block):
        yield start, min(start + rows_per_block, num_rows)


def in_blocks(array: NDArray[Any], bytes_per_block: int = 4 << 20) -> Iterator[NDArray[Any]]:
    """Cut an array that is in memory into blocks of rows."""
    row_bytes = array.nbytes // len(array) if len(array) else 1
    for start, stop in row_ranges(len(array), max(1, bytes_per_block // max(1, row_bytes))):
        yield np.ascontiguousarray(array[start:stop])

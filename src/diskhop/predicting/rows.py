"""Tables with one row per node, as predictions are written from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop.runtime.blocks import row_ranges


class RowTable(Protocol):
    """A table with one float32 row per node of a dataset, in the dataset's order."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    @property
    def dim(self) -> int:
        """Values per row."""

    def blocks(self, block_rows: int, start: int = 0, stop: int | None = None) -> Iterator[NDArray[np.float32]]:
        """Yield rows start to stop in blocks of (block_rows, dim); the last may be shorter.

        A block is valid until the next one of the same call is requested. Several threads may iterate at the same time.
        stop: None for all rows.
        """


class ArrayRows:
    """Rows in memory."""

    def __init__(self, rows: NDArray[np.float32]) -> None:
        self._rows = rows

    @property
    def num_rows(self) -> int:
        """See RowTable."""
        return len(self._rows)

    @property
    def dim(self) -> int:
        """See RowTable."""
        return int(self._rows.shape[1])

    def blocks(self, block_rows: int, start: int = 0, stop: int | None = None) -> Iterator[NDArray[np.float32]]:
        """See RowTable."""
        end = self.num_rows if stop is None else stop
        for first, last in row_ranges(end - start, block_rows):
            yield self._rows[start + first : start + last]

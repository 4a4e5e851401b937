"""Node ids from boolean masks, read in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.importing.arrays.npy import StoredArray
from diskhop.runtime.blocks import row_ranges

_MASKS_AT_ONCE = 1 << 19


class MaskedIds:
    """Column of the ids of nodes for which a mask is true. Its shape is the mask's: the number of ids is not known yet.

    masks: a mask (nodes), or several (splits, nodes).
    number: which of several, from 0.
    """

    dtype: np.dtype[Any] = np.dtype(np.int64)

    def __init__(self, masks: StoredArray, number: int) -> None:
        self.where = masks.where
        self.shape = masks.shape[-1:]
        self._masks = masks
        self._number = number

    @property
    def identity(self) -> str:
        """See Column."""
        return f"{self._masks.identity}, mask {self._number}"

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column."""
        (num_nodes,) = self.shape
        with self._masks.open() as stream:
            stream.skip(self._number * num_nodes)
            for start, stop in row_ranges(num_nodes, _MASKS_AT_ONCE):
                yield np.flatnonzero(stream.take(stop - start)) + start
            if self._number + 1 == self._masks.num_items // max(1, num_nodes):
                stream.finish()

"""Original ids of nodes in an array of the source."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.errors import SourceError
from diskhop.importing.arrays.npy import StoredArray


class StoredIds:
    """OriginalNames in an array: whole numbers in ascending order, as `diskhop export` writes them."""

    ascend = True
    selecting_bytes = 0

    def __init__(self, array: StoredArray, budget: Budget) -> None:
        self._array = array
        self._budget = budget
        self._held = ExitStack()
        self._ids = np.empty(0, np.int64)

    @property
    def reserved_bytes(self) -> int:
        """See OriginalNames."""
        return 8 * self._array.num_items

    def range(self, start: int, stop: int) -> NDArray[Any]:
        """See OriginalNames."""
        return self._ids[start:stop]

    def select(self, nodes: NDArray[Any]) -> NDArray[Any]:
        """See OriginalNames."""
        selected: NDArray[Any] = self._ids[nodes]
        return selected

    def __enter__(self) -> StoredIds:
        with ExitStack() as held:
            held.enter_context(self._budget.reserve("names", self.reserved_bytes))
            self._ids = np.empty(self._array.num_items, np.int64)
            last, filled = -1, 0
            for block in self._array.blocks():
                ids = block.reshape(-1).astype(np.int64)
                bad = np.flatnonzero(np.diff(ids, prepend=last) <= 0)
                if len(bad):
                    raise SourceError(
                        f"{self._array.where}: entry {filled + int(bad[0])} is {ids[bad[0]]}, ids must be 0 or more "
                        "and ascend; sort the nodes by id"
                    )
                self._ids[filled : filled + len(ids)] = ids
                filled += len(ids)
                last = int(ids[-1])
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ids = np.empty(0, np.int64)
        self._held.close()

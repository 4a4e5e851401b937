"""Space in one buffer for the rows of batches, a contiguous run for each batch."""

from __future__ import annotations

import bisect


class BufferSpace:
    """Allocates runs among rows first to end - 1 of a buffer. Not thread-safe."""

    def __init__(self, first: int, end: int) -> None:
        self._first = first
        self._end = end
        self._taken: list[tuple[int, int]] = []  # begin and end, ascending

    @property
    def num_rows(self) -> int:
        """Rows of the buffer, taken and free."""
        return self._end - self._first

    def take(self, num_rows: int) -> int | None:
        """Return the first row of the lowest free run of num_rows rows; None if there is none."""
        begin = self._first
        for taken_begin, taken_end in [*self._taken, (self._end, self._end)]:
            if taken_begin - begin >= num_rows:
                bisect.insort(self._taken, (begin, begin + num_rows))
                return begin
            begin = taken_end
        return None

    def give_back(self, begin: int, num_rows: int) -> None:
        """Free a run. A run of no rows may begin where another one does; their ends differ."""
        self._taken.remove((begin, begin + num_rows))

"""Space in one buffer for the rows of batches, a contiguous run for each batch."""

from __future__ import annotations

import bisect


class BufferSpace:
    """Allocates runs among rows first to end - 1 of a buffer. Not thread-safe.

    slot_rows: runs begin at multiples of it, from `first` on. Batches are never of the same size: one that is a little
        larger than the one that has left must not wait for the next one to leave, too.
    """

    def __init__(self, first: int, end: int, slot_rows: int = 1) -> None:
        self._first = first
        self._end = end
        self._slot_rows = slot_rows
        self._taken: list[tuple[int, int]] = []  # begin and end, ascending

    @property
    def num_rows(self) -> int:
        """Rows of the buffer, taken and free."""
        return self._end - self._first

    def take(self, num_rows: int) -> int | None:
        """Return the first row of the lowest free run of num_rows rows from a slot on; None if there is none."""
        begin = self._first
        for taken_begin, taken_end in [*self._taken, (self._end, self._end)]:
            if taken_begin - begin >= num_rows:
                bisect.insort(self._taken, (begin, begin + num_rows))
                return begin
            begin = min(self._first + -(-(taken_end - self._first) // self._slot_rows) * self._slot_rows, self._end)
        return None

    def give_back(self, begin: int, num_rows: int) -> None:
        """Free a run. A run of no rows may begin where another one does; their ends differ."""
        self._taken.remove((begin, begin + num_rows))

"""Room for the rows of batches in one buffer: each batch's lie together."""

from __future__ import annotations

import bisect


class BufferSpace:
    """Rows first to end - 1 of a buffer, taken and given back in runs. Not for several threads at once."""

    def __init__(self, first: int, end: int) -> None:
        self._first = first
        self._end = end
        self._taken: list[tuple[int, int]] = []  # begin and end, ascending

    @property
    def num_rows(self) -> int:
        """Taken and free."""
        return self._end - self._first

    def take(self, num_rows: int) -> int | None:
        """The first row of a run, the lowest that is free; None if there is none so long."""
        begin = self._first
        for taken_begin, taken_end in [*self._taken, (self._end, self._end)]:
            if taken_begin - begin >= num_rows:
                bisect.insort(self._taken, (begin, begin + num_rows))
                return begin
            begin = taken_end
        return None

    def give_back(self, begin: int, num_rows: int) -> None:
        """Free a run. Of no rows, there may be several where another one begins: they are told apart by their end."""
        self._taken.remove((begin, begin + num_rows))

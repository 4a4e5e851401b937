"""The balance of an import: every line that was read is an edge, a header, a comment, empty, or skipped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from diskhop.errors import SourceError

_LINE_END = ord("\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCounts:
    """Numbers of lines: all of them, and those that are no rows."""

    lines: int = 0
    header: int = 0
    comments: int = 0
    empty: int = 0
    skipped: int = 0

    def __add__(self, other: LineCounts) -> LineCounts:
        return LineCounts(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    @property
    def rows(self) -> int:
        """Lines that are rows."""
        return self.lines - self.header - self.comments - self.empty - self.skipped

    def balance(self, num_rows: int, shown: str) -> dict[str, Any]:
        """Return the balance with the rows that were taken. Raises SourceError if it does not add up."""
        if self.rows != num_rows:
            raise SourceError(
                f"{shown}: has {self.rows} lines with rows, but {num_rows} rows were read; it may have changed: "
                "import it again"
            )
        return {"lines": self.lines, "edges": num_rows, **{each: getattr(self, each) for each in _NO_ROWS}}


NO_LINES = LineCounts()
_NO_ROWS = ("header", "comments", "empty", "skipped")


def sum_counts(counts: Iterable[LineCounts]) -> LineCounts:
    """Add up counts."""
    return sum(counts, NO_LINES)


def count_lines(content: bytes) -> int:
    """Count the lines of a text."""
    return int(np.count_nonzero(np.frombuffer(content, np.uint8) == _LINE_END))


def count_plain(content: bytes) -> LineCounts:
    """Count the lines of a text without comments, in which a line with nothing but its end is empty."""
    ends = np.frombuffer(content, np.uint8) == _LINE_END
    empty = int(np.count_nonzero(ends[1:] & ends[:-1])) + int(len(ends) > 0 and ends[0])
    return LineCounts(lines=int(np.count_nonzero(ends)), empty=empty)

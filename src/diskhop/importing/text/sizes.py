"""Size lines: first rows of plain texts that state the numbers of nodes and edges, as many programs write them.

Nothing in a text says so. A row that is unlike all others, or whose numbers are those of the rows below, is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from diskhop.errors import SourceError
from diskhop.importing.evidence.rows import is_integer
from diskhop.importing.options import ImportOptions
from diskhop.importing.shorten import shorten
from diskhop.importing.text.sample import SampleRow, TextSample

_BETWEEN = re.compile(r"[\s,;|]+")
# Of two rows that differ, neither is the exception.
_LEAST_BELOW = 2


class Sizes(NamedTuple):
    """Whole numbers in the first row of a text.

    row: the row.
    numbers: its numbers.
    """

    row: SampleRow
    numbers: tuple[int, ...]

    def require_none(self, path: Path, num_rows: int, largest: int) -> None:
        """Raise SourceError if the numbers are those of all rows: the largest id, and the number of the other rows."""
        *nodes, edges = self.numbers
        if nodes and edges == num_rows - 1 and max(nodes) == largest:
            raise SourceError(
                f"{self.row.place(path)}: {self._shown} may be the numbers of nodes and edges, since {edges} rows "
                f"follow; leave it out with --skip-lines {self.row.number}, or keep it as an edge with --no-header"
            )

    def require_alike(self, path: Path, rows: Sequence[SampleRow]) -> None:
        """Raise SourceError if the rows below have equally many fields, and the first row has not."""
        counts = {len(_fields(row.text)) for row in rows}
        if len(counts) == 1 and counts != {len(self.numbers)}:
            raise SourceError(
                f"{self.row.place(path)}: {self._shown} has {len(self.numbers)} numbers, and the rows below have "
                f"{counts.pop()} columns; leave it out with --skip-lines {self.row.number} if it is no edge"
            )

    @property
    def _shown(self) -> str:
        return shorten(self.row.text.strip())


def find_sizes(samples: Sequence[TextSample], options: ImportOptions) -> Sizes | None:
    """Read the first row as one to three whole numbers; None: it is not, or options say what it is.

    Raises SourceError for a first row that is unlike the others.
    """
    with_rows = [sample for sample in samples if sample.rows]
    if len(with_rows) != 1 or options.header is not None or options.skip_lines is not None:
        return None
    first, *others = with_rows[0].rows
    fields = _fields(first.text)
    if len(fields) > 3 or not all(map(is_integer, fields)):
        return None
    sizes = Sizes(first, tuple(map(int, fields)))
    if len(others) >= _LEAST_BELOW:
        sizes.require_alike(with_rows[0].path, others)
    return sizes


def _fields(text: str) -> list[str]:
    return _BETWEEN.split(text.strip(" \t\r\n,;|"))

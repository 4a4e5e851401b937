"""Classes that a table names by text: their names are numbered from 0 in ascending order, and kept.

Names are compared byte by byte, so that the numbers do not depend on a language or on the order of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.name_lines import to_lines
from diskhop.errors import SourceError
from diskhop.importing.shorten import shorten
from diskhop.importing.source import NameList
from diskhop.importing.tables.files import TableColumn
from diskhop.importing.tables.rows import TableRows
from diskhop.importing.tools import ImportTools
from diskhop.runtime.duck import Duck, quoted

# A column with more texts, or longer ones, has no names of classes.
MOST_NAMES, MOST_NAME_BYTES = 1 << 16, 256
# The names as Python's text, as SQL, and as DuckDB's type.
_BYTES_PER_NAME, _COPIES = 128, 4


@dataclass(frozen=True, slots=True, eq=False)
class ClassNames:
    """The names of classes in a column, ascending.

    column: the column of text.
    names: name of each class.
    """

    column: TableColumn
    names: tuple[str, ...]

    def sql(self) -> str:
        """Return SQL of the class of a row: BIGINT, -1 where the text is empty."""
        text = _text(self.column)
        listed = ", ".join(map(quoted, self.names)) or "''"
        number = f"CAST(enum_code(CAST({text} AS ENUM({listed}))) AS BIGINT)"
        return f"CASE WHEN coalesce({text}, '') = '' THEN -1 ELSE {number} END"

    def lines(self) -> NameList:
        """Return the names as lines."""

        def read() -> Iterator[NDArray[np.uint8]]:
            yield to_lines(self.names)

        return NameList(count=len(self.names), lines=read)


def find_class_names(rows: TableRows, column: TableColumn, duck: Duck, work: ImportTools) -> ClassNames:
    """Collect the texts of a column. Their memory stays reserved until `work.held` closes.

    Raises SourceError for too many texts, and for one that is too long.
    """
    text = _text(column)
    found = duck.fetch(f"SELECT {text} FROM {rows.sql} WHERE strlen({text}) > {MOST_NAME_BYTES} LIMIT 1")[0]
    where = f"{rows.table.shown}, column '{column.name}'"
    if len(found):
        raise SourceError(
            f"{where}: a class name must have at most {MOST_NAME_BYTES} bytes, got {shorten(str(found[0]))}; "
            "name another column with --label"
        )
    select = f"SELECT DISTINCT {text} AS name FROM {rows.sql} WHERE coalesce({text}, '') <> '' LIMIT {MOST_NAMES + 1}"
    names = [str(name) for name in duck.fetch(select)[0]]
    if len(names) > MOST_NAMES:
        raise SourceError(
            f"{where}: classes must have at most {MOST_NAMES:,} names, and it has more different texts; name another "
            "column with --label, or give the classes numbers"
        )
    num_bytes = sum(_BYTES_PER_NAME + _COPIES * len(name.encode()) for name in names)
    work.held.enter_context(work.budget.reserve("class names", num_bytes))
    return ClassNames(column, tuple(sorted(names)))


def _text(column: TableColumn) -> str:
    return f"CAST({column.sql} AS VARCHAR)"

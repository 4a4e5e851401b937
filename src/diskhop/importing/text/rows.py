"""Rows of edges out of text, a slice at a time, parsed by DuckDB.

A *slice* is the lines that begin in a range of bytes of a file: what is held in memory, parsed, written and, after a
crash, not parsed again. DuckDB is given slices and not files, because it takes 1.5 for 2, does not compare gzip's
checksums, and counts lines in its own way; what it refuses is read again by edge_faults, which says why.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import SourceError
from diskhop.importing.numbering.pairs import ENDS
from diskhop.importing.source_file import source_errors
from diskhop.importing.text.faults import find_fault
from diskhop.importing.text.layout import COMMENT, MOST_LINE_BYTES, RowLayout
from diskhop.runtime.duck import Duck, QueryError, as_file, quoted

# Lines that are no rows, as is_blank has it: blank ones and comments.
_NO_ROWS = re.compile(rb"^(?:#[^\n]*|[ \t]*)\n", re.M)
# With blanks around it, as people align columns; DuckDB's own cast takes 1.5, 1e3, 0x10 and 1_000 too.
_IS_ID = "regexp_full_match({0}, '[ \\t]*[0-9]+[ \\t]*')"
_QUOTE = quoted('"')
_READ_BYTES = 1 << 20
_TYPES = {"uint32": "UINTEGER", "int64": "BIGINT"}

Result = TypeVar("Result")
Ends = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Slice:
    """The lines that begin in bytes [begin, end) of a text whose rows begin at rows_begin.

    path: the text; shown: the file that the user gave, for errors.
    """

    path: Path
    shown: Path
    begin: int
    end: int
    rows_begin: int

    def read(self) -> tuple[int, bytes]:
        """Where the first of the lines begins, and all of them, each with its end."""
        with source_errors(str(self.shown)), self.path.open("rb") as text:
            text.seek(self.begin)
            if self.begin > self.rows_begin:
                text.seek(self.begin - 1)
                while (line := text.readline(MOST_LINE_BYTES)) and not line.endswith(b"\n"):
                    pass
            offset = text.tell()
            content = text.read(max(0, self.end - offset))
            if content and not content.endswith(b"\n"):
                content += text.readline(MOST_LINE_BYTES + 1)
        return offset, content if content.endswith(b"\n") or not content else content + b"\n"

    def fault(self, offset: int, content: bytes, layout: RowLayout, num_nodes: int | None) -> SourceError:
        """Why the content, which begins at the offset, cannot be taken."""
        return find_fault(content, layout, num_nodes, self.shown, self.line_at(offset))

    def line_at(self, offset: int) -> int:
        """The number, from 1, of the line that begins at an offset of the text."""
        number = 1
        with source_errors(str(self.shown)), self.path.open("rb") as text:
            for start in range(0, offset, _READ_BYTES):
                number += text.read(min(_READ_BYTES, offset - start)).count(b"\n")
        return number


def parse_integers(piece: Slice, layout: RowLayout, num_nodes: int | None, dtype: str, duck: Duck) -> Ends:
    """Sources and destinations (rows) of a slice, as they stand: whole numbers below num_nodes (None: below 2^63).

    As dtype (uint32 or int64) if all fit it, else as int64.

    Raises SourceError, with file and line, for a row that breaks a rule.
    """

    def take(rows: str) -> Ends | None:
        sources, destinations = duck.fetch(rows)
        ends = sources, destinations
        if any(np.ma.isMaskedArray(end) for end in ends):  # whose max() takes no initial value
            return None
        return ends if num_nodes is None or all(end.max(initial=0) < num_nodes for end in ends) else None

    return _parse(piece, layout, num_nodes, _TYPES[dtype], take)


def write_rows(piece: Slice, layout: RowLayout, duck: Duck, path: Path) -> None:
    """Write the rows of a slice as Parquet (source, destination), BIGINT or VARCHAR. Raises as parse_integers does."""

    def take(rows: str) -> bool | None:
        duck.run(f"COPY ({rows}) TO {quoted(path)} (FORMAT parquet)")
        is_bad = "{0} IS NULL"
        if layout.ids == "string":  # a line break is part of a name where quotes are around it
            is_bad += " OR contains({0}, chr(10))"
        bad = " OR ".join(is_bad.format(end) for end in ENDS)
        (num_bad,) = duck.fetch(f"SELECT count(*) FROM read_parquet({quoted(path)}) WHERE {bad}")
        return None if num_bad[0] else True

    _parse(piece, layout, None, "BIGINT" if layout.ids == "integer" else "VARCHAR", take)


def _parse(
    piece: Slice, layout: RowLayout, num_nodes: int | None, id_type: str, take: Callable[[str], Result | None]
) -> Result:
    """What `take` makes of the query for a slice's rows; None: there is a row in it that breaks a rule."""
    offset, lines = piece.read()
    content = lines.replace(b"\r\n", b"\n") if b"\r" in lines else lines
    result = None
    if _is_plain(content, layout):
        with contextlib.suppress(QueryError), as_file(content) as file:
            result = take(_row_query(file, layout, id_type, "{}"))
    if result is None:
        content = _NO_ROWS.sub(b"", content)
    if result is None and b"\r" not in content:
        value = "{}" if layout.ids == "string" else f"CASE WHEN {_IS_ID} THEN TRY_CAST({{0}} AS BIGINT) END"
        with contextlib.suppress(QueryError), as_file(content) as file:
            result = take(_row_query(file, layout, "VARCHAR", value))
    if result is None:
        raise piece.fault(offset, lines, layout, num_nodes)
    return result


def _is_plain(content: bytes, layout: RowLayout) -> bool:
    """Whether DuckDB takes nothing in it for what it is not: a comment for a row, or 1.5 for an id."""
    if layout.ids == "integer":
        return not content.translate(None, b"0123456789\n" + layout.delimiter.encode())
    return b"\r" not in content and not content.startswith(COMMENT) and b"\n" + COMMENT not in content


def _row_query(file: str, layout: RowLayout, id_type: str, value: str) -> str:
    names = [f"column{number}" for number in range(layout.num_columns)]
    for end, column in zip(ENDS, layout.columns, strict=True):
        names[column] = end
    types = ", ".join(f"{name}: {quoted(id_type if name in ENDS else 'VARCHAR')}" for name in names)
    values = ", ".join(f"{value.format(end)} AS {end}" for end in ENDS)
    return (
        f"SELECT {values} FROM read_csv({quoted(file)}, auto_detect=false, header=false, columns={{{types}}}, "
        f"delim={quoted(layout.delimiter)}, quote={_QUOTE}, escape={_QUOTE}, new_line='\\n', "
        f"max_line_size={MOST_LINE_BYTES})"
    )

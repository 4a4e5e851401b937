"""Parses rows of edges with DuckDB, one slice of a text at a time.

A *slice* is the lines that begin in a range of bytes of a file: the unit that is loaded, parsed, written and, after a
crash, not parsed again. DuckDB gets slices and not files, because it accepts 1.5 as 2, ignores gzip's checksums and
numbers lines differently. Slices that it refuses are read again by text/faults, which names the line and the rule.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import SourceError
from diskhop.importing.balance import LineCounts, count_lines, count_plain
from diskhop.importing.numbering.pairs import ENDS
from diskhop.importing.source_file import source_errors
from diskhop.importing.text.faults import MOST_FLOAT, find_fault
from diskhop.importing.text.layout import RowLayout, hidden_row
from diskhop.importing.text.streams import MOST_LINE_BYTES, at_line
from diskhop.importing.text.tidy import with_line_feeds, with_one_space, without_last
from diskhop.runtime.duck import Duck, QueryError, as_file, quoted

# Blanks around ids align columns. DuckDB's own cast would accept 1.5, 1e3, 0x10 and 1_000 too.
_IS_ID = "regexp_full_match({0}, '[ \\t]*[0-9]+(\\.0*)?[ \\t]*')"
_ID = f"CASE WHEN {_IS_ID} THEN TRY_CAST(split_part({{0}}, '.', 1) AS BIGINT) END"
# Whole numbers that are written as floats, such as 1.000e+00.
_IS_FLOAT = (
    f"TRY_CAST({{0}} AS DOUBLE) = trunc(TRY_CAST({{0}} AS DOUBLE)) AND TRY_CAST({{0}} AS DOUBLE) <= {MOST_FLOAT}"
)
_FLOAT_ID = (
    f"CASE WHEN {_IS_ID} THEN TRY_CAST(split_part({{0}}, '.', 1) AS BIGINT) "
    f"WHEN regexp_full_match({{0}}, '[ \\t]*[0-9.]+([eE][+-]?[0-9]+)?[ \\t]*') AND {_IS_FLOAT} "
    f"THEN TRY_CAST(TRY_CAST({{0}} AS DOUBLE) AS BIGINT) END"
)
_QUOTE = quoted('"')
_READ_BYTES = 1 << 20
_TYPES = {"uint32": "UINTEGER", "int64": "BIGINT"}

Result = TypeVar("Result")
Ends = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Slice:
    """Lines of a text that begin in bytes [begin, end).

    path: the unpacked text.
    shown: the user's file, for errors.
    rows_begin: offset of the text's first row.
    """

    path: Path
    shown: Path
    begin: int
    end: int
    rows_begin: int

    def read(self) -> tuple[int, bytes]:
        """Return the offset of the first line, and the lines, each with its line end."""
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
        """Find the error in content that begins at an offset of the text."""
        return find_fault(content, layout, num_nodes, self.shown, self.line_at(offset))

    def line_at(self, offset: int) -> int:
        """Count the number, from 1, of the line that begins at an offset of the text."""
        number = 1
        with source_errors(str(self.shown)), self.path.open("rb") as text:
            for start in range(0, offset, _READ_BYTES):
                number += text.read(min(_READ_BYTES, offset - start)).count(b"\n")
        return number


def parse_integers(
    piece: Slice, layout: RowLayout, num_nodes: int | None, dtype: str, duck: Duck
) -> tuple[Ends, LineCounts]:
    """Parse the ids of a slice: sources (rows) and destinations (rows), below num_nodes (None: below 2^63).

    The result has dtype (uint32 or int64) if all ids fit it, else int64. Raises SourceError, with file and line, for a
    row that breaks a rule.
    """

    def take(rows: str, counts: LineCounts) -> Ends | None:
        sources, destinations = duck.fetch(rows)
        ends = sources, destinations
        # Masked arrays have nulls; their max() has no parameter `initial`.
        if any(np.ma.isMaskedArray(end) for end in ends) or len(sources) != counts.rows:
            return None
        return ends if num_nodes is None or all(end.max(initial=0) < num_nodes for end in ends) else None

    return _parse(piece, layout, num_nodes, _TYPES[dtype], take)


def write_rows(piece: Slice, layout: RowLayout, duck: Duck, path: Path) -> None:
    """Write the rows of a slice as Parquet (source, destination), BIGINT or VARCHAR. Raises like parse_integers.

    The file's metadata has the numbers of lines.
    """

    def take(rows: str, counts: LineCounts) -> bool | None:
        duck.run(f"COPY ({rows}) TO {quoted(path)} ({parquet_with(counts)})")
        is_bad = "{0} IS NULL"
        if layout.ids == "string":  # a quoted name can contain a line break
            is_bad += " OR contains({0}, chr(10))"
        bad = " OR ".join(is_bad.format(end) for end in ENDS)
        num_rows, num_bad = duck.fetch(f"SELECT count(*), count(*) FILTER ({bad}) FROM read_parquet({quoted(path)})")
        return None if num_bad[0] or num_rows[0] != counts.rows else True

    _parse(piece, layout, None, "BIGINT" if layout.ids == "integer" else "VARCHAR", take)


def parquet_with(counts: LineCounts) -> str:
    """Return SQL of the format of a Parquet file whose metadata has numbers of lines."""
    noted = f"lines: '{counts.lines}', comments: '{counts.comments}', empty: '{counts.empty}'"
    return f"FORMAT parquet, KV_METADATA {{{noted}}}"


def read_counts(paths: Sequence[Path], duck: Duck) -> LineCounts:
    """Add up the numbers of lines in the metadata of Parquet files."""
    files = ", ".join(map(quoted, paths))
    names, numbers = duck.fetch(
        "SELECT decode(key) AS name, sum(decode(value)::BIGINT)::BIGINT AS number "
        f"FROM parquet_kv_metadata([{files}]) WHERE decode(key) IN ('lines', 'comments', 'empty') GROUP BY ALL"
    )
    return LineCounts(**{str(name): int(number) for name, number in zip(names, numbers, strict=True)})


def _parse(
    piece: Slice,
    layout: RowLayout,
    num_nodes: int | None,
    id_type: str,
    take: Callable[[str, LineCounts], Result | None],
) -> tuple[Result, LineCounts]:
    """Run `take` on the query for a slice's rows. `take` returns None if a row breaks a rule, or is missing."""
    offset, lines = piece.read()
    content = _tidied(lines, layout)
    # Empty lines among numbers are counted where rows are missing without them.
    counts = LineCounts(lines=count_lines(content)) if layout.ids == "integer" else count_plain(content)
    result = None
    if _is_plain(content, layout):
        with contextlib.suppress(QueryError), as_file(content) as file:
            result = take(_row_query(file, layout, id_type, "{}"), counts)
    if result is None:
        content, counts = _rows_alone(piece, offset, _tidied(content, replace(layout, is_uneven=True)), layout)
    if result is None and b"\r" not in content:
        value = "{}" if layout.ids == "string" else _FLOAT_ID if layout.are_floats else _ID
        with contextlib.suppress(QueryError), as_file(content) as file:
            result = take(_row_query(file, layout, "VARCHAR", value), counts)
    if result is None:
        raise piece.fault(offset, lines, layout, num_nodes)
    return result, counts


def _tidied(lines: bytes, layout: RowLayout) -> bytes:
    """Return lines with plain line feeds, one space between columns and no delimiters after the last."""
    content = with_line_feeds(lines)
    if not layout.is_uneven:
        return content
    if layout.delimiter == " ":
        return with_one_space(content, layout.ids == "integer")
    # A line that loses more than empty fields lacks an id, and is refused either way.
    is_last = layout.num_columns == 1 + max(layout.columns)
    return without_last(content, layout.delimiter.encode()) if is_last else content


def _rows_alone(piece: Slice, offset: int, content: bytes, layout: RowLayout) -> tuple[bytes, LineCounts]:
    """Leave out blank lines and comments, as is_blank does, and empty fields after the last column.

    Raises SourceError for a comment that may be a row.
    """
    num_lines = content.count(b"\n")
    comment = re.compile(rb"^[%s][^\n]*\n" % re.escape(layout.comments), re.M) if layout.comments else None
    if comment is not None and layout.ids == "string" and not layout.are_marks_given:
        for found in comment.finditer(content):
            line = found.group().decode(errors="replace")
            if layout.hides_row(line):
                number = piece.line_at(offset) + content[: found.start()].count(b"\n")
                raise hidden_row(at_line(piece.shown, number), line)
    content, num_comments = (content, 0) if comment is None else comment.subn(b"", content)
    content, num_empty = re.subn(rb"^[ \t]*\n", b"", content, flags=re.M)
    counts = LineCounts(lines=num_lines, comments=num_comments, empty=num_empty)
    delimiter = re.escape(layout.delimiter.encode())
    if layout.delimiter == " " or not re.search(delimiter + rb"$", content, re.M):
        return content, counts
    field = rb'(?:"[^"\n]*(?:""[^"\n]*)*"|[^"D\n][^D\n]*|)'.replace(b"D", delimiter)
    columns = field + b"".join([delimiter + field] * (layout.num_columns - 1))
    return re.sub(rb"^(" + columns + rb")(?:" + delimiter + rb")+$", rb"\1", content, flags=re.M), counts


def _is_plain(content: bytes, layout: RowLayout) -> bool:
    """Check that DuckDB cannot misread the content: no comments among rows, no 1.5 among ids."""
    if layout.ids == "integer":
        return not content.translate(None, b"0123456789\n" + layout.delimiter.encode())
    marks = [layout.comments[place : place + 1] for place in range(len(layout.comments))]
    return b"\r" not in content and not any(content.startswith(mark) or b"\n" + mark in content for mark in marks)


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

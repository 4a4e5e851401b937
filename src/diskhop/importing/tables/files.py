"""Files and columns of tables, and errors of DuckDB translated to those of the user's files.

A *table* is one file or several parts in the order of their paths, all Parquet or all text. Errors count rows from 1.
The *kind* of a column is stated by Parquet; in text it is inferred from the first rows of each file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from diskhop.errors import ConfigError, DestinationError, SourceError
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.evidence.folder import FolderFiles, list_folder, says_labels
from diskhop.importing.options import OF_CSV, ImportOptions, as_option
from diskhop.importing.shorten import shorten
from diskhop.importing.source_file import SourceFile, source_errors
from diskhop.importing.tables.header import TextRows, find_rows
from diskhop.importing.tables.texts import sample_text
from diskhop.importing.text.layout import RowLayout, TextFile, find_column
from diskhop.importing.text.packing import plain_name
from diskhop.importing.text.suffixes import has_suffix, text_stem, text_suffix
from diskhop.runtime.duck import Duck, QueryError, as_file, quoted

Kind = Literal["integer", "number", "boolean", "text", "time", "numbers", "nothing", "other"]
PARQUET = ".parquet"
# Separates the parts of the error that a query raises for a row.
FAULT_MARK = "\x1f"
_LEAST_FAULT_PARTS = 5  # there is no value where it is null
SAMPLE_ROWS = 2048
_MOST_LINE_BYTES = 1 << 20
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_NUMBERS = (*_INTEGERS, *(f"U{name}" for name in _INTEGERS), "FLOAT", "DOUBLE", "DECIMAL")
# Columns that DuckDB adds to those of Parquet.
_TAKEN_NAMES = ("filename", "file_row_number")
_LOOKS = {
    "integer": "regexp_full_match({0}, '[ \\t]*[+-]?[0-9]+[ \\t]*')",
    "whole": "regexp_full_match({0}, '[ \\t]*[0-9]+(\\.0*)?[ \\t]*')",
    "number": "TRY_CAST({0} AS DOUBLE) IS NOT NULL",
    "time": "TRY_CAST({0} AS TIMESTAMPTZ) IS NOT NULL",
}


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table.

    name: as in the file.
    kind: how its values can be used.
    stored: its type in DuckDB, VARCHAR for every column of CSV.
    is_whole: whether text has whole numbers that are written as floats, such as 7.0.
    """

    name: str
    kind: Kind
    stored: str
    is_whole: bool = False

    @property
    def sql(self) -> str:
        """The quoted name, for SQL."""
        return '"' + self.name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Table:
    """A table that was opened, but not read.

    what: nodes or edges.
    shown: file or folder, for errors.
    files: its parts, in order.
    columns: by name, in order.
    counts: rows of each Parquet file.
    texts: the parts of a text. layout: of their rows; None: Parquet.
    has_names: whether there is a header; else columns are named by number, from 1.
    has_labels: whether the file's name says that it has labels.
    has_rows: whether there is a row at all.
    decisions: what was decided about the files, for people.
    """

    what: str
    shown: Path
    files: tuple[SourceFile, ...]
    columns: Mapping[str, TableColumn]
    counts: tuple[int, ...] = ()
    texts: tuple[TextFile, ...] = ()
    layout: RowLayout | None = None
    has_names: bool = True
    has_labels: bool = False
    has_rows: bool = True
    decisions: tuple[Decision, ...] = ()

    def column(self, name: str, option: str) -> TableColumn:
        """Find the column that an option names. Raises SourceError, which lists all columns."""
        if name not in self.columns:
            place = find_column(name, list(self.columns), len(self.columns))
            if place is not None:
                return list(self.columns.values())[place]
            raise SourceError(f"{self.shown}: has no column '{name}'; {option} can name {', '.join(self.columns)}")
        return self.columns[name]


def find_files(source: Path) -> FolderFiles:
    """Find the files of edges and nodes in a folder. Raises SourceError for tables that are there twice."""
    with source_errors(str(source)):
        found = list_folder(source, has_table_suffix, plain_name)
    for what, paths in (("edges", found.edges), ("nodes", found.nodes)):
        # edges.csv next to a folder edges, or Parquet next to CSV.
        whole = [path for path in paths if path.parent == source and text_stem(path) == what]
        kinds = sorted({text_suffix(path) == PARQUET for path in paths})
        if len(kinds) > 1 or (whole and any((source / what) in path.parents for path in paths)):
            names = [*dict.fromkeys(_shown_kind(path, source, what) for path in paths)]
            raise SourceError(f"{source}: has {' and '.join(names)}; keep one of them")
    return found


def has_table_suffix(path: Path) -> bool:
    """Check whether a name is one of a table."""
    return text_suffix(path) == PARQUET or has_suffix(path)


def _shown_kind(path: Path, source: Path, what: str) -> str:
    inside = source / what in path.parents
    return f"{what}/*{''.join(path.suffixes[-1:])}" if inside else str(path.relative_to(source))


def open_table(shown: Path, what: str, files: tuple[SourceFile, ...], options: ImportOptions, duck: Duck) -> Table:
    """Open a table. Raises SourceError for files that cannot be read, or have different columns."""
    for file in files:
        try:
            str(file.path.resolve()).encode()
        except UnicodeEncodeError:
            raise SourceError(f"{file.path}: must be valid UTF-8, because DuckDB reads it; rename it") from None
    if text_suffix(files[0].path) == PARQUET:
        given = [as_option(name) for name in OF_CSV if getattr(options, name) is not None]
        if given and what == "edges":
            raise ConfigError(f"{files[0].path}: {given[0]} has no effect on Parquet; remove it")
        return _open_parquet(shown, what, files, duck)
    return _open_text(shown, what, files, options, duck)


def _open_parquet(shown: Path, what: str, files: tuple[SourceFile, ...], duck: Duck) -> Table:
    columns: dict[str, TableColumn] = {}
    counts = []
    for file in files:
        with source_faults({file.path: file.path}):
            table = f"read_parquet({quoted(glob_of(file.path))}, hive_partitioning=false)"
            names, types = duck.fetch(f"DESCRIBE SELECT * FROM {table}")[:2]
            (rows,) = duck.fetch(f"SELECT num_rows FROM parquet_file_metadata({quoted(glob_of(file.path))})")
        found = {
            str(name): TableColumn(str(name), _kind_of(str(stored)), str(stored))
            for name, stored in zip(names, types, strict=True)
        }
        for name in _TAKEN_NAMES:
            if name in found:
                raise SourceError(f"{file.path}: has a column '{name}', a name that DuckDB reserves; rename it")
        if columns and found != columns:
            raise SourceError(
                f"{file.path}: has columns {_listed(found)}, and {files[0].path} {_listed(columns)}; "
                "give all files the same"
            )
        columns = found
        counts.append(int(rows[0]))
    return Table(what, shown, files, columns, tuple(counts), has_rows=any(counts))


def _open_text(shown: Path, what: str, files: tuple[SourceFile, ...], options: ImportOptions, duck: Duck) -> Table:
    found = find_rows(shown, what, [file.path for file in files], options)
    _check_names(found)
    looks = dict.fromkeys(("filled", *_LOOKS), [0] * len(found.names))
    # Doubtful comments are refused when all rows are read.
    sampled = replace(found.layout, are_marks_given=True)
    num_sampled = 0
    for file in found.files:
        content = sample_text(file, sampled, SAMPLE_ROWS)
        columns = [TableColumn(name, "text", "VARCHAR").sql for name in found.names]
        tests = {"filled": "{0} IS NOT NULL", **_LOOKS}
        with as_file(content) as path, source_faults({Path(path): file.path}, file.head.lines):
            sample = f"(SELECT * FROM {read_csv(Path(path), found.names, found.layout.delimiter)} LIMIT {SAMPLE_ROWS})"
            counted = (f"count(*) FILTER ({test.format(each)})" for test in tests.values() for each in columns)
            num_rows, *counts = (
                int(count[0]) for count in duck.fetch(f"SELECT {', '.join(('count(*)', *counted))} FROM {sample}")
            )
        num_sampled += num_rows
        for number, test in enumerate(looks):
            here = counts[number * len(columns) : (number + 1) * len(columns)]
            looks[test] = [before + more for before, more in zip(looks[test], here, strict=True)]
    table_columns = {}
    for number, (name, filled) in enumerate(zip(found.names, looks["filled"], strict=True)):
        fitting: list[Kind] = [kind for kind in ("integer", "number", "time") if looks[kind][number] == filled]
        kind: Kind = "nothing" if filled == 0 else (fitting or ["text"])[0]
        is_whole = filled > 0 and kind == "number" and looks["whole"][number] == filled
        table_columns[name] = TableColumn(name, kind, "VARCHAR", is_whole)
    return Table(
        what,
        shown,
        tuple(found.files),
        table_columns,
        texts=tuple(found.files),
        layout=found.layout,
        has_names=found.has_names,
        has_labels=what == "nodes" and says_labels(shown),
        has_rows=num_sampled > 0,
        decisions=tuple(found.decisions),
    )


def _check_names(found: TextRows) -> None:
    with_null = next((name for name in found.names if "\0" in name), None)
    if with_null is not None:
        raise SourceError(f"{found.place}: column {with_null!r} must have a name without null characters; rename it")
    lowered = [name.lower() for name in found.names]
    repeated = [name for name in found.names if lowered.count(name.lower()) > 1 or name in _TAKEN_NAMES]
    if repeated:
        raise SourceError(
            f"{found.place}: column '{repeated[0]}' must have a name of its own, other than "
            f"{' and '.join(_TAKEN_NAMES)}; rename it"
        )


def read_parquet(*paths: Path) -> str:
    """Return SQL for the rows of files, in order, with the file's name and the row's number in it."""
    files = ", ".join(quoted(glob_of(path)) for path in paths)
    return f"read_parquet([{files}], filename=true, file_row_number=true, hive_partitioning=false)"


def read_csv(path: Path, names: Sequence[str], delimiter: str, skipped: int = 0) -> str:
    """Return SQL for the rows of a CSV file as text; empty fields are null. skipped: lines before the first row."""
    columns = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in names)
    quote = quoted('"')
    return (
        f"read_csv({quoted(glob_of(path))}, auto_detect=false, header=false, skip={skipped}, columns={{{columns}}}, "
        f"delim={quoted(delimiter)}, quote={quote}, escape={quote}, nullstr='', strict_mode=true, "
        f"max_line_size={_MOST_LINE_BYTES}, buffer_size={4 * _MOST_LINE_BYTES})"
    )


def glob_of(path: Path) -> str:
    """Escape a path for a function that takes glob patterns."""
    return re.sub(r"([*?\[])", r"[\1]", str(path.absolute()))


@contextmanager
def source_faults(shown: Mapping[Path, Path], lines_before: int = 0) -> Iterator[None]:
    """Turn errors of DuckDB into SourceError.

    shown: maps files that DuckDB reads to the user's files. lines_before: lines of the user's file before those.
    """
    try:
        yield
    except (QueryError, DestinationError) as error:
        fault = _fault_of(str(error.__cause__ or error), shown, isinstance(error, QueryError), lines_before)
        if fault is None:
            raise
        raise SourceError(fault) from error


def _fault_of(text: str, shown: Mapping[Path, Path], is_content: bool, lines_before: int) -> str | None:
    named = {str(path.absolute()): path_shown for path, path_shown in shown.items()}
    # DuckDB's own messages may show a part of the file, which may have marks, too.
    parts = text.splitlines()[0].split(FAULT_MARK)
    if len(parts) >= _LEAST_FAULT_PARTS and parts[2] in named:
        _, number, file, rule, advice, *value = parts
        got = shorten(value[0]) if value else "nothing"
        return f"{named[file]}, row {int(number) + 1}: {rule}, got {got}; {advice}"
    file = next((each for each in named if each in text), next(iter(named)) if is_content else "")
    if not file:
        return None
    line = re.search(r"CSV Error on Line: (\d+)", text)
    if line is None:
        first = text.splitlines()[0].replace(file, str(named[file]))
        return f"{named[file]}: cannot be read: {first}; it is damaged or not Parquet: write it again"
    counts = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", text)
    if counts:
        rule = f"a row must have {counts[1]} columns, as the first has, got {counts[2]}; fix the line"
    elif "unterminated quote" in text:
        rule = "a field that begins with a quote must end with one; fix the line"
    elif "unicode" in text:
        rule = "must be text in UTF-8; save the file as UTF-8"
    else:
        rule = f"cannot be parsed: a line must be at most {_MOST_LINE_BYTES} bytes of valid CSV; fix the line"
    return f"{named[file]}, line {int(line[1]) + lines_before}: {rule}"


def _kind_of(stored: str) -> Kind:
    if stored in _INTEGERS or stored.removeprefix("U") in _INTEGERS:
        return "integer"
    if stored.startswith(_NUMBERS) and not stored.endswith("]"):
        return "number"
    if stored.startswith(_NUMBERS) and stored.count("[") == 1:
        return "numbers"
    if stored == "BOOLEAN":
        return "boolean"
    if stored in ("VARCHAR", "UUID"):
        return "text"
    return "time" if stored.startswith("TIMESTAMP") or stored == "DATE" else "other"


def _listed(columns: Mapping[str, TableColumn]) -> str:
    return ", ".join(f"{column.name} {column.stored}" for column in columns.values())

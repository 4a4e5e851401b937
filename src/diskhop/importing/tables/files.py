"""Files and columns of tables, and errors of DuckDB translated to those of the user's files.

A *table* is one file or several parts in the order of their names, all Parquet or all CSV with a header. Errors count
rows from 1. The *kind* of a column is stated by Parquet; in CSV it is inferred from the first rows of each file.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from diskhop.errors import DestinationError, DiskhopError, SourceError
from diskhop.importing.source_file import SourceFile, source_errors
from diskhop.importing.text.streams import damage_errors, open_text, require_unpacks
from diskhop.runtime.duck import Duck, QueryError, quoted

Kind = Literal["integer", "number", "boolean", "text", "time", "numbers", "nothing", "other"]
SUFFIXES = (".parquet", ".csv", ".csv.gz")
# Separates the parts of the error that a query raises for a row.
FAULT_MARK = "\x1f"
SAMPLE_ROWS = 2048
_MOST_LINE_BYTES = 1 << 20
_DELIMITERS = (",", "\t", ";", "|")
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_NUMBERS = (*_INTEGERS, *(f"U{name}" for name in _INTEGERS), "FLOAT", "DOUBLE", "DECIMAL")
# Columns that DuckDB adds to those of Parquet.
_TAKEN_NAMES = ("filename", "file_row_number")
_LOOKS = {
    "integer": "regexp_full_match({0}, '[ \\t]*[+-]?[0-9]+[ \\t]*')",
    "number": "TRY_CAST({0} AS DOUBLE) IS NOT NULL",
    "time": "TRY_CAST({0} AS TIMESTAMPTZ) IS NOT NULL",
}
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table.

    name: as in the file.
    kind: how its values can be used.
    stored: its type in DuckDB, VARCHAR for every column of CSV.
    """

    name: str
    kind: Kind
    stored: str

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
    delimiter: of CSV; None: Parquet.
    """

    what: str
    shown: Path
    files: tuple[SourceFile, ...]
    columns: Mapping[str, TableColumn]
    counts: tuple[int, ...] = ()
    delimiter: str | None = None

    def column(self, name: str, option: str) -> TableColumn:
        """Find the column that an option names. Raises SourceError, which lists all columns."""
        if name not in self.columns:
            raise SourceError(f"{self.shown}: has no column '{name}'; {option} can name {', '.join(self.columns)}")
        return self.columns[name]


def find_files(source: Path, what: str) -> tuple[SourceFile, ...]:
    """Find the files of a table by its name in a folder; empty: there is none."""
    with source_errors(str(source)):
        whole = [path for suffix in SUFFIXES if (path := source / f"{what}{suffix}").exists()]
        folder = source / what
        parts = sorted(folder.iterdir()) if folder.is_dir() else []
    parts = [path for path in parts if suffix_of(path) and not path.name.startswith((".", "_"))]
    kinds = [path.name for path in whole] + [f"{what}/*{kind}" for kind in sorted({suffix_of(path) for path in parts})]
    if (len(kinds) > 1 and {suffix_of(path) for path in [*whole, *parts]} != {".csv", ".csv.gz"}) or (whole and parts):
        raise SourceError(f"{source}: has {' and '.join(kinds)}; keep one of them")
    return tuple(SourceFile.of(path) for path in [*whole, *parts])


def suffix_of(path: Path) -> str:
    """Return the suffix of a file of a table; empty for other files."""
    return next((suffix for suffix in SUFFIXES if path.name.endswith(suffix)), "")


def open_table(shown: Path, what: str, files: tuple[SourceFile, ...], duck: Duck) -> Table:
    """Open a table. Raises SourceError for files that cannot be read, or have different columns."""
    for file in files:
        try:
            str(file.path.resolve()).encode()
        except UnicodeEncodeError:
            raise SourceError(f"{file.path}: must be valid UTF-8, because DuckDB reads it; rename it") from None
    if suffix_of(files[0].path) == ".parquet":
        return _open_parquet(shown, what, files, duck)
    return _open_csv(shown, what, files, duck)


def _open_parquet(shown: Path, what: str, files: tuple[SourceFile, ...], duck: Duck) -> Table:
    columns: dict[str, TableColumn] = {}
    counts = []
    for file in files:
        with source_faults({file.path: file.path}):
            names, types = duck.fetch(f"DESCRIBE SELECT * FROM read_parquet({quoted(glob_of(file.path))})")[:2]
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
    return Table(what, shown, files, columns, tuple(counts))


def _open_csv(shown: Path, what: str, files: tuple[SourceFile, ...], duck: Duck) -> Table:
    delimiter, names = _read_header(files[0].path)
    looks = dict.fromkeys(("filled", *_LOOKS), [0] * len(names))
    for file in files:
        header = _read_header(file.path)
        if header != (delimiter, names):
            raise SourceError(
                f"{file.path}: has columns {', '.join(header[1])}, and {files[0].path} {', '.join(names)}; "
                "give all files the same"
            )
        sample = f"(SELECT * FROM {read_csv(file.path, names, delimiter)} LIMIT {SAMPLE_ROWS})"
        columns = [TableColumn(name, "text", "VARCHAR").sql for name in names]
        tests = {"filled": "{0} IS NOT NULL", **_LOOKS}
        with _gzip_faults(file.path), source_faults({file.path: file.path}):
            counted = (f"count(*) FILTER ({test.format(each)})" for test in tests.values() for each in columns)
            counts = duck.fetch(f"SELECT {', '.join(counted)} FROM {sample}")
        found = [int(count[0]) for count in counts]
        for number, test in enumerate(looks):
            here = found[number * len(names) : (number + 1) * len(names)]
            looks[test] = [before + more for before, more in zip(looks[test], here, strict=True)]
    kinds: list[Kind] = []
    for number, filled in enumerate(looks["filled"]):
        fitting: list[Kind] = [kind for kind in ("integer", "number", "time") if looks[kind][number] == filled]
        kinds.append("nothing" if filled == 0 else (fitting or ["text"])[0])
    table_columns = {name: TableColumn(name, kind, "VARCHAR") for name, kind in zip(names, kinds, strict=True)}
    return Table(what, shown, files, table_columns, delimiter=delimiter)


@contextmanager
def _gzip_faults(path: Path) -> Iterator[None]:
    """Check a gzip file that DuckDB refuses, so that the error names the damaged line."""
    try:
        yield
    except DiskhopError:
        require_unpacks(path)
        raise


def _read_header(path: Path) -> tuple[str, list[str]]:
    with source_errors(str(path)), damage_errors(path), open_text(path) as text:
        line = text.readline(_MOST_LINE_BYTES)
    try:
        header = line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise SourceError(f"{path}, line 1: must be text in UTF-8; save the file as UTF-8") from None
    if not header.strip():
        raise SourceError(f"{path}, line 1: must name the columns; add a header")
    delimiter = max(_DELIMITERS, key=header.count)
    try:
        (names,) = csv.reader([header], delimiter=delimiter, strict=True)
    except csv.Error as error:
        raise SourceError(f"{path}, line 1: must name the columns, but: {error}; fix the header") from None
    if all(name.strip().isdecimal() for name in names):
        raise SourceError(f"{path}, line 1: must name the columns, got only numbers; add a header")
    lowered = [name.lower() for name in names]
    repeated = [name for name in names if lowered.count(name.lower()) > 1 or not name or name in _TAKEN_NAMES]
    if repeated:
        raise SourceError(
            f"{path}, line 1: column '{repeated[0]}' must have a name of its own, other than "
            f"{' and '.join(_TAKEN_NAMES)}; rename it"
        )
    return delimiter, names


def read_parquet(*paths: Path) -> str:
    """Return SQL for the rows of files, in order, with the file's name and the row's number in it."""
    return f"read_parquet([{', '.join(quoted(glob_of(path)) for path in paths)}], filename=true, file_row_number=true)"


def read_csv(path: Path, names: Sequence[str], delimiter: str) -> str:
    """Return SQL for the rows of a CSV file as text; empty fields are null."""
    columns = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in names)
    quote = quoted('"')
    return (
        f"read_csv({quoted(glob_of(path))}, auto_detect=false, header=true, columns={{{columns}}}, "
        f"delim={quoted(delimiter)}, quote={quote}, escape={quote}, nullstr='', strict_mode=true, "
        f"max_line_size={_MOST_LINE_BYTES}, buffer_size={4 * _MOST_LINE_BYTES})"
    )


def glob_of(path: Path) -> str:
    """Escape a path for a function that takes glob patterns."""
    return re.sub(r"([*?\[])", r"[\1]", str(path.absolute()))


@contextmanager
def source_faults(shown: Mapping[Path, Path]) -> Iterator[None]:
    """Turn errors of DuckDB into SourceError. shown: maps files that DuckDB reads to the user's files."""
    try:
        yield
    except (QueryError, DestinationError) as error:
        fault = _fault_of(str(error.__cause__ or error), shown, isinstance(error, QueryError))
        if fault is None:
            raise
        raise SourceError(fault) from error


def _fault_of(text: str, shown: Mapping[Path, Path], is_content: bool) -> str | None:
    named = {str(path.absolute()): path_shown for path, path_shown in shown.items()}
    if FAULT_MARK in text:
        _, number, file, rule, *value = text.splitlines()[0].split(FAULT_MARK)
        return f"{named[file]}, row {int(number) + 1}: {rule}, got {shorten(value[0]) if value else 'nothing'}"
    file = next((each for each in named if each in text), next(iter(named)) if is_content else "")
    if not file:
        return None
    line = re.search(r"CSV Error on Line: (\d+)", text)
    if line is None:
        first = text.splitlines()[0].replace(file, str(named[file]))
        return f"{named[file]}: cannot be read: {first}; it is damaged or not Parquet: write it again"
    counts = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", text)
    if counts:
        rule = f"a row must have {counts[1]} columns, as the header has, got {counts[2]}; fix the line"
    elif "unterminated quote" in text:
        rule = "a field that begins with a quote must end with one; fix the line"
    elif "unicode" in text:
        rule = "must be text in UTF-8; save the file as UTF-8"
    else:
        rule = f"cannot be parsed: a line must be at most {_MOST_LINE_BYTES} bytes of valid CSV; fix the line"
    return f"{named[file]}, line {line[1]}: {rule}"


def shorten(value: str) -> str:
    """Quote and shorten a value for errors."""
    return f"'{value}'" if len(value) <= _SHOWN_CHARACTERS else f"'{value[:_SHOWN_CHARACTERS]}...'"


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

"""Tasks of an import of triples. Each writes a file of the work folder, with the same bytes when repeated.

Rows have a column `row`: the offset of their slice plus their number in it. It ascends within a file, and leads to the
line of a row that breaks a rule. Numbered triples are raw int64 (triples, 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import SourceError
from diskhop.importing.numbering.tasks import read_parquet
from diskhop.importing.shorten import shorten
from diskhop.importing.text.rows import Slice
from diskhop.importing.text.streams import MOST_LINE_BYTES
from diskhop.importing.triples.rows import ENTITIES, RELATIONS, TRIPLE, RowKind
from diskhop.runtime.duck import Duck, as_file, quoted
from diskhop.runtime.tasks import TaskTools

TRIPLE_BYTES = 24
# Dictionary of each column.
_LISTED_IN = {"head": ENTITIES, "relation": RELATIONS, "tail": ENTITIES}


@dataclass(frozen=True)
class ParseTexts:
    """Convert the rows of a slice to Parquet: `row`, and the columns unchanged."""

    name: str
    piece: Slice
    kind: RowKind
    duck: Duck

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task. Raises SourceError with file and line."""
        with as_file(self.kind.rows_of(self.piece)) as file:
            rows = _text_rows(file, self.kind)
            row = f"{self.piece.begin} + row_number() OVER () - 1 AS row"
            self.duck.run(
                f"COPY (SELECT {row}, {', '.join(self.kind.taken)} FROM {rows}) TO {quoted(path)} (FORMAT parquet)"
            )


@dataclass(frozen=True)
class SortDictionary:
    """Sort a dictionary into Parquet (id, name) by id. Ids must be 0 to count - 1, and ids and names unique."""

    name: str
    rows: tuple[Path, ...]
    pieces: tuple[Slice, ...]
    kind: RowKind
    duck: Duck

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task. Raises SourceError with file and line."""
        rows = read_parquet(*self.rows)
        found = self.duck.fetch(f"SELECT count(*), count(DISTINCT id), count(DISTINCT name), max(id) FROM {rows}")
        count, num_ids, num_names, highest = (int(column[0]) for column in found)
        for column, num_distinct in (("id", num_ids), ("name", num_names)):
            if num_distinct < count:
                again = f"SELECT row, row_number() OVER (PARTITION BY {column} ORDER BY row) AS time FROM {rows}"
                place, fields = self._first(f"SELECT min(row) FROM ({again}) WHERE time = 2")
                raise SourceError(
                    f"{place}: the {column} {shorten(fields[column])} occurs before; remove one of the lines"
                )
        if highest >= count:
            place, fields = self._first(f"SELECT min(row) FROM {rows} WHERE id >= {count}")
            raise SourceError(
                f"{place}: the id {fields['id']} must be less than {count}, the number of names; number them from 0 "
                "without gaps"
            )
        self.duck.run(f"COPY (SELECT id, name FROM {rows} ORDER BY id) TO {quoted(path)} (FORMAT parquet)")

    def _first(self, query: str) -> tuple[str, dict[str, str]]:
        (found,) = self.duck.fetch(query)
        return _find_row(int(found[0]), self.pieces, self.kind)


@dataclass(frozen=True)
class NumberNames:
    """Number the triples of some slices, in order. listed: Parquet files (id, name) of entities and relations."""

    name: str
    rows: tuple[Path, ...]
    pieces: tuple[Slice, ...]
    kind: RowKind
    listed: Mapping[str, Path]
    duck: Duck

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task. Raises SourceError, with file and line, for a name that no dictionary has."""
        joins = " ".join(
            f"LEFT JOIN {read_parquet(self.listed[what])} {column}s ON {column}s.name = rows.{column}"
            for column, what in _LISTED_IN.items()
        )
        ids = ", ".join(f"{column}s.id AS {column}" for column in _LISTED_IN)
        *columns, rows = self.duck.fetch(f"SELECT {ids}, row FROM {read_parquet(*self.rows)} rows {joins} ORDER BY row")
        is_missing = [np.ma.getmaskarray(column) for column in columns]
        if any(mask.any() for mask in is_missing):
            first = int(np.argmax(np.logical_or.reduce(is_missing)))
            place, fields = _find_row(int(rows[first]), self.pieces, self.kind)
            for (column, what), mask in zip(_LISTED_IN.items(), is_missing, strict=True):
                if mask[first]:
                    raise SourceError(
                        f"{place}: the {column} {shorten(fields[column])} is not among the {what}; add it there"
                        f"{_other_order(fields, self._is_listed)}"
                    )
        _write_triples(path, columns)

    def _is_listed(self, name: str, what: str) -> bool:
        rows = read_parquet(self.listed[what])
        (found,) = self.duck.fetch(f"SELECT count(*) FROM {rows} WHERE name = {quoted(name)}")
        return bool(found[0])


@dataclass(frozen=True)
class ParseIds:
    """Parse the triples of a slice of ids. counts: numbers of entities and relations; ids must be less."""

    name: str
    piece: Slice
    kind: RowKind
    counts: Mapping[str, int]
    duck: Duck

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task. Raises SourceError with file and line."""
        with as_file(self.kind.rows_of(self.piece)) as file:
            columns = self.duck.fetch(f"SELECT {', '.join(TRIPLE)} FROM {_text_rows(file, self.kind)}")
        is_beyond = [column >= self.counts[what] for column, what in zip(columns, _LISTED_IN.values(), strict=True)]
        if any(mask.any() for mask in is_beyond):
            self._refuse(int(np.argmax(np.logical_or.reduce(is_beyond))))
        _write_triples(path, columns)

    def _refuse(self, number: int) -> NoReturn:
        place, fields = self.kind.find_row(self.piece, number)
        column, what = next(each for each in _LISTED_IN.items() if int(fields[each[0]]) >= self.counts[each[1]])
        raise SourceError(
            f"{place}: the {column} {fields[column]} must be less than {self.counts[what]}, the number of {what}; "
            f"correct it{_other_order(fields, lambda text, what: text.isdigit() and int(text) < self.counts[what])}"
        )


def _other_order(fields: Mapping[str, str], is_listed: Callable[[str, str], bool]) -> str:
    """Propose an order of columns in which all names of a row are listed; '' if there is none."""
    texts = list(fields.values())
    for places in permutations(range(len(texts)), len(TRIPLE)):
        if all(is_listed(texts[place], _LISTED_IN[column]) for column, place in zip(TRIPLE, places, strict=True)):
            order = ",".join(str(place + 1) for place in places)
            return f", or name the columns of head, relation and tail: --columns {order}"
    return ""


def count_triples(path: Path) -> int:
    """Count the triples in a file of numbered triples."""
    return path.stat().st_size // TRIPLE_BYTES


def _write_triples(path: Path, columns: Sequence[NDArray[Any]]) -> None:
    with path.open("wb") as file:
        file.write(np.stack(columns, axis=1).astype("<i8", copy=False).data)


def _text_rows(file: str, kind: RowKind) -> str:
    """Return SQL of rows that rows_of() has checked."""
    columns = ", ".join(
        f"{quoted(name)}: {quoted(sql if name in kind.taken else 'VARCHAR')}" for name, sql in kind.columns.items()
    )
    return (
        f"read_csv({quoted(file)}, auto_detect=false, header=false, columns={{{columns}}}, "
        f"delim={quoted(kind.delimiter)}, quote='', escape='', comment='', new_line='\\n', "
        f"max_line_size={MOST_LINE_BYTES})"
    )


def _find_row(row: int, pieces: Sequence[Slice], kind: RowKind) -> tuple[str, dict[str, str]]:
    piece = next(piece for piece in pieces if piece.begin <= row < piece.end)
    return kind.find_row(piece, row - piece.begin)

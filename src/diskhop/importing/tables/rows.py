"""Rows of a table as Parquet, and its columns as numbers, streamed within the budget."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import SourceError
from diskhop.importing.balance import LineCounts
from diskhop.importing.shorten import shorten
from diskhop.importing.tables.files import Table, TableColumn, read_parquet, source_faults
from diskhop.importing.tables.values import numbers_value
from diskhop.importing.tools import ImportTools
from diskhop.runtime.duck import Duck

# Memory of DuckDB, reserved under READING: at least LEAST_DUCK_BYTES.
READING = "reading tables"
LEAST_DUCK_BYTES = 64 << 20
_MOST_THREADS = 4


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a table in Parquet files.

    table: the table.
    paths: its Parquet files, or those that its text was converted to.
    counts: rows of each file.
    lines: lines of all files, of text; rows of Parquet.
    """

    table: Table
    paths: tuple[Path, ...]
    counts: tuple[int, ...]
    lines: LineCounts

    @property
    def num_rows(self) -> int:
        """Rows of all files."""
        return sum(self.counts)

    @property
    def sql(self) -> str:
        """SQL of all rows, in order."""
        return read_parquet(*self.paths)

    @property
    def identity(self) -> str:
        """Text that changes when a file does."""
        return "\n".join(file.identity for file in self.table.files)

    def faults(self) -> AbstractContextManager[None]:
        """Turn errors of DuckDB into SourceError with the user's file."""
        return source_faults(dict(zip(self.paths, (file.path for file in self.table.files), strict=True)))

    def pieces(self, first: int, count: int) -> Iterator[tuple[Path, int, int]]:
        """Yield rows first, first + 1, ... as (file, begin, end)."""
        begin = 0
        for path, num_rows in zip(self.paths, self.counts, strict=True):
            start, stop = max(first - begin, 0), min(first + count - begin, num_rows)
            if start < stop:
                yield path, start, stop
            begin += num_rows

    def place(self, row: int) -> str:
        """Name the file and row, for errors."""
        ends = list(accumulate(self.counts))
        number = bisect_right(ends, row)
        return f"{self.table.files[number].path}, row {row - ends[number] + self.counts[number] + 1}"

    def value(self, row: int, sql: str, duck: Duck) -> str:
        """Read a value of a row as text, for errors."""
        ((path, begin, _),) = self.pieces(row, 1)
        query = f"SELECT CAST({sql} AS VARCHAR) FROM {read_parquet(path)} WHERE file_row_number = {begin}"
        (values,) = duck.fetch(query)
        return "nothing" if np.ma.is_masked(values) else shorten(str(values[0]))


@contextmanager
def open_duck(work: ImportTools, num_bytes: int, threads: int | None = None) -> Iterator[Duck]:
    """Open DuckDB with num_bytes, at least LEAST_DUCK_BYTES, which stay reserved until it closes."""
    duck_bytes = max(LEAST_DUCK_BYTES, num_bytes)
    threads = min(work.threads, _MOST_THREADS) if threads is None else threads
    with work.budget.reserve(READING, duck_bytes), Duck(duck_bytes, threads, work.spill) as duck:
        yield duck


class TableValues:
    """Column with a number per row, or with the numbers of the rows that a condition selects.

    rows: the table's rows.
    sql: SQL of the number.
    dtype: its dtype.
    column: the column that it is made of, for errors.
    where_sql: condition on `value`, the number; empty: every row.
    """

    def __init__(
        self, rows: TableRows, sql: str, dtype: str, work: ImportTools, *, column: TableColumn, where_sql: str = ""
    ) -> None:
        self.where = f"{rows.table.shown}, column '{column.name}'"
        self.identity = f"{rows.identity}\n{sql}{where_sql}"
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.shape: tuple[int, ...] = (rows.num_rows,)
        self._rows = rows
        self._sql = f"SELECT {sql} FROM {rows.sql}"
        if where_sql:
            self._sql = (
                f"SELECT row FROM (SELECT row_number() OVER () - 1 AS row, {sql} AS value FROM {rows.sql}) "
                f"WHERE {where_sql}"
            )
        self._work = work

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column. Raises SourceError, with file and row, for a value that breaks a rule."""
        with open_duck(self._work, self._work.budget.available_bytes // 2) as duck, self._rows.faults():
            yield from duck.numbers(self._sql)


class TableNumbers:
    """Column of features or labels: the numbers of several columns of a table, as float32.

    rows: the table's rows.
    columns: columns of numbers, or of lists of numbers.
    dims: length of the lists, by column.
    key: column of ids, for errors.
    what: feature or label, for errors.
    takes_missing: whether a number may be missing, which is NaN.
    """

    dtype: np.dtype[Any] = np.dtype(np.float32)

    def __init__(
        self,
        rows: TableRows,
        columns: Sequence[TableColumn],
        dims: dict[str, int],
        work: ImportTools,
        *,
        key: TableColumn,
        what: str = "feature",
        takes_missing: bool = False,
    ) -> None:
        self.where = str(rows.table.shown)
        self._names = [
            f"{column.name}[{number}]" if column.name in dims else column.name
            for column in columns
            for number in range(1, 1 + dims.get(column.name, 1))
        ]
        self._values = [
            f"{column.sql}[{number}]" if column.name in dims else column.sql
            for column in columns
            for number in range(1, 1 + dims.get(column.name, 1))
        ]
        self.shape: tuple[int, ...] = (rows.num_rows, len(self._names))
        self._list, stored = numbers_value(columns, dims, takes_missing=takes_missing)
        self._stored = np.dtype(np.float32 if stored == "FLOAT" else np.float64)
        self.identity = f"{rows.identity}\n{self._list}"
        self._rows = rows
        self._work = work
        self._key = key
        self._what = what
        self._is_bad = np.isinf if takes_missing else lambda block: ~np.isfinite(block)

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column. Raises SourceError, with file, row, node and column, for a value that is not finite."""
        dim = self.shape[1]
        first_row = 0
        rest = np.empty(0, self._stored)
        bad = None
        # With one number per row, blocks of wide features are not larger than those of narrow ones.
        sql = f"SELECT unnest({self._list}) FROM {self._rows.sql}"
        with open_duck(self._work, self._work.budget.available_bytes // 2) as duck, self._rows.faults():
            for numbers in duck.numbers(sql):
                joined = np.concatenate([rest, numbers]) if len(rest) else numbers
                whole = len(joined) // dim * dim
                rest = joined[whole:]
                with np.errstate(over="ignore"):
                    block = joined[:whole].reshape(-1, dim).astype(np.float32, copy=False)
                is_bad = self._is_bad(block)
                if is_bad.any():
                    row, column = divmod(int(np.argmax(is_bad)), dim)
                    bad = first_row + row, column
                    break
                if len(block):
                    yield block
                first_row += len(block)
        # Only now: DuckDB cannot run a query while another one streams.
        if bad is not None:
            raise self._fault(*bad)

    def _fault(self, row: int, column: int) -> SourceError:
        with open_duck(self._work, 0) as duck, self._rows.faults():
            node = self._rows.value(row, self._key.sql, duck)
            value = self._rows.value(row, self._values[column], duck)
        return SourceError(
            f"{self._rows.place(row)}: {self._what} '{self._names[column]}' of node {node} must be a finite number "
            f"that fits float32, got {value}; replace it"
        )

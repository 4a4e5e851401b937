"""The rows of a table as Parquet, and columns of it as numbers, streamed within the budget."""

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
from diskhop.importing.tables.files import Table, TableColumn, read_parquet, shorten, source_faults
from diskhop.importing.tables.roles import features_value
from diskhop.importing.tools import ImportTools
from diskhop.runtime.duck import Duck

# What DuckDB takes of a budget, by this name: at least, and to read a column while others hold the rest.
READING = "reading tables"
LEAST_DUCK_BYTES = 64 << 20
_MOST_THREADS = 4


@dataclass(frozen=True, slots=True)
class TableRows:
    """paths: Parquet, the source's own or what its text became. counts: rows of each."""

    table: Table
    paths: tuple[Path, ...]
    counts: tuple[int, ...]

    @property
    def num_rows(self) -> int:
        """Of all files."""
        return sum(self.counts)

    @property
    def sql(self) -> str:
        """All rows, in order."""
        return read_parquet(*self.paths)

    @property
    def identity(self) -> str:
        """What changes when a file does."""
        return "\n".join(file.identity for file in self.table.files)

    def faults(self) -> AbstractContextManager[None]:
        """Tell what DuckDB refuses by the file that the user gave."""
        return source_faults(dict(zip(self.paths, (file.path for file in self.table.files), strict=True)))

    def pieces(self, first: int, count: int) -> Iterator[tuple[Path, int, int]]:
        """Rows first, first + 1, ... as (file, begin, end)."""
        begin = 0
        for path, num_rows in zip(self.paths, self.counts, strict=True):
            start, stop = max(first - begin, 0), min(first + count - begin, num_rows)
            if start < stop:
                yield path, start, stop
            begin += num_rows

    def place(self, row: int) -> str:
        """File and row for errors."""
        ends = list(accumulate(self.counts))
        number = bisect_right(ends, row)
        return f"{self.table.files[number].path}, row {row - ends[number] + self.counts[number] + 1}"

    def value(self, row: int, sql: str, duck: Duck) -> str:
        """A value of a row as text."""
        ((path, begin, _),) = self.pieces(row, 1)
        query = f"SELECT CAST({sql} AS VARCHAR) FROM {read_parquet(path)} WHERE file_row_number = {begin}"
        (values,) = duck.fetch(query)
        return "nothing" if np.ma.is_masked(values) else shorten(str(values[0]))


@contextmanager
def open_duck(work: ImportTools, num_bytes: int, threads: int | None = None) -> Iterator[Duck]:
    """DuckDB within bytes that are reserved; LEAST_DUCK_BYTES at least."""
    duck_bytes = max(LEAST_DUCK_BYTES, num_bytes)
    threads = min(work.threads, _MOST_THREADS) if threads is None else threads
    with work.budget.reserve(READING, duck_bytes), Duck(duck_bytes, threads, work.spill) as duck:
        yield duck


class TableValues:
    """See Column. One number for each row, or for each row that `where_sql` takes: sql, of the dtype."""

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


class TableFeatures:
    """See Column. Numbers of several columns, lists of `dims` numbers among them, as float32."""

    dtype: np.dtype[Any] = np.dtype(np.float32)

    def __init__(
        self,
        rows: TableRows,
        columns: Sequence[TableColumn],
        dims: dict[str, int],
        work: ImportTools,
        *,
        key: TableColumn,
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
        self._list, stored = features_value(columns, dims)
        self._stored = np.dtype(np.float32 if stored == "FLOAT" else np.float64)
        self.identity = f"{rows.identity}\n{self._list}"
        self._rows = rows
        self._work = work
        self._key = key

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column. Raises SourceError, with file, row, node and column, for what is no finite number."""
        dim = self.shape[1]
        first_row = 0
        rest = np.empty(0, self._stored)
        bad = None
        # As one number a row, blocks are as small for wide features as for narrow ones.
        sql = f"SELECT unnest({self._list}) FROM {self._rows.sql}"
        with open_duck(self._work, self._work.budget.available_bytes // 2) as duck, self._rows.faults():
            for numbers in duck.numbers(sql):
                joined = np.concatenate([rest, numbers]) if len(rest) else numbers
                whole = len(joined) // dim * dim
                rest = joined[whole:]
                with np.errstate(over="ignore"):
                    block = joined[:whole].reshape(-1, dim).astype(np.float32, copy=False)
                is_bad = ~np.isfinite(block)
                if is_bad.any():
                    row, column = divmod(int(np.argmax(is_bad)), dim)
                    bad = first_row + row, column
                    break
                if len(block):
                    yield block
                first_row += len(block)
        # DuckDB is asked nothing while it streams.
        if bad is not None:
            raise self._fault(*bad)

    def _fault(self, row: int, column: int) -> SourceError:
        with open_duck(self._work, 0) as duck, self._rows.faults():
            node = self._rows.value(row, self._key.sql, duck)
            value = self._rows.value(row, self._values[column], duck)
        return SourceError(
            f"{self._rows.place(row)}: feature '{self._names[column]}' of node {node} must be a finite number "
            f"that fits float32, got {value}; mend or replace it"
        )

"""DuckDB within limits of memory, threads and a spill folder: it parses text, sorts and joins names, writes Parquet."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock, get_ident
from types import TracebackType
from typing import Any

import duckdb
from numpy.typing import NDArray

from diskhop.budget import format_bytes
from diskhop.errors import BudgetError, DestinationError, DiskhopError
from diskhop.runtime.duck_instances import close_instance, open_instance
from diskhop.runtime.jobs import Share
from diskhop.runtime.process import process_name

# Prefixes of the messages by which a stream reports errors as text.
_STREAM_ERRORS: dict[str, type[duckdb.Error]] = {
    "Out of Memory Error": duckdb.OutOfMemoryException,
    "IO Error": duckdb.IOException,
}

# Enough memory to parse, sort and join, spilling to disk.
LEAST_SHARE_BYTES = 64 << 20


class QueryError(DiskhopError, RuntimeError):
    """DuckDB refused data: malformed text, which importing/text reports precisely, or damage in files it wrote."""


class Duck:
    """An in-memory DuckDB that is opened on first use and spills to a folder; its context closes it.

    Thread-safe: every thread has its own connection. Worker processes each get a DuckDB with an equal part of memory
    and threads, of least_bytes or more.
    """

    def __init__(self, memory_bytes: int, threads: int, spill: Path, least_bytes: int = LEAST_SHARE_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self._threads = threads
        self._spill = spill
        self._least_bytes = least_bytes
        self._lock = Lock()
        self._shared: duckdb.DuckDBPyConnection | None = None
        self._connections: dict[int, duckdb.DuckDBPyConnection] = {}

    def run(self, sql: str) -> None:
        """Run a statement to completion. Raises the errors of fetch()."""
        with self._errors():
            self._connection().execute(sql).complete()

    def run_with(self, columns: NDArray[Any] | Mapping[str, NDArray[Any]], sql: str) -> None:
        """Run a statement that selects from `columns`, arrays in memory. Raises the errors of fetch()."""
        assert len(columns) > 0, "DuckDB finds the variable by its name"
        with self._errors():
            self._connection().execute(sql).complete()

    def fetch(self, sql: str) -> list[NDArray[Any]]:
        """Return the columns of a result in memory, as masked arrays where there are nulls.

        Raises QueryError for invalid data, BudgetError if memory_bytes is too small, DestinationError for a full disk,
        KeyboardInterrupt if a signal handler raised.
        """
        with self._errors():
            return list(self._connection().execute(sql).fetchnumpy().values())

    def stream(self, sql: str, num_rows: int) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a result in blocks of num_rows. Raises the errors of fetch()."""
        with self._errors():
            result = self._connection().execute(sql)
            while rows := result.fetchmany(num_rows):
                yield rows

    def numbers(self, sql: str) -> Iterator[NDArray[Any]]:
        """Yield the only column of a result in blocks of about a MiB, nulls as NaN. Raises the errors of fetch().

        The same thread must not run other queries until all blocks are consumed.
        """
        import pyarrow  # takes half a second and 30 MB, so only tables pay for it

        with self._errors():
            try:
                for batch in pyarrow.RecordBatchReader.from_stream(self._connection().sql(sql)):
                    yield batch.column(0).to_numpy(zero_copy_only=False)
            except (pyarrow.ArrowException, OSError) as error:
                kinds = [kind for start, kind in _STREAM_ERRORS.items() if str(error).startswith(start)]
                raise (kinds or [duckdb.Error])[0](str(error)) from None

    def shares(self, processes: int) -> int:
        """Return the largest number of processes, at most `processes`, that it can be divided among."""
        return max(1, min(processes, self._memory_bytes // self._least_bytes))

    def for_workers(self, share: Share) -> partial[Duck]:
        """Divide memory and threads among worker processes (see Workers)."""
        if self.shares(share.processes) < share.processes:
            raise TypeError(f"{self._memory_bytes} bytes are too few for {share.processes} instances of DuckDB")
        memory_bytes, threads = self._memory_bytes // share.processes, max(1, self._threads // share.processes)
        return partial(_open_share, memory_bytes, threads, self._spill)

    def __enter__(self) -> Duck:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()
        if self._shared is not None:
            with self._errors():
                close_instance(self._shared, had_error=kind is not None)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            raise BudgetError(
                f"--memory is too small: DuckDB needs more than {format_bytes(self._memory_bytes)} to parse and join, "
                "even when it spills to disk; double --memory"
            ) from error
        except duckdb.IOException as error:
            raise DestinationError(f"{self._spill}: DuckDB cannot write: {str(error).splitlines()[0]}") from error
        except duckdb.Error as error:
            raise QueryError(
                f"{self._spill.parent}: DuckDB cannot read its own files: {str(error).splitlines()[0]}; "
                "remove the folder and run the same command again"
            ) from error
        except RuntimeError as error:
            # DuckDB runs signal handlers and discards the exceptions they raise.
            if str(error) != "Query interrupted":
                raise
            raise KeyboardInterrupt from None

    def _connection(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if self._shared is None:
                self._shared = open_instance(self._memory_bytes, self._threads, self._spill)
            if get_ident() not in self._connections:
                connection = self._shared.cursor()
                # diskhop shows progress itself, and stdout is for results.
                connection.execute("SET enable_progress_bar = false").complete()
                # Times must not depend on the time zone of the machine.
                connection.execute("SET TimeZone = 'UTC'").complete()
                self._connections[get_ident()] = connection
            return self._connections[get_ident()]


def _open_share(memory_bytes: int, threads: int, spill: Path) -> Duck:
    # Separate folders, because the files of all processes have the same names, also those of other machines.
    return Duck(memory_bytes, threads, spill.with_name(f"{spill.name}-{process_name()}"))


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """Provide UTF-8 text in memory under a path that DuckDB can read."""
    descriptor = os.memfd_create("slice")
    with os.fdopen(descriptor, "wb") as file:
        file.write(codecs.BOM_UTF8)  # DuckDB drops a leading BOM; the content's own may be part of a name
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"


def require_text_path(path: Path) -> None:
    """Raise DestinationError for a path that DuckDB cannot represent."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise DestinationError(
            f"{path}: must be valid UTF-8, because DuckDB writes there; choose another destination"
        ) from None


def quoted(text: str | Path) -> str:
    """Quote text as an SQL literal."""
    return "'" + str(text).replace("'", "''") + "'"

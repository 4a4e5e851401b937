"""DuckDB, kept within bytes, threads and a folder: it parses text, sorts and joins names, and writes Parquet."""

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

from diskhop.errors import BudgetError, DestinationError, DiskhopError
from diskhop.runtime.workers import Share

# How a stream, which raises nothing, begins what it says.
_STREAM_ERRORS: dict[str, type[duckdb.Error]] = {
    "Out of Memory Error": duckdb.OutOfMemoryException,
    "IO Error": duckdb.IOException,
}


# With this it parses, sorts and joins, if by way of the disk.
LEAST_SHARE_BYTES = 64 << 20


class QueryError(DiskhopError, RuntimeError):
    """DuckDB refused data: bad text, which edge_rows tells better, or damage in the files it wrote."""


class Duck:
    """One DuckDB in memory, opened when first asked, that spills to a folder. A context that closes it.

    Any number of threads may ask at once; each has a connection of its own. Workers that share it have a DuckDB each,
    with their part of memory and threads, least_bytes at least.
    """

    def __init__(self, memory_bytes: int, threads: int, spill: Path, least_bytes: int = LEAST_SHARE_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self._threads = threads
        self._spill = spill
        self._least_bytes = least_bytes
        self._config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory_bytes}B",
            "threads": threads,
            "temp_directory": str(spill),
            # It would take a slice for the one that lay at the same path before.
            "enable_external_file_cache": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        self._lock = Lock()
        self._shared: duckdb.DuckDBPyConnection | None = None
        self._connections: dict[int, duckdb.DuckDBPyConnection] = {}

    def run(self, sql: str) -> None:
        """Run a statement to its end. Raises as fetch does."""
        with self._errors():
            self._connection().execute(sql).complete()

    def run_with(self, columns: NDArray[Any] | Mapping[str, NDArray[Any]], sql: str) -> None:
        """Run a statement that selects from `columns`, arrays in memory. Raises as fetch does."""
        assert len(columns) > 0, "DuckDB finds it by its name here"
        with self._errors():
            self._connection().execute(sql).complete()

    def fetch(self, sql: str) -> list[NDArray[Any]]:
        """The columns of a result, in memory; masked arrays where there are nulls.

        Raises QueryError for bad data, BudgetError where memory_bytes are too few, DestinationError for a full disk,
        KeyboardInterrupt where a signal's handler raised.
        """
        with self._errors():
            return list(self._connection().execute(sql).fetchnumpy().values())

    def stream(self, sql: str, num_rows: int) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a result, in blocks of num_rows, without holding them all. Raises as fetch does."""
        with self._errors():
            result = self._connection().execute(sql)
            while rows := result.fetchmany(num_rows):
                yield rows

    def numbers(self, sql: str) -> Iterator[NDArray[Any]]:
        """The one column of a result, in blocks of about a MiB; a null is NaN. Raises as fetch.

        Nothing else may be asked by the same thread until it is through.
        """
        import pyarrow  # half a second and 30 MB, which only tables need

        with self._errors():
            try:
                for batch in pyarrow.RecordBatchReader.from_stream(self._connection().sql(sql)):
                    yield batch.column(0).to_numpy(zero_copy_only=False)
            except (pyarrow.ArrowException, OSError) as error:
                kinds = [kind for start, kind in _STREAM_ERRORS.items() if str(error).startswith(start)]
                raise (kinds or [duckdb.Error])[0](str(error)) from None

    def shares(self, processes: int) -> int:
        """Among how many of the processes it can be divided."""
        return max(1, min(processes, self._memory_bytes // self._least_bytes))

    def for_workers(self, share: Share) -> partial[Duck]:
        """See Workers."""
        if self.shares(share.processes) < share.processes:
            raise TypeError(f"{self._memory_bytes} bytes are too few for {share.processes} DuckDBs")
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
            self._shared.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            raise BudgetError(
                "--memory is too small: DuckDB, which parses and joins, needs more than "
                f"{self._config['memory_limit']} with what it spills to disk; give it more"
            ) from error
        except duckdb.IOException as error:
            raise DestinationError(f"{self._spill}: DuckDB cannot write: {str(error).splitlines()[0]}") from error
        except duckdb.Error as error:
            raise QueryError(
                f"{self._spill.parent}: must be as DuckDB left it, got {str(error).splitlines()[0]}; "
                "remove it and run the same command again"
            ) from error
        except RuntimeError as error:
            # It runs the handlers of signals, and drops what they raise.
            if str(error) != "Query interrupted":
                raise
            raise KeyboardInterrupt from None

    def _connection(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if self._shared is None:
                self._shared = duckdb.connect(config=self._config)
            if get_ident() not in self._connections:
                connection = self._shared.cursor()
                # Progress is ours to show, and stdout is for results.
                connection.execute("SET enable_progress_bar = false").complete()
                # A time means the same wherever it is read.
                connection.execute("SET TimeZone = 'UTC'").complete()
                self._connections[get_ident()] = connection
            return self._connections[get_ident()]


def _open_share(memory_bytes: int, threads: int, spill: Path) -> Duck:
    # Each process has a folder of its own: their files have the same names.
    return Duck(memory_bytes, threads, spill.with_name(f"{spill.name}-{os.getpid()}"))


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """UTF-8 in memory under a path that DuckDB can read."""
    descriptor = os.memfd_create("slice")
    with os.fdopen(descriptor, "wb") as file:
        file.write(codecs.BOM_UTF8)  # DuckDB drops one that leads a file, and the content's may be a name's
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"


def require_text_path(path: Path) -> None:
    """Refuse a folder to write to that DuckDB cannot name."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise DestinationError(
            f"{path}: must be a path in UTF-8, as DuckDB writes there; choose another destination"
        ) from None


def quoted(text: str | Path) -> str:
    """Text as SQL has it."""
    return "'" + str(text).replace("'", "''") + "'"

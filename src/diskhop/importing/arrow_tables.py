"""Imports tables of pandas, Polars, DuckDB and PyArrow: whatever speaks Arrow's C stream interface.

Tables are streamed into Parquet files next to the destination, a batch at a time, and imported as tables on disk are.
No table is in memory a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diskhop.budget import Budget, parse_bytes
from diskhop.config.words import takes_words
from diskhop.dataset.build.builder import DATASET
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.fields import TYPE_NAME
from diskhop.errors import ConfigError, DiskhopError, SourceError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.io.atomic import destination_errors
from diskhop.io.destinations import require_new_folder, temporary_folder
from diskhop.io.engine import open_engine
from diskhop.runtime.progress import Progress, silent

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_PER_GROUP = 1 << 17


@takes_words(ImportOptions)
def from_arrow(
    edges: Any,
    path: str | Path,
    *,
    nodes: Any = None,
    name: str | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
    **options: Any,
) -> Dataset:
    """Make a dataset at `path` from tables of edges and nodes, and open it.

        diskhop.from_arrow(edges, "graph", nodes=nodes, label="category")

    edges: a DataFrame of pandas or Polars, a relation of DuckDB, a table or reader of PyArrow, or anything else with
        __arrow_c_stream__. Of a graph with several types: a dict by (source type, relation, destination type).
    nodes: a table of nodes likewise, node i is its row i; of several types: a dict by type. None: nodes are the ids
        that occur in edges, ascending.
    name: the dataset's name; default: the last part of path.
    memory: bytes, or a size such as '2GB', in addition to the tables; default: half of the free memory.
    threads: default: all cores.
    overwrite: whether a dataset at path is replaced.
    progress: called with a stage, and what is done of it and in total.

    Columns are found by name, as in tables on disk (the guide to importing tables), or named by the options. The tables
    are on disk twice until the import is done. Raises SourceError for tables that break a rule, ConfigError,
    BudgetError, DestinationError; nothing is then left at path.

    >>> import pyarrow
    >>> calls = pyarrow.table({"source": [10, 20, 30], "destination": [20, 30, 10]})
    >>> people = pyarrow.table({"id": [10, 20, 30], "age": [31.0, 47.0, 22.0]})
    >>> diskhop.from_arrow(calls, "calls", nodes=people, memory="200MB").num_edges
    3
    """
    path = Path(path)
    memory_bytes = parse_bytes(memory) if isinstance(memory, str) else memory
    settings = ImportOptions(**options)
    tables = _tables_by_file(edges, nodes)
    require_new_folder(path, DATASET, overwrite=overwrite)
    with temporary_folder(path, "tables") as folder:
        with destination_errors(path):
            for file, (what, table) in tables.items():
                (folder / file).parent.mkdir(exist_ok=True)
                _write(table, folder / file, what)
        try:
            return import_graph(
                folder,
                path,
                name=name or path.name,
                options=settings,
                engine=open_engine("auto").engine,
                budget=None if memory_bytes is None else Budget(memory_bytes),
                threads=threads,
                progress=progress,
                overwrite=overwrite,
            )
        except DiskhopError as error:
            # The caller has tables, and knows of no files.
            error.args = tuple(
                str(each).replace(f"{folder}/", "").replace(str(folder), "tables") for each in error.args
            )
            raise


def _tables_by_file(edges: Any, nodes: Any) -> dict[str, tuple[str, Any]]:
    """Return tables, with their names in errors, by the files that the importer of tables expects."""
    if isinstance(edges, Mapping):
        if nodes is not None and not isinstance(nodes, Mapping):
            raise ConfigError("nodes must be a dict by type, as edges are; for example {'author': authors}")
        if not edges:
            raise ConfigError("edges has no tables; for example {('author', 'writes', 'paper'): edges}")
        found = {f"edges/{_edge_type(key)}.parquet": (f"edges[{key!r}]", table) for key, table in edges.items()}
        for key, table in (nodes or {}).items():
            _require_name(key, f"nodes[{key!r}]")
            found[f"nodes/{key}.parquet"] = (f"nodes[{key!r}]", table)
    elif isinstance(nodes, Mapping):
        raise ConfigError(
            "edges must be a dict by type, as nodes are; for example {('author', 'writes', 'paper'): edges}"
        )
    else:
        found = {"edges.parquet": ("edges", edges)}
        if nodes is not None:
            found["nodes.parquet"] = ("nodes", nodes)
    for what, table in found.values():
        if not hasattr(table, "__arrow_c_stream__"):
            raise ConfigError(
                f"{what} must be a table of pandas, Polars, DuckDB or PyArrow, got {type(table).__name__}; "
                "for example polars.DataFrame({'source': [0, 1], 'destination': [1, 2]})"
            )
    return found


def _edge_type(key: Any) -> str:
    """Return the name of an edge type: its source type, relation and destination type. Raises ConfigError."""
    what = f"edges[{key!r}]"
    parts = tuple(key.split("__")) if isinstance(key, str) else key
    if not isinstance(parts, tuple) or len(parts) != 3:
        raise ConfigError(
            f"{what}: a key must be (source type, relation, destination type); as ('author', 'writes', 'paper')"
        )
    for part in parts:
        _require_name(part, what)
    joined = "__".join(parts)
    if not TYPE_NAME.fullmatch(joined):
        raise ConfigError(f"{what}: its three names must be at most 96 characters together; choose shorter names")
    return joined


def _require_name(name: Any, what: str) -> None:
    """Raise ConfigError for a name that an edge type's name could not be split into again."""
    is_name = isinstance(name, str) and TYPE_NAME.fullmatch(name) is not None
    if not is_name or "__" in name or name.startswith("_") or name.endswith("_"):
        raise ConfigError(
            f"{what}: type name {name!r} must be letters, digits and _ . + = -, at most 100 characters, without __ and "
            "without _ at its ends; rename the type"
        )


def _write(table: Any, path: Path, what: str) -> None:
    """Write the batches of a table to a Parquet file. what: the table's name in errors."""
    import pyarrow as pa  # takes half a second and 30 MB
    import pyarrow.parquet

    with _table_errors(what):
        reader = pa.RecordBatchReader.from_stream(table)
    with path.open("wb") as file:
        try:
            with pyarrow.parquet.ParquetWriter(file, reader.schema, compression="lz4") as writer:
                for batch in _batches(reader, what):
                    writer.write_batch(batch, row_group_size=_ROWS_PER_GROUP)
        except pa.ArrowException as error:  # a type that Parquet does not have
            raise _unreadable(what, error) from error


def _batches(reader: pa.RecordBatchReader, what: str) -> Iterator[pa.RecordBatch]:
    while True:
        with _table_errors(what):
            batch = next(reader, None)
        if batch is None:
            return
        yield batch


@contextmanager
def _table_errors(what: str) -> Iterator[None]:
    """Turn any exception of a table's own into a SourceError that names it: its stream may run any program."""
    try:
        yield
    except (DiskhopError, MemoryError):
        raise
    except Exception as error:
        raise _unreadable(what, error) from error


def _unreadable(what: str, error: Exception) -> SourceError:
    lines = str(error).split() or [type(error).__name__]
    return SourceError(f"{what}: cannot be read: {' '.join(lines)}; correct the table, or leave out the column")

"""Imports tables of pandas, Polars, DuckDB and PyArrow: whatever speaks Arrow's C stream interface.

Tables are streamed into Parquet files next to the destination, a batch at a time, and imported as tables on disk are.
No table is in memory a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from diskhop.budget import Budget, parse_bytes
from diskhop.config.words import takes_words
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, DiskhopError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.io.atomic import destination_errors, require_parent
from diskhop.io.engine import open_engine
from diskhop.runtime.progress import Progress, silent

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
    """
    path = Path(path)
    memory_bytes = parse_bytes(memory) if isinstance(memory, str) else memory
    with _folder_next_to(path) as folder:
        for part, tables in (("edges", edges), ("nodes", nodes)):
            if isinstance(tables, Mapping):
                (folder / part).mkdir()
                for key, table in tables.items():
                    stem = key if isinstance(key, str) else "__".join(key)
                    _write(table, folder / part / f"{stem}.parquet", f"{part}[{key!r}]")
            elif tables is not None:
                _write(tables, folder / f"{part}.parquet", part)
        try:
            return import_graph(
                folder,
                path,
                name=name or path.name,
                options=ImportOptions(**options),
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


@contextmanager
def _folder_next_to(path: Path) -> Iterator[Path]:
    with destination_errors(path), TemporaryDirectory(prefix=f".{path.name}.", dir=require_parent(path)) as folder:
        yield Path(folder)


def _write(table: Any, path: Path, what: str) -> None:
    """Write the batches of a table to a Parquet file."""
    import pyarrow as pa  # takes half a second and 30 MB
    import pyarrow.parquet

    if not hasattr(table, "__arrow_c_stream__"):
        raise ConfigError(
            f"{what} must be a table of pandas, Polars, DuckDB or PyArrow, got {type(table).__name__}; "
            "for example polars.DataFrame({'source': [0, 1], 'destination': [1, 2]})"
        )
    reader = pa.RecordBatchReader.from_stream(table)
    with pyarrow.parquet.ParquetWriter(path, reader.schema, compression="lz4") as writer:
        for batch in reader:
            writer.write_batch(batch, row_group_size=_ROWS_PER_GROUP)

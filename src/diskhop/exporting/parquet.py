"""Exports datasets as two tables, `nodes.parquet` and `edges.parquet`, which DuckDB writes from blocks of arrays.

Each block becomes a file first, and the files are then concatenated: DuckDB can stream from files, not from arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.build.files import DatasetFiles
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.files import damaged
from diskhop.dataset.manifest import SPLIT_NAMES
from diskhop.dataset.names import read_names
from diskhop.errors import ConfigError
from diskhop.exporting.arrays import only_types
from diskhop.exporting.columns import EDGES_PER_BLOCK, EdgeColumns, NodeColumns
from diskhop.exporting.split_codes import split_codes
from diskhop.io.atomic import announce, destination_errors, sync_file
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.duck import Duck, quoted, require_text_path
from diskhop.runtime.work_tools import WorkTools

# DuckDB processes vectors of this many rows; a row group is several vectors.
_VECTOR_ROWS = 2048
_MOST_GROUP_ROWS = 60 * _VECTOR_ROWS
_GROUP_BYTES = 8 << 20
# Memory of DuckDB: for any query, and per byte of a row group (read, assembled, encoded).
_DUCK_BYTES = 64 << 20
_DUCK_BYTES_PER_BYTE = 6
# Blocks in memory: as read, decoded, and by column.
_BLOCKS_BYTES = 48 << 20


def export_parquet(dataset: Dataset, files: DatasetFiles, work: WorkTools) -> None:
    """See export_dataset."""
    if dataset.manifest.triples is not None:
        raise ConfigError(f"{dataset.path}: has triples, and format 'parquet' cannot store them; use --format numpy")
    nodes, edges = only_types(dataset, "parquet", work)
    # In one row group, features and labels are lists that DuckDB makes of columns.
    row_bytes = 4 * nodes.nodes.feature_dim + 4 * nodes.nodes.num_tasks + 32
    with work.budget.reserve("nodes of splits", nodes.nodes.num_splits * nodes.count):
        _write_table(files.folder / "nodes.parquet", _nodes(dataset, nodes), _node_columns(dataset), row_bytes, work)
    if edges is not None:
        _write_table(files.folder / "edges.parquet", _edges(nodes, edges), ", ".join(edges.dtypes), 28, work)


def _node_columns(dataset: Dataset) -> str:
    """Return SQL of the columns of nodes.parquet, made from the columns of _nodes."""
    columns = ["id"]
    if "nodes" in dataset.manifest.names:
        columns.append("name")
    (nodes,) = dataset.nodes.values()
    if nodes.feature_dim:
        columns.append(f"{_list_of('feature', nodes.feature_dim)} AS feature")
    if nodes.num_tasks:
        columns.append(f"{_list_of('label', nodes.num_tasks)} AS label")
    elif nodes.has_labels:
        columns.append("nullif(label, -1) AS label")
    for number in range(nodes.num_splits):
        parts = {code: [part for bit, part in enumerate(SPLIT_NAMES) if code >> bit & 1] for code in range(1, 8)}
        cases = " ".join(f"WHEN {code} THEN {quoted(','.join(names))}" for code, names in parts.items())
        columns.append(f"CASE split_{number} {cases} END AS split{f'_{number}' if nodes.num_splits > 1 else ''}")
    return ", ".join(columns)


def _nodes(dataset: Dataset, nodes: NodeColumns) -> Iterator[Mapping[str, NDArray[Any]]]:
    num_splits = nodes.nodes.num_splits
    codes = [split_codes(nodes, number) for number in range(num_splits)]
    wanted = ["features"] * bool(nodes.nodes.feature_dim) + ["labels"] * nodes.nodes.has_labels
    names_path = dataset.content / "names/nodes.txt"
    names = read_names(names_path) if "nodes" in dataset.manifest.names else None
    start = 0
    for blocks in nodes.blocks(wanted) if wanted else _empty_blocks(nodes.count):
        values = dict(zip(wanted, blocks, strict=False))
        stop = start + len(blocks[0])
        columns: dict[str, NDArray[Any]] = {"id": nodes.original_ids(np.arange(start, stop))}
        if names is not None:
            columns["name"] = np.array(list(islice(names, stop - start)), object)
            if len(columns["name"]) < stop - start:
                raise damaged(names_path)
        if "features" in values:
            columns |= _by_column("feature", values["features"].astype(np.float32, copy=False))
        if "labels" in values:
            labels = values["labels"]
            columns |= {"label": labels} if labels.ndim == 1 else _by_column("label", labels)
        yield columns | {f"split_{number}": code[start:stop] for number, code in enumerate(codes)}
        start = stop


def _edges(nodes: NodeColumns, edges: EdgeColumns) -> Iterator[Mapping[str, NDArray[Any]]]:
    names = list(edges.dtypes)
    if edges.count == 0:
        yield {name: np.zeros(0, dtype) for name, dtype in edges.dtypes.items()}
    for block in edges.blocks(names):
        columns = dict(zip(names, block, strict=True))
        yield columns | {end: nodes.original_ids(columns[end]) for end in ("source", "destination")}


def _empty_blocks(num_rows: int) -> Iterator[list[NDArray[Any]]]:
    for start, stop in row_ranges(num_rows, EDGES_PER_BLOCK):
        yield [np.empty(stop - start, np.uint8)]


def _by_column(name: str, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return {f"{name}_{number}": column for number, column in enumerate(np.ascontiguousarray(values.T))}


def _list_of(name: str, count: int) -> str:
    return f"list_value({', '.join(f'{name}_{number}' for number in range(count))})"


def _write_table(
    path: Path, blocks: Iterator[Mapping[str, NDArray[Any]]], columns: str, row_bytes: int, work: WorkTools
) -> None:
    """Write blocks of columns as the rows of a Parquet file. Raises BudgetError, DestinationError."""
    require_text_path(path)
    vectors = max(1, _GROUP_BYTES // (_VECTOR_ROWS * row_bytes))
    group_rows = min(_MOST_GROUP_ROWS, vectors * _VECTOR_ROWS)
    duck_bytes = _DUCK_BYTES + _DUCK_BYTES_PER_BYTE * group_rows * row_bytes
    folder = work.folder.stage(path.stem, path.stem)
    injector = work.tools.injector
    how = f"FORMAT parquet, ROW_GROUP_SIZE {group_rows}"
    parts: list[str] = []
    with (
        work.budget.reserve("writing Parquet", duck_bytes + _BLOCKS_BYTES),
        Duck(duck_bytes, 1, work.spill) as duck,
    ):
        num_rows = 0
        for block in blocks:
            part = folder / f"{len(parts)}.parquet"
            announce(injector, "write", part)
            duck.run_with(block, f"COPY (SELECT {columns} FROM columns) TO {quoted(part)} ({how})")
            parts.append(quoted(part))
            num_rows += len(next(iter(block.values())))
            work.progress(f"{path.stem}: blocks", num_rows, num_rows)
        with destination_errors(path):
            announce(injector, "write", path)
        duck.run(f"COPY (SELECT * FROM read_parquet([{', '.join(parts)}])) TO {quoted(path)} ({how})")
    with destination_errors(path):
        sync_file(path, injector)

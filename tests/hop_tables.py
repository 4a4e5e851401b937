"""Hop tables written in the simplest way, for tests that read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.encoding import encode_rows
from diskhop.derived.clean import TABLES_FILE
from diskhop.hops.tables import (
    ROWS_FILE,
    TILE_ROWS,
    HopTables,
    TableFile,
    TableOperator,
    TableShape,
    TableSum,
    encode_hop_tables,
    open_hop_tables,
    table_names,
)
from diskhop.protocols import NodeRows


def table_bytes(values: NDArray[Any], shape: TableShape) -> NDArray[np.uint8]:
    """Return the content of a table's file from float values (rows, dim)."""
    if shape.is_row_major:
        content = np.zeros(shape.num_bytes, np.uint8)
        content[: shape.num_rows * shape.row_bytes] = encode_rows(values, shape.dtype).reshape(-1)
        return content
    padded = np.zeros((shape.num_groups * TILE_ROWS, shape.num_tiles * shape.tile_columns), np.float32)
    padded[: shape.num_rows, : shape.dim] = values
    tiles = padded.reshape(shape.num_groups, TILE_ROWS, shape.num_tiles, shape.tile_columns).swapaxes(1, 2)
    return encode_rows(tiles.reshape(-1, shape.tile_columns), shape.dtype).reshape(-1)


def write_hop_tables(
    path: Path,
    arrays: Sequence[NDArray[Any]],
    *,
    dtype: str = "float32",
    tile_columns: int | None = None,
    rows: NDArray[np.int64] | None = None,
    num_nodes: int | None = None,
    operators: tuple[TableOperator, ...] = (TableOperator(name="sign", parameters={"direction": "in"}),),
    dataset_hash: str = "0123456789abcdef",
) -> HopTables:
    """Write K * R + 1 tables of equal shape (rows, dim). tile_columns: None for contiguous rows."""
    num_rows, dim = arrays[0].shape
    shape = TableShape(num_rows=num_rows, dim=dim, dtype=dtype, tile_columns=tile_columns or dim)
    hops = (len(arrays) - 1) // len(operators)
    path.mkdir(parents=True, exist_ok=True)
    files = []
    for name, values in zip(table_names(operators, hops), arrays, strict=True):
        content = table_bytes(values, shape)
        sums = TableSum()
        sums.add(0, content)
        (path / name).write_bytes(content.tobytes())
        files.append(TableFile(name=name, num_bytes=len(content), checksum=sums.checksum))
    if rows is not None:
        (path / ROWS_FILE).write_bytes(rows.astype("<i8").tobytes())
    tables = HopTables(
        path=path,
        dataset_hash=dataset_hash,
        operators=operators,
        hops=hops,
        shape=shape,
        files=tuple(files),
        num_nodes=num_nodes or (num_rows if rows is None else int(rows[-1]) + 1),
        rows=None if rows is None else NodeRows(rows),
    )
    (path / TABLES_FILE).write_bytes(encode_hop_tables(tables))
    return open_hop_tables(path, dataset_hash)

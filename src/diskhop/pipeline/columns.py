"""Columns of nodes or edges, read for the batches of a pipeline: in memory where they are small, else from the disk."""

from __future__ import annotations

import threading
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File, RowReader
from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.attribute_set import StoredColumn
from diskhop.runtime.blocks import row_ranges

READING_BYTES = 4 << 20
_ROWS_PER_READ = 1 << 16
# Memory of a read, of one piece: its buffers, and what the reader takes per row.
READ_BYTES = READING_BYTES + 56 * _ROWS_PER_READ
_MOST_READ_BYTES = 1 << 20


class Column(Protocol):
    """Values of one attribute. Threads may read at once."""

    def rows(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """Return the values of rows, of nodes or edges, (rows, *shape) as they are stored."""


class HeldColumn:
    """A column in memory."""

    def __init__(self, values: NDArray[Any]) -> None:
        self._values = values

    def rows(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """See Column."""
        return self._values[ids]


class DiskColumn:
    """A column on disk. One thread reads at a time, in pieces: all columns may share READ_BYTES.

    turn: held while it reads. max_gap_bytes: reads closer than this are merged.
    """

    def __init__(
        self, column: StoredColumn, engine: Engine, pool: BufferPool, turn: threading.Lock, max_gap_bytes: int
    ) -> None:
        self._column = column
        self._turn = turn
        table = column.table
        self._reader = RowReader(
            engine,
            File(str(table.path), "read"),
            table.num_rows,
            table.row_bytes,
            table.row_stride,
            max_gap_bytes,
            _MOST_READ_BYTES,
            READING_BYTES,
            pool,
        )

    def rows(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """See Column. Raises ReadError, naming file and offset."""
        out = np.empty((len(ids), self._column.table.row_bytes), np.uint8)
        ids = np.ascontiguousarray(ids)
        with self._turn:
            for start, stop in row_ranges(len(ids), _ROWS_PER_READ):
                self._reader.read(ids[start:stop], out[start:stop])
        return self._column.shaped(out)


class MaskColumn:
    """Which nodes are in a part of the splits, in a bit per node and split.

    splits: rows of the part, for each split.
    shape: () for one split, else (splits).
    """

    def __init__(self, splits: list[NDArray[np.int64]], num_nodes: int, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._bits = np.zeros((len(splits), mask_bytes(num_nodes)), np.uint8)
        for bits, rows in zip(self._bits, splits, strict=True):
            np.bitwise_or.at(bits, rows >> 3, (1 << (rows & 7)).astype(np.uint8))

    def rows(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """See Column."""
        found = (self._bits[:, ids >> 3] >> (ids & 7).astype(np.uint8)) & 1
        return np.ascontiguousarray(found.T).view(np.bool_).reshape(len(ids), *self._shape)


class EmptyColumn:
    """A column whose values have no numbers, such as those of shape (0)."""

    def __init__(self, column: StoredColumn) -> None:
        self._column = column

    def rows(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """See Column."""
        return np.empty((len(ids), *self._column.info.shape), self._column.dtype)


def mask_bytes(num_nodes: int) -> int:
    """Bytes of a bit per node."""
    return -(-num_nodes // 8)


def tensor_of(values: NDArray[Any], info: AttributeInfo) -> torch.Tensor:
    """Return stored values as a tensor of the dtype that they have in the source.

    It converts with NumPy: torch would start a pool of threads for each thread that calls it.
    """
    if info.dtype == "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(values).view(np.int16)).view(torch.bfloat16)
    if info.stored_as == "labels" and values.dtype.kind == "i" and info.dtype.startswith("float"):
        # Labels that were floats have NaN for none.
        values = np.where(values < 0, np.nan, values)
    return torch.from_numpy(np.ascontiguousarray(values, dtype=info.stored_dtype))

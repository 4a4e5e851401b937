"""Sparse feature matrices (CSR in four arrays), converted to dense blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.manifest import MOST_COLUMNS
from diskhop.errors import SourceError
from diskhop.importing.arrays.npy import StoredArray
from diskhop.runtime.blocks import row_ranges

# Names of the four arrays.
SPARSE = ("x_indptr", "x_indices", "x_data", "x_shape")
_BLOCK_BYTES = 4 << 20
_ENTRIES_AT_ONCE = 1 << 20


class SparseMatrix:
    """Column of a sparse matrix. Several entries of one element are added.

    indptr: x_indptr (rows + 1).
    indices: x_indices (entries), columns from 0.
    values: x_data (entries).
    shape: x_shape (2).
    """

    def __init__(self, indptr: StoredArray, indices: StoredArray, values: StoredArray, shape: StoredArray) -> None:
        if shape.shape != (2,) or shape.dtype.kind not in "iu":
            raise SourceError(
                f"{shape.where}: must be two whole numbers, got shape {shape.shape} of {shape.dtype}; "
                "save rows and columns"
            )
        with shape.open() as stream:
            rows, columns = (int(length) for length in stream.take(2))
        if rows < 1 or not 1 <= columns <= MOST_COLUMNS:
            raise SourceError(
                f"{shape.where}: is ({rows}, {columns}); "
                f"features need at least 1 row and 1 to {MOST_COLUMNS} columns; correct it"
            )
        if indptr.shape != (rows + 1,) or indptr.dtype.kind not in "iu":
            raise SourceError(
                f"{indptr.where}: must be {rows + 1} integers, got shape {indptr.shape} of {indptr.dtype}; "
                "save it again"
            )
        if len(indices.shape) != 1 or indices.dtype.kind not in "iu" or values.shape != indices.shape:
            raise SourceError(
                f"{indices.where}: must be integers in one dimension, one for each value of x_data; save them again"
            )
        self.num_rows, self.num_columns = rows, columns
        self.where = values.where
        self.shape = (rows, columns)
        self.dtype = values.dtype
        self._indptr, self._indices, self._values = indptr, indices, values

    @property
    def identity(self) -> str:
        """See Column."""
        return "\n".join(array.identity for array in (self._indptr, self._indices, self._values))

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield dense rows, float32 or wider, in blocks of a few MiB."""
        dtype = np.result_type(self._values.dtype, np.float32)
        rows_at_once = max(1, _BLOCK_BYTES // (self.num_columns * dtype.itemsize))
        with self._indptr.open() as indptr, self._indices.open() as indices, self._values.open() as values:
            position = int(indptr.take(1)[0])
            if position != 0:
                raise SourceError(
                    f"{self._indptr.where}: starts at {position}, must start at 0; it is damaged: save it again"
                )
            for start, stop in row_ranges(self.num_rows, rows_at_once):
                ends = indptr.take(stop - start).astype(np.int64)
                starts = np.concatenate([[position], ends[:-1]])
                if (ends < starts).any() or ends[-1] > self._indices.num_items:
                    raise SourceError(
                        f"{self._indptr.where}: must ascend from 0 to {self._indices.num_items}, and does not "
                        f"between rows {start} and {stop}; it is damaged: save it again"
                    )
                dense = np.zeros((stop - start, self.num_columns), dtype)
                for first, last in row_ranges(int(ends[-1]) - position, _ENTRIES_AT_ONCE):
                    entries = np.arange(position + first, position + last)
                    rows = np.searchsorted(ends, entries, side="right")
                    columns = indices.take(last - first)
                    bad = np.flatnonzero((columns < 0) | (columns >= self.num_columns))
                    if len(bad):
                        raise SourceError(
                            f"{self._indices.where}: entry {entries[bad[0]]} is column {columns[bad[0]]}, but columns "
                            f"are numbered 0 to {self.num_columns - 1}; it is damaged: save it again"
                        )
                    np.add.at(dense, (rows, columns), values.take(last - first))
                position = int(ends[-1])
                yield dense
            if position != self._indices.num_items:
                raise SourceError(
                    f"{self._indptr.where}: ends at {position}, x_indices has {self._indices.num_items} entries; "
                    "it is damaged: save it again"
                )
            for stream in (indptr, indices, values):
                stream.finish()

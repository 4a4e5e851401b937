"""Features of a dataset as users index them: by ids of the source, reading only the rows that are asked for."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import format_bytes
from diskhop.dataset.encoding import decode_rows, decoded_dtype
from diskhop.dataset.files import map_array
from diskhop.dataset.id_map import IdMap
from diskhop.errors import ConfigError
from diskhop.protocols import NodeRows, SourceIds, Table


class FeatureRows:
    """Rows of features on disk. Thread-safe.

        features[7]                # the features of node 7, (dim)
        features[[3, 1, 3]]        # of several nodes, (ids, dim), in the order of the ids
        features[100:200]          # of the nodes whose ids are in the range, ascending
        features[dataset.splits["train"]]
        features[mask]             # booleans in the order of node_ids()

    Values are float32, or float16 where they are stored so. The kernel's page cache keeps what it has room for.
    """

    def __init__(self, table: Table, dtype: str, dim: int, id_map: Callable[[], IdMap]) -> None:
        self._table = table
        self._stored_dtype = dtype
        self._id_map = id_map
        self.shape = (table.num_rows, dim)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values that are returned."""
        return decoded_dtype(self._stored_dtype)

    def __len__(self) -> int:
        return self.shape[0]

    # Python would iterate by asking for ids from 0 on, which may be no ids, one row at a time.
    __iter__ = None

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        """Refuse to become an array of all rows unasked. Raises ConfigError."""
        num_bytes = self.shape[0] * self.shape[1] * self.dtype.itemsize
        raise ConfigError(
            f"{self!r} is on disk; features[ids] reads some rows, and features[:] all of them, as "
            f"{format_bytes(num_bytes)} in memory"
        )

    def __repr__(self) -> str:
        return f"FeatureRows({self.shape[0]:,} x {self.shape[1]} {self._stored_dtype}, {str(self._table.path)!r})"

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Read rows. Raises ConfigError for an id that no node has."""
        if isinstance(index, int | np.integer) and not isinstance(index, bool):
            row: NDArray[Any] = self._read(rows_of_index(self._id_map(), [index]))[0]
            return row
        return self._read(rows_of_index(self._id_map(), index))

    def _read(self, rows: NodeRows) -> NDArray[Any]:
        table = self._table
        stored = map_array(table.path, np.uint8, table.num_rows * table.row_stride).reshape(-1, table.row_stride)
        # Ascending, each once: so are the reads.
        wanted, places = np.unique(rows, return_inverse=True)
        return decode_rows(stored[wanted], self._stored_dtype, self.shape[1])[places]


def rows_of_index(id_map: IdMap, index: Any) -> NodeRows:
    """Return the rows of an index: ids, a range of ids, or a mask in the order of the positions."""
    if isinstance(index, slice):
        return _rows_of_slice(id_map, index)
    # Of an array, a tuple would be a row and a column.
    wanted = np.empty((), object) if isinstance(index, tuple) else np.asarray(index)
    if wanted.dtype == np.bool_:
        return id_map.rows_of_mask(wanted)[0]
    if wanted.size == 0:
        wanted = wanted.astype(np.int64)
    if wanted.ndim != 1 or wanted.dtype.kind not in "iu":
        raise ConfigError(
            f"an index must be an id, a list of ids, a range of ids or a mask, got {reprlib.repr(index)}; "
            "for example features[[0, 1]]"
        )
    return id_map.rows(SourceIds(wanted.astype(np.int64, copy=False)))


def _rows_of_slice(id_map: IdMap, wanted: slice) -> NodeRows:
    start, step = 0 if wanted.start is None else wanted.start, 1 if wanted.step is None else wanted.step
    ends = (start, step, 0 if wanted.stop is None else wanted.stop)
    are_numbers = all(isinstance(each, int | np.integer) for each in ends)
    if not are_numbers or start < 0 or step < 1 or ends[2] < 0:
        raise ConfigError(
            f"a range of ids goes up from 0, got {start}:{wanted.stop}:{step}; for example features[100:200]"
        )
    return id_map.rows_in_range(start, wanted.stop, step)

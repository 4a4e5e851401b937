"""The attributes of the nodes or edges of one type, by the names that the source has for them.

Next to the attributes of the manifest these are the columns that the dataset reads itself: features are `x`, labels
`y`, the parts of the splits `train_mask`, `val_mask` and `test_mask`, weights `edge_weight` and times `edge_time`,
unless the source had other names for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.attribute_info import AttributeInfo, attribute_file
from diskhop.dataset.files import map_array
from diskhop.dataset.manifest import EdgeType, NodeType
from diskhop.protocols import Table

# What attributes that are no column of the manifest are stored as.
SPLITS = "splits"
MASKS = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}


def node_attributes(info: NodeType, feature_dtype: str, feature_dim: int) -> dict[str, AttributeInfo]:
    """Return all attributes of nodes by name. feature_dtype, feature_dim: of the features in use; '' for none."""
    own = dict(info.attributes)
    known = {}
    if feature_dtype:
        known["x"] = AttributeInfo(dtype=features_dtype(feature_dtype), shape=(feature_dim,), stored_as="features")
    if info.labels is not None:
        tasks = info.labels.num_tasks
        shape = (tasks,) if tasks else ()
        known["y"] = AttributeInfo(dtype="float32" if tasks else "int64", shape=shape, stored_as="labels")
    for name, part in MASKS.items():
        if any(part in split for split in info.splits):
            shape = (len(info.splits),) if len(info.splits) > 1 else ()
            known[name] = AttributeInfo(dtype="bool", shape=shape, stored_as=SPLITS)
    return _with_known(own, known)


def features_dtype(stored: str) -> str:
    """Return the dtype in which a batch has features of a stored dtype."""
    return "float32" if stored == "int8" else stored


def edge_attributes(info: EdgeType) -> dict[str, AttributeInfo]:
    """Return all attributes of edges by name."""
    known = {}
    if info.weights:
        known["edge_weight"] = AttributeInfo(dtype="float32", stored_as="weights")
    if info.times:
        known["edge_time"] = AttributeInfo(dtype="int64", stored_as="times")
    return _with_known(dict(info.attributes), known)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredColumn:
    """Values of all nodes, by row, or of all edges, in the order of `indices`, in one file.

    table: place of the values.
    relative: path in the dataset.
    dtype: NumPy's dtype of the stored values; uint16 for the bits of bfloat16.
    info: dtype and shape that the values have in the source.
    """

    table: Table
    relative: str
    dtype: np.dtype[Any]
    info: AttributeInfo

    @property
    def num_bytes(self) -> int:
        """Bytes of the file."""
        return self.table.num_rows * self.table.row_bytes

    def shaped(self, values: NDArray[Any]) -> NDArray[Any]:
        """View rows as they are stored, bytes or numbers, as (rows, *shape) of the stored dtype."""
        num_rows = values.nbytes // self.table.row_bytes if self.table.row_bytes else self.table.num_rows
        shaped: NDArray[Any] = values.reshape(-1).view(self.dtype).reshape(num_rows, *self.info.shape)
        return shaped

    def map(self) -> NDArray[Any]:
        """Map the values, (rows, *shape) of the stored dtype."""
        return self.shaped(map_array(self.table.path, np.uint8, self.num_bytes))


def stored_column(
    path: Path, folder: str, name: str, info: AttributeInfo, num_rows: int, column_dtype: np.dtype[Any]
) -> StoredColumn:
    """Return the place of an attribute. path: of the dataset. folder: that of the nodes or edges, below it.

    column_dtype: dtype of the column that the attribute is stored as, if any.
    """
    relative, dtype = attribute_file(folder, name), info.stored_dtype
    if info.stored_as:
        relative, dtype = f"{folder}/{info.stored_as}.bin", column_dtype
    row_bytes = info.num_values * dtype.itemsize
    table = Table(path=path / relative, num_rows=num_rows, row_bytes=row_bytes, row_stride=row_bytes)
    return StoredColumn(table=table, relative=relative, dtype=dtype, info=info)


def _with_known(own: dict[str, AttributeInfo], known: Mapping[str, AttributeInfo]) -> dict[str, AttributeInfo]:
    named = {each.stored_as for each in own.values()}
    return own | {name: each for name, each in known.items() if name not in own and each.stored_as not in named}

"""The attributes of the nodes or edges of one type, by the names that the source has for them.

Next to the attributes of the manifest these are the columns that the dataset reads itself: features are `x`, labels
`y`, the parts of the splits `train_mask`, `val_mask` and `test_mask`, weights `edge_weight` and times `edge_time`,
unless the source had other names for them.
"""

from __future__ import annotations

from collections.abc import Mapping
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
        dtype = "float32" if feature_dtype == "int8" else feature_dtype
        known["x"] = AttributeInfo(dtype=dtype, shape=(feature_dim,), stored_as="features")
    if info.labels is not None:
        tasks = info.labels.num_tasks
        shape = (tasks,) if tasks else ()
        known["y"] = AttributeInfo(dtype="float32" if tasks else "int64", shape=shape, stored_as="labels")
    for name, part in MASKS.items():
        if any(part in split for split in info.splits):
            shape = (len(info.splits),) if len(info.splits) > 1 else ()
            known[name] = AttributeInfo(dtype="bool", shape=shape, stored_as=SPLITS)
    return _with_known(own, known)


def edge_attributes(info: EdgeType) -> dict[str, AttributeInfo]:
    """Return all attributes of edges by name."""
    known = {}
    if info.weights:
        known["edge_weight"] = AttributeInfo(dtype="float32", stored_as="weights")
    if info.times:
        known["edge_time"] = AttributeInfo(dtype="int64", stored_as="times")
    return _with_known(dict(info.attributes), known)


def attribute_table(folder: Path, name: str, info: AttributeInfo, num_rows: int) -> Table:
    """Return the place of an attribute that has a file of its own. folder: that of the nodes or edges."""
    path = Path(attribute_file(str(folder), name))
    return Table(path=path, num_rows=num_rows, row_bytes=info.row_bytes, row_stride=info.row_bytes)


def map_attribute(
    folder: Path, name: str, info: AttributeInfo, num_rows: int, column_dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Map the values of an attribute, (rows, *shape) in its stored dtype; those of bfloat16 are bits, uint16.

    column_dtype: dtype of the column that it is stored as, if any.
    """
    path, dtype = Path(attribute_file(str(folder), name)), info.stored_dtype
    if info.stored_as:
        path, dtype = folder / f"{info.stored_as}.bin", column_dtype
    values: NDArray[Any] = map_array(path, dtype, num_rows * info.num_values).reshape(num_rows, *info.shape)
    return values


def _with_known(own: dict[str, AttributeInfo], known: Mapping[str, AttributeInfo]) -> dict[str, AttributeInfo]:
    named = {each.stored_as for each in own.values()}
    return own | {name: each for name, each in known.items() if name not in own and each.stored_as not in named}

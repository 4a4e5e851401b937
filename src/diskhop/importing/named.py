"""Columns by the names, dtypes and shapes that they have in a source: what datasets store differently is an attribute.

Features are stored as floats, labels as int64 classes or float32 tasks and values, weights as float32, and times as
int64. A column that is exactly that needs no attribute. Another one that can be stored so without loss is a *view*: an
attribute that is stored as that column. Where values would be lost, the attribute has the source's values once more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.attribute_info import ATTRIBUTE_DTYPES, ATTRIBUTE_NAME, MOST_DIMENSIONS, AttributeInfo
from diskhop.dataset.manifest import MOST_COLUMNS, VALUES
from diskhop.errors import SourceError
from diskhop.importing.columns import count_tasks, label_kind_of
from diskhop.importing.source import Column, SourceAttribute

_FEATURE_DTYPES = ("float32", "float16", "bfloat16")


def dtype_name(column: Column) -> str:
    """Return the name of a column's dtype in the source; bfloat16 is read as float32."""
    return "bfloat16" if getattr(column, "is_bfloat16", False) else column.dtype.name


def own_attribute(column: Column) -> SourceAttribute:
    """Return an attribute with values of its own."""
    info = AttributeInfo(dtype=dtype_name(column), shape=tuple(column.shape[1:]))
    assert info.dtype in ATTRIBUTE_DTYPES, "sources have no other plain dtypes"
    return SourceAttribute(info=info, values=getattr(column, "as_stored", column))


def is_attribute(column: Column, name: str) -> bool:
    """Check for a name and a shape that an attribute can have."""
    return bool(ATTRIBUTE_NAME.fullmatch(name)) and 1 <= len(column.shape) <= MOST_DIMENSIONS + 1


def attribute_of(column: Column, name: str) -> SourceAttribute:
    """Return an attribute of a file's array. Raises SourceError for a name or a shape that no attribute can have."""
    if not ATTRIBUTE_NAME.fullmatch(name):
        raise SourceError(
            f"{column.where}: names of attributes are letters, digits and _ . + = -, at most 96; rename it"
        )
    if not is_attribute(column, name):
        raise SourceError(
            f"{column.where}: must have a row per node or edge and at most {MOST_DIMENSIONS} more dimensions, got "
            f"shape {column.shape}; reshape it"
        )
    return own_attribute(column)


def split_features(x: Column) -> tuple[Column | None, SourceAttribute | None]:
    """Return the features that `x` is, if any, and the attribute that it needs besides.

    Values of other shapes than (nodes, dim) are no features.
    """
    if len(x.shape) != 2 or not 1 <= x.shape[1] <= MOST_COLUMNS:
        return None, own_attribute(x)
    name = dtype_name(x)
    if name in _FEATURE_DTYPES:
        return x, None
    return x, _view_or_own(x, "features", np.float32)


def labels_attribute(y: Column, labels: Column) -> SourceAttribute | None:
    """Return the attribute that `y` needs besides the labels that it became."""
    num_tasks = count_tasks(labels)
    stored = ("float32", (num_tasks,)) if num_tasks else ("int64", ())
    if (dtype_name(y), tuple(y.shape[1:])) == stored:
        return None
    if label_kind_of(labels) == VALUES:
        return _view_or_own(y, "labels", np.float32)
    return _view(y, "labels")


def edge_attribute(values: Column, stored_as: str, *, renamed: bool) -> SourceAttribute | None:
    """Return the attribute that values of edges need besides the weights or times that they became.

    renamed: whether they have another name than weights and times have in batches.
    """
    dtype = np.float32 if stored_as == "weights" else np.int64
    if not renamed and values.dtype == dtype and len(values.shape) == 1 and not getattr(values, "is_bfloat16", False):
        return None
    return _view_or_own(values, stored_as, dtype)


def is_finite_in_float32(values: Column) -> bool:
    """Check that a column of floats has finite values only, as weights must be."""
    with np.errstate(over="ignore"):
        return all(bool(np.isfinite(block.astype(np.float32)).all()) for block in values.blocks())


def _view(column: Column, stored_as: str) -> SourceAttribute:
    info = AttributeInfo(dtype=dtype_name(column), shape=tuple(column.shape[1:]), stored_as=stored_as)
    return SourceAttribute(info=info)


def _view_or_own(column: Column, stored_as: str, dtype: Any) -> SourceAttribute:
    stored = np.dtype(dtype)
    is_exact = np.can_cast(column.dtype, stored, "safe") or all(_keeps(block, stored) for block in column.blocks())
    return _view(column, stored_as) if is_exact else own_attribute(column)


def _keeps(block: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Check that a dtype holds every value of a block."""
    with np.errstate(over="ignore", invalid="ignore"):
        converted = block.astype(dtype)
        if block.dtype.kind in "iu" and dtype.kind == "f" and np.abs(converted).max(initial=0) >= 2.0**63:
            return False
        return bool(((converted.astype(block.dtype) == block) | (block != block)).all())

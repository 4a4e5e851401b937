"""Validation of blocks that are written to a dataset.

Each function passes blocks through, converted to the dtype of the format, and raises SourceError for the first invalid
value. `origin` names the source of the blocks in errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.encoding import check_feature_dtype, encode_rows, row_bytes, too_large
from diskhop.dataset.fields import TYPE_NAME
from diskhop.dataset.manifest import MOST_CLASSES, SPLIT_NAMES
from diskhop.errors import ConfigError, SourceError

RESERVED_FOR_SPLIT = "nodes of a split"


def encoded_rows(
    blocks: Iterable[NDArray[Any]], dtype: str, row_stride: int, origin: str, first_node: int = 0
) -> Iterator[NDArray[np.uint8]]:
    """Encode finite values (rows, dim) as rows of row_stride bytes, padded with zeros."""
    for block in blocks:
        _refuse_first(~np.isfinite(block), block, first_node, "feature", "features must be finite", origin)
        _refuse_first(too_large(block, dtype), block, first_node, "feature", f"{dtype} cannot hold it", origin)
        encoded = encode_rows(block, dtype)
        padding = row_stride - encoded.shape[1]
        yield np.pad(encoded, ((0, 0), (0, padding))) if padding else encoded
        first_node += len(block)


def check_type_name(name: str) -> None:
    """Raise ConfigError unless a type name can be the name of a folder."""
    if not TYPE_NAME.fullmatch(name):
        raise ConfigError(f"type name {name!r} must be letters, digits and _ . + = -, at most 100; rename the type")


def checked_row_stride(dtype: str, dim: int, row_stride: int | None, origin: str) -> int:
    """Return the row stride to use; None stands for rows without padding. Raises ConfigError."""
    check_feature_dtype(dtype)
    num_bytes = row_bytes(dtype, dim)
    stride = num_bytes if row_stride is None else row_stride
    if dim < 1 or stride < num_bytes:
        raise ConfigError(f"{origin}: row_stride {stride} is less than the {num_bytes} bytes of a row (dim {dim})")
    return stride


def require_count(found: int, wanted: int, what: str, origin: str) -> None:
    """Raise SourceError unless a column has one value for each node."""
    if found != wanted:
        raise SourceError(f"{origin}: has {found} {what} for {wanted} nodes; give one for each node")


def checked_labels(
    blocks: Iterable[NDArray[Any]], num_classes: int | None, used: set[int], origin: str
) -> Iterator[NDArray[np.int64]]:
    """Check classes (rows), -1 for none, and add those that occur to `used`."""
    limit = MOST_CLASSES if num_classes is None else num_classes
    first_node = 0
    for block in blocks:
        bad = np.flatnonzero((block < -1) | (block >= limit))
        if len(bad):
            raise SourceError(
                f"{origin}: label of node {first_node + int(bad[0])} is {block[bad[0]]}; "
                f"labels must be from 0 to {limit - 1}, or -1 for none"
            )
        used.update(np.unique(block[block >= 0]).tolist())
        yield block.astype("<i8")
        first_node += len(block)


def count_classes(used: set[int], origin: str) -> int:
    """Return the number of classes from the labels that occur. Raises SourceError if most labels do not."""
    num_classes = max(used, default=-1) + 1
    if num_classes > 2 * len(used):
        raise SourceError(
            f"{origin}: label {num_classes - 1} is out of range: only {len(used)} classes have nodes; "
            "number classes from 0 without gaps, or give num_classes"
        )
    return num_classes


def checked_tasks(blocks: Iterable[NDArray[Any]], origin: str) -> Iterator[NDArray[np.float32]]:
    """Check labels (rows, tasks) of 0 and 1, NaN for none."""
    first_node = 0
    for block in blocks:
        is_bad = (block != 0) & (block != 1) & ~np.isnan(block)
        _refuse_first(is_bad, block, first_node, "task", "tasks must be 0, 1, or NaN for none", origin)
        yield block.astype("<f4")
        first_node += len(block)


def checked_values(blocks: Iterable[NDArray[Any]], origin: str) -> Iterator[NDArray[np.float32]]:
    """Check labels (rows, columns) of numbers that float32 can hold, NaN for none."""
    first_node = 0
    for block in blocks:
        with np.errstate(over="ignore"):
            values = block.astype("<f4")
        rule = "values must be finite and fit float32, or be NaN for none"
        _refuse_first(np.isinf(values), block, first_node, "value", rule, origin)
        yield values
        first_node += len(block)


def check_split(part: str, number: int, num_splits: int, num_known: int, origin: str) -> None:
    """Raise unless a part of a split can be added to a node type that has num_known splits."""
    if part not in SPLIT_NAMES or not 0 <= number < num_splits:
        raise ConfigError(
            f"{origin}: split '{part}' {number} of {num_splits} is not supported; use train, valid or test"
        )
    if num_known != num_splits:
        raise SourceError(
            f"{origin}: has {num_splits} splits of '{part}' but {num_known} of other parts; give equal numbers"
        )


def split_bytes(num_nodes: int) -> int:
    """Return the memory of checked_ids: one flag per node."""
    return num_nodes


def checked_ids(blocks: Iterable[NDArray[Any]], num_nodes: int, what: str, origin: str) -> Iterator[NDArray[np.int64]]:
    """Check node ids, which must be unique. The caller reserves split_bytes()."""
    is_seen = np.zeros(num_nodes, np.bool_)
    for block in blocks:
        bad = np.flatnonzero((block < 0) | (block >= num_nodes))
        if len(bad):
            raise SourceError(
                f"{origin}: {what} lists node {block[bad[0]]}, but nodes are numbered 0 to {num_nodes - 1}; "
                "correct the list"
            )
        ids = block.astype("<i8")
        is_first = np.zeros(len(ids), np.bool_)
        is_first[np.unique(ids, return_index=True)[1]] = True
        repeated = ids[is_seen[ids] | ~is_first]
        if len(repeated):
            raise SourceError(f"{origin}: {what} lists node {repeated[0]} twice; list each node once")
        is_seen[ids] = True
        yield ids


def _refuse_first(
    is_bad: NDArray[np.bool_], block: NDArray[Any], first_node: int, what: str, rule: str, origin: str
) -> None:
    if is_bad.any():
        row, column = divmod(int(np.argmax(is_bad)), is_bad.shape[1])
        raise SourceError(
            f"{origin}: {what} {column} of node {first_node + row} is {block[row, column]}: {rule}; "
            "correct or replace it, then import again"
        )

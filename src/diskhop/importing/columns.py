"""Rules for columns of nodes, and columns that are computed: classes from floats, random features."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.manifest import CLASSES, MOST_CLASSES, MOST_COLUMNS, TASKS, VALUES
from diskhop.errors import SourceError
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.options import ImportOptions
from diskhop.importing.source import Column, SourceNodes
from diskhop.runtime.blocks import in_blocks

_CLASSES_BYTES = 1 << 20


def check_features(features: Column) -> None:
    """Raise SourceError unless features have shape (nodes, dim)."""
    if len(features.shape) != 2 or not 1 <= features.shape[1] <= MOST_COLUMNS:
        raise SourceError(
            f"{features.where}: must be (nodes, dim) with dim from 1 to {MOST_COLUMNS}, got shape {features.shape}"
        )


def count_tasks(labels: Column) -> int:
    """Count the columns of tasks or values; 0: classes, perhaps as (nodes, 1). Raises SourceError for neither."""
    is_float = labels.dtype.kind == "f"
    if not is_float and labels.shape[1:] in ((), (1,)) and labels.shape:
        return 0
    if len(labels.shape) != 2 or not 1 <= labels.shape[1] <= MOST_COLUMNS:
        raise SourceError(
            f"{labels.where}: must be classes, integers of shape (nodes) or (nodes, 1), or tasks or values of shape "
            f"(nodes, 1 to {MOST_COLUMNS}), got shape {labels.shape} of {labels.dtype}"
        )
    return labels.shape[1]


def label_kind_of(labels: Column) -> str:
    """Return the kind of labels that a column is written as, one of LABEL_KINDS. Raises SourceError for none."""
    num_columns = count_tasks(labels)
    return CLASSES if not num_columns else VALUES if isinstance(labels, NumberColumn) and labels.are_values else TASKS


def as_labels(labels: Column) -> Column:
    """Convert labels to a dataset's kind: one column of floats (with NaN for none) becomes classes."""
    return ClassColumn(labels) if labels.dtype.kind == "f" and _is_single(labels) else labels


def choose_labels(labels: Column, wanted: str | None = None) -> Column:
    """Convert labels to a kind of LABEL_KINDS; None: the kind that their dtype and values have.

    Integers are classes, or tasks if there are several columns. Floats are values if any is no whole number; else one
    column is classes, unless it is (nodes, 1) of 0, 1 and NaN alone, and several columns are tasks.
    """
    if wanted is None and labels.dtype.kind == "f":
        wanted = _kind_of_floats(labels)
    if wanted in (TASKS, VALUES):
        if len(labels.shape) != 1:
            count_tasks(labels)
        return NumberColumn(labels, are_values=wanted == VALUES)
    if wanted == CLASSES and not _is_single(labels):
        raise SourceError(
            f"{labels.where}: must be one class per node for --label-kind classes, got shape {labels.shape}; "
            "use --label-kind tasks or values"
        )
    return as_labels(labels)


def decide_labels(labels: Column | None, wanted: str | None) -> list[Decision]:
    """Describe the kind of labels that choose_labels() chose, for people. Nothing is said of classes."""
    if labels is None or (wanted is None and label_kind_of(labels) == CLASSES):
        return []
    kind = label_kind_of(labels)
    whys = {CLASSES: "one whole number per node", TASKS: "columns of 0 and 1", VALUES: "numbers that are not whole"}
    return [Decision(labels.where, f"labels: {kind}", "--label-kind" if wanted else whys[kind])]


def are_fractions(labels: Column) -> bool:
    """Return whether any value is neither whole nor NaN. Reads all values."""
    return not all((np.isnan(block) | (np.floor(block) == block)).all() for block in labels.blocks())


def _kind_of_floats(labels: Column) -> str:
    if are_fractions(labels):
        return VALUES
    is_task = len(labels.shape) == 2 and all(
        (np.isnan(block) | (block == 0) | (block == 1)).all() for block in labels.blocks()
    )
    return TASKS if is_task or not _is_single(labels) else CLASSES


def _is_single(labels: Column) -> bool:
    return labels.shape[1:] in ((), (1,))


class NumberColumn:
    """Columns of numbers, float32 (nodes, columns) with NaN for none: values if are_values, else tasks."""

    dtype: np.dtype[Any] = np.dtype(np.float32)

    def __init__(self, numbers: Column, *, are_values: bool) -> None:
        self.where = numbers.where
        self.shape = numbers.shape if len(numbers.shape) != 1 else (*numbers.shape, 1)
        self.are_values = are_values
        self._numbers = numbers

    @property
    def identity(self) -> str:
        """See Column."""
        return f"{self._numbers.identity}, as numbers"

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column."""
        return (block.reshape(len(block), *self.shape[1:]) for block in self._numbers.blocks())


class ClassColumn:
    """Column of classes that are stored as floats: integers, with -1 instead of NaN for none."""

    dtype: np.dtype[Any] = np.dtype(np.int64)

    def __init__(self, classes: Column) -> None:
        self.where = classes.where
        self.shape = classes.shape
        self._classes = classes

    @property
    def identity(self) -> str:
        """See Column."""
        return f"{self._classes.identity}, as classes"

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column. Raises SourceError for the first value that is neither a class nor NaN."""
        first_node = 0
        # Smaller blocks: an int64 takes up to four times the bytes of its float.
        for block in chain.from_iterable(in_blocks(each, _CLASSES_BYTES) for each in self._classes.blocks()):
            is_none = np.isnan(block)
            # float16 cannot represent the limit.
            is_class = (block >= 0) & (block.astype(np.float64) < MOST_CLASSES) & (np.floor(block) == block)
            bad = np.flatnonzero(~(is_none | is_class))
            if len(bad):
                raise SourceError(
                    f"{self.where}: label of node {first_node + int(bad[0])} is {block.reshape(-1)[bad[0]]}; a class "
                    f"must be a whole number from 0 to {MOST_CLASSES - 1}, or NaN for none"
                )
            yield np.where(is_none, -1, block).astype(np.int64)
            first_node += len(block)


def stored_dtype(nodes: SourceNodes, options: ImportOptions) -> str:
    """Choose the dtype that features are stored in: --dtype, else the source's, else as the column's dtype suggests."""
    assert nodes.features is not None
    is_half = nodes.features.dtype.kind == "f" and nodes.features.dtype.itemsize == 2
    return options.dtype or nodes.feature_dtype or ("float16" if is_half else "float32")

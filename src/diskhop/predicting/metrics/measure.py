"""Metrics of a model's outputs on parts of a split, in one pass over the table of outputs where memory allows.

Counts and calibration need no memory that grows with the nodes. Ranking needs the scores of a part's nodes, column by
column: as many columns as fit are kept in each pass over the table, and all of them come in as many passes as it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget, format_bytes
from diskhop.errors import ConfigError
from diskhop.predicting.metrics.calibration import Calibration
from diskhop.predicting.metrics.counts import ClassCounts, TaskCounts
from diskhop.predicting.metrics.outputs import Labels, OutputKind, kind_of
from diskhop.predicting.metrics.ranking import average_precision, has_both, roc_auc, sort_sides
from diskhop.predicting.rows import RowTable
from diskhop.protocols import NodeRows

# Values of a block. Sums depend on it, so it depends on no budget.
_BLOCK_VALUES = 1 << 18
# Bytes per value of a block while it is counted: logits, scores and their intermediate results.
_BYTES_PER_VALUE = 40
# A matrix of more is neither read by a person nor drawn.
_MOST_CONFUSED = 1000

Progress = Callable[[int, int], None]


@dataclass(slots=True, eq=False)
class _Part:
    """A part of the split: its rows, ascending, their labels, and what was counted of them."""

    name: str
    rows: NDArray[np.int64]
    labels: Labels
    counts: ClassCounts | TaskCounts
    calibration: Calibration = field(default_factory=Calibration)
    ranked: dict[int, tuple[float, float]] = field(default_factory=dict)


def measure_outputs(
    table: RowTable,
    labels: Labels,
    parts: Mapping[str, NodeRows],
    budget: Budget,
    *,
    class_names: list[str] | None = None,
    progress: Progress = lambda done, total: None,
) -> dict[str, dict[str, Any]]:
    """Return the metrics of each part, by its name.

    table: logits of all nodes.
    labels: as NodeSet.label_rows() returns them; held by the caller.
    parts: rows of each part; those without a label do not count.
    class_names: name of each class; None for none.
    progress: called with rows done and in total, over all passes.
    Raises ConfigError for a part without labels and for logits that are not finite, BudgetError.

    The metrics of a part, with their names in JSON:

    nodes: number of labelled nodes.
    accuracy: fraction of nodes with the right class, or of known labels with the right side.
    f1_macro: mean over the classes that occur among labels or predictions, or over tasks with a label.
    f1_micro: F1 of all predictions together; with classes, equal to the accuracy.
    roc_auc, average_precision: of two classes, those of class 1; else the mean over classes (one against the rest) or
        tasks with positive and negative nodes. None without such, and where memory is too small.
    ranked: number of classes or tasks with positive and negative nodes.
    ece: expected calibration error over 15 bins, of the predicted class or of all known labels.
    classes, tasks: an object per class or task: its number (`class`, `task`), `name` if classes have names,
        `precision`, `recall`, `f1`, `support`, `predicted`, `roc_auc`, `average_precision`; of a task also `accuracy`
        and `labels`.
    confusion: number of nodes per class (rows) and predicted class (columns); None for tasks and above 1,000 classes.
    calibration: an object per bin: `from`, `to`, `predictions`, and their mean `probability` and `accuracy`.
    notes: a line for each value that is missing, with the reason.
    """
    kind = kind_of(labels)
    with ExitStack() as held:
        for name, num_bytes in least_memory(labels, parts, table.dim).items():
            held.enter_context(budget.reserve(name, num_bytes))
        with_matrix, notes = _plan_matrix(kind, table.dim, len(parts), budget)
        if with_matrix:
            held.enter_context(budget.reserve("confusion matrices", 8 * table.dim**2 * len(parts)))
        measured = [_read_part(name, rows, labels, kind, table.dim, with_matrix) for name, rows in parts.items()]
        columns_per_pass, more_notes = _plan_columns(kind, table.dim, measured, budget)
        passes = -(-table.dim // columns_per_pass) if columns_per_pass else 1
        done = 0

        def count_rows(num_rows: int) -> None:
            nonlocal done
            done += num_rows
            progress(done, passes * table.num_rows)

        for number in range(passes):
            columns = range(number * columns_per_pass, min((number + 1) * columns_per_pass, table.dim))
            num_bytes = _ranking_bytes(measured, len(columns)) if columns_per_pass else 0
            with budget.reserve("scores", num_bytes):
                _pass_over(table, measured, kind, columns, is_first=number == 0, count_rows=count_rows)
    return {part.name: _describe(part, kind, class_names, notes + more_notes) for part in measured}


def least_memory(labels: Labels, parts: Mapping[str, NodeRows], num_outputs: int) -> dict[str, int]:
    """Return the least memory of measuring by the names that it is reserved under, in bytes."""
    return {
        "evaluated nodes": _rows_bytes(labels, parts),
        "block of outputs": block_rows(num_outputs) * num_outputs * _BYTES_PER_VALUE,
    }


def _read_part(
    name: str, rows: NodeRows, labels: Labels, kind: OutputKind, num_columns: int, with_matrix: bool
) -> _Part:
    ordered = labelled_rows(name, rows, labels)
    return _Part(name, ordered, labels[ordered], kind.count(num_columns, with_matrix=with_matrix))


def labelled_rows(name: str, rows: NodeRows, labels: Labels) -> NDArray[np.int64]:
    """Return the rows of a part that have a label, ascending. Raises ConfigError if none has."""
    ordered = np.sort(rows)
    ordered = ordered[kind_of(labels).is_labelled(labels[ordered])]
    if len(ordered) == 0:
        raise ConfigError(f"part '{name}' has no labelled node to measure; choose a split with some, as with --split 0")
    return ordered


def _pass_over(
    table: RowTable,
    parts: list[_Part],
    kind: OutputKind,
    columns: range,
    *,
    is_first: bool,
    count_rows: Callable[[int], None],
) -> None:
    """Read the table once: rank some columns, and in the first pass count and calibrate."""
    scores = [np.empty((len(columns), len(part.rows)), np.float32) for part in parts]
    start = 0
    for block in table.blocks(block_rows(table.dim)):
        for part, kept in zip(parts, scores, strict=True):
            for first, last in rows_in_block(part.rows, start, start + len(block)):
                outputs = block[part.rows[first:last] - start]
                if is_first:
                    require_finite(outputs, part.rows[first:last])
                    part.counts.update(outputs, part.labels[first:last])
                    kind.calibrate(part.calibration, outputs, part.labels[first:last])
                if columns:
                    kept[:, first:last] = kind.scores(outputs)[:, columns.start : columns.stop].T
        start += len(block)
        count_rows(len(block))
    for part, kept in zip(parts, scores, strict=True):
        for column, of_column in zip(columns, kept, strict=True):
            _rank(part, kind, column, of_column)


def rows_in_block(rows: NDArray[np.int64], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the range of rows, ascending, that are in a block from start to stop, if there are any."""
    first, last = np.searchsorted(rows, (start, stop)).tolist()
    if first < last:
        yield first, last


def _rank(part: _Part, kind: OutputKind, column: int, scores: NDArray[np.float32]) -> None:
    counts, is_positive = kind.sides(part.labels, column)
    if not counts.all():
        scores, is_positive = scores[counts], is_positive[counts]
    if has_both(is_positive):
        sides = sort_sides(scores, is_positive)
        part.ranked[column] = roc_auc(sides), average_precision(sides)


def require_finite(outputs: NDArray[np.float32], rows: NDArray[np.int64]) -> None:
    """Refuse outputs of some rows that are not finite."""
    is_finite = np.isfinite(outputs).all(axis=1)
    if not is_finite.all():
        row = int(rows[~is_finite][0])
        raise ConfigError(f"the outputs of row {row} are not finite; train again with a smaller learning rate (--lr)")


def block_rows(num_outputs: int) -> int:
    """Return the rows of a block; sums depend on them, and they on no budget."""
    return max(1, _BLOCK_VALUES // num_outputs)


def _rows_bytes(labels: Labels, parts: Mapping[str, NodeRows]) -> int:
    """Bytes of rows and labels of parts, of which there are two copies for a moment."""
    per_row = 8 + labels.nbytes // max(1, len(labels))
    return sum(len(rows) for rows in parts.values()) * 2 * per_row


def _ranking_bytes(parts: list[_Part], num_columns: int) -> int:
    """Bytes of the scores of some columns, and of the part that is being ranked."""
    num_rows = [len(part.rows) for part in parts]
    # Both sides of a column, known scores and labels for tasks, and three masks.
    return 4 * num_columns * sum(num_rows) + 12 * max(num_rows)


def _plan_matrix(kind: OutputKind, num_columns: int, num_parts: int, budget: Budget) -> tuple[bool, list[str]]:
    """Decide whether to keep confusion matrices; a line says why not."""
    if kind.noun == "task":
        return False, []
    if num_columns > _MOST_CONFUSED:
        return False, [f"confusion matrix left out: {num_columns:,} classes are more than {_MOST_CONFUSED:,}"]
    num_bytes = 8 * num_columns**2 * num_parts
    if num_bytes > budget.available_bytes:
        return False, [f"confusion matrix left out: it needs {format_bytes(num_bytes)}; use a larger --memory"]
    return True, []


def _plan_columns(kind: OutputKind, num_columns: int, parts: list[_Part], budget: Budget) -> tuple[int, list[str]]:
    """Choose how many columns to rank per pass over the table; 0 for none, with a line that says why."""
    available_bytes = budget.available_bytes
    for_one = _ranking_bytes(parts, 1)
    if for_one > available_bytes:
        missing_bytes = budget.total_bytes - available_bytes + for_one
        way = f"use --memory {-(-missing_bytes // 1_000_000)}MB or more"
        why = f"the scores of one {kind.noun} need {format_bytes(for_one)}"
        return 0, [f"ROC-AUC and average precision left out: {why}; {way}"]
    for_each = _ranking_bytes(parts, 2) - for_one
    return min(num_columns, 1 + (available_bytes - for_one) // for_each), []


def _describe(part: _Part, kind: OutputKind, class_names: list[str] | None, notes: list[str]) -> dict[str, Any]:
    """Return the metrics of a part, by the names of the JSON document."""
    columns = part.counts.columns()
    ranked = part.ranked
    for number, column in enumerate(columns):
        auc, precision = ranked.get(number, (None, None))
        column |= {"roc_auc": auc, "average_precision": precision}
    averaged: tuple[float | None, float | None] = (None, None)
    if kind.noun == "class" and len(columns) == 2:
        averaged = ranked.get(1, averaged)
    elif ranked:
        auc, precision = np.mean(list(ranked.values()), axis=0).tolist()
        averaged = auc, precision
    matrix = part.counts.matrix if isinstance(part.counts, ClassCounts) else None
    return {
        "nodes": len(part.rows),
        **part.counts.values(),
        "roc_auc": averaged[0],
        "average_precision": averaged[1],
        "ranked": len(ranked),
        "ece": part.calibration.error(),
        kind.plural: [
            {kind.noun: number, **({"name": class_names[number]} if class_names else {}), **column}
            for number, column in enumerate(columns)
        ],
        "confusion": None if matrix is None else matrix.tolist(),
        "calibration": part.calibration.bins(),
        "notes": notes + _unranked(kind, ranked, notes),
    }


def _unranked(kind: OutputKind, ranked: Mapping[int, Any], notes: list[str]) -> list[str]:
    """Return a line if ranking has no value although it was computed."""
    if ranked or any("ROC-AUC" in note for note in notes):
        return []
    return [f"ROC-AUC and average precision have no value: no {kind.noun} has both positive and negative nodes"]

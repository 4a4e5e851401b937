"""Kinds of outputs: classes, of which a node has one, and tasks, each with a label of its own or none.

Outputs are logits, float32 (nodes, columns), a column per class or task.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop.predicting.metrics.calibration import Calibration
from diskhop.predicting.metrics.counts import ClassCounts, Outputs, TaskCounts
from diskhop.predicting.metrics.ranking import Scores

Labels = NDArray[Any]


class OutputKind(Protocol):
    """Meaning of a model's outputs."""

    @property
    def noun(self) -> str:
        """Name of a column."""

    @property
    def plural(self) -> str:
        """Name of several columns."""

    def count(self, num_columns: int, *, with_matrix: bool) -> ClassCounts | TaskCounts:
        """Return a counter of right predictions."""

    def is_labelled(self, labels: Labels) -> NDArray[np.bool_]:
        """Return which nodes have a label."""

    def calibrate(self, calibration: Calibration, outputs: Outputs, labels: Labels) -> None:
        """Add the probabilities of predictions to a calibration."""

    def scores(self, outputs: Outputs) -> Scores:
        """Return what nodes are ranked by in each column, float32 (nodes, columns)."""

    def sides(self, labels: Labels, column: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which nodes count in a column, and which are positive there."""


class Classes:
    """Classes: each is ranked against the rest by the logarithm of its probability, which keeps what rounds to 1."""

    noun = "class"
    plural = "classes"

    def count(self, num_columns: int, *, with_matrix: bool) -> ClassCounts:
        """See OutputKind."""
        return ClassCounts(num_columns, with_matrix=with_matrix)

    def is_labelled(self, labels: Labels) -> NDArray[np.bool_]:
        """See OutputKind."""
        found: NDArray[np.bool_] = labels >= 0
        return found

    def calibrate(self, calibration: Calibration, outputs: Outputs, labels: Labels) -> None:
        """See OutputKind: the predicted class's probability, and whether it is the node's."""
        probabilities = np.exp(_log_softmax(outputs).max(axis=1)).astype(np.float32)
        calibration.update(probabilities, outputs.argmax(axis=1) == labels)

    def scores(self, outputs: Outputs) -> Scores:
        """See OutputKind."""
        if outputs.shape[1] == 2:
            # As training's auc: of two classes the difference ranks like the probability, with fewer roundings.
            return outputs - outputs[:, ::-1]
        return _log_softmax(outputs).astype(np.float32)

    def sides(self, labels: Labels, column: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """See OutputKind."""
        return np.ones(len(labels), np.bool_), labels == column


class Tasks:
    """Tasks of a label 0, 1, or NaN for none."""

    noun = "task"
    plural = "tasks"

    def count(self, num_columns: int, *, with_matrix: bool) -> TaskCounts:
        """See OutputKind."""
        return TaskCounts(num_columns)

    def is_labelled(self, labels: Labels) -> NDArray[np.bool_]:
        """See OutputKind."""
        found: NDArray[np.bool_] = np.isnan(labels).sum(axis=1) < labels.shape[1]
        return found

    def calibrate(self, calibration: Calibration, outputs: Outputs, labels: Labels) -> None:
        """See OutputKind: the probability of a positive, for every known label of all tasks."""
        is_known = ~np.isnan(labels)
        values = outputs[is_known].astype(np.float64)
        calibration.update(np.exp(-np.logaddexp(0, -values)).astype(np.float32), labels[is_known] > 0.5)

    def scores(self, outputs: Outputs) -> Scores:
        """See OutputKind."""
        return outputs

    def sides(self, labels: Labels, column: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """See OutputKind."""
        return ~np.isnan(labels[:, column]), labels[:, column] > 0.5


def kind_of(labels: Labels) -> OutputKind:
    """Return the kind of outputs that labels as NodeSet.label_rows() returns them belong to."""
    return Classes() if labels.ndim == 1 else Tasks()


def _log_softmax(outputs: Outputs) -> NDArray[np.float64]:
    values = outputs.astype(np.float64)
    values -= values.max(axis=1, keepdims=True)
    values -= np.log(np.exp(values).sum(axis=1, keepdims=True))
    return values

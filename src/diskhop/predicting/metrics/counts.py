"""Counts of right and wrong predictions per class or task, and the metrics that follow from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Outputs = NDArray[np.float32]


class ClassCounts:
    """Counts of nodes by class and predicted class. with_matrix: keep the confusion matrix, 8 bytes per pair."""

    def __init__(self, num_classes: int, *, with_matrix: bool) -> None:
        self.matrix = np.zeros((num_classes, num_classes), np.int64) if with_matrix else None
        self._right = np.zeros(num_classes, np.int64)
        self._predicted = np.zeros(num_classes, np.int64)
        self._support = np.zeros(num_classes, np.int64)

    def update(self, outputs: Outputs, labels: NDArray[np.int64]) -> None:
        """Add nodes. The predicted class is the one of the highest output, of equal ones the first."""
        predicted = outputs.argmax(axis=1)
        num_classes = len(self._right)
        self._right += np.bincount(labels[predicted == labels], minlength=num_classes)
        self._predicted += np.bincount(predicted, minlength=num_classes)
        self._support += np.bincount(labels, minlength=num_classes)
        if self.matrix is not None:
            np.add.at(self.matrix, (labels, predicted), 1)

    def merge(self, other: ClassCounts) -> None:
        """Add the nodes of another one without a matrix."""
        self._right += other._right
        self._predicted += other._predicted
        self._support += other._support

    def values(self) -> dict[str, Any]:
        """Return accuracy and F1. Macro F1 is the mean over the classes that occur among labels or predictions."""
        occurs = self._support + self._predicted > 0
        accuracy = int(self._right.sum()) / int(self._support.sum())
        macro = _f1(self._right, self._predicted, self._support)[occurs].mean()
        # With one class per node, every wrong prediction is a false positive and a false negative.
        return {"accuracy": accuracy, "f1_macro": float(macro), "f1_micro": accuracy}

    def columns(self) -> list[dict[str, Any]]:
        """Return precision, recall, F1, support and number of predictions of each class."""
        return _columns(self._right, self._predicted, self._support)


class TaskCounts:
    """Counts of known labels, predictions and right ones per task."""

    def __init__(self, num_tasks: int) -> None:
        # A task's positives that are predicted so, predicted positives, positives, right labels, and known labels.
        self._counts = np.zeros((5, num_tasks), np.int64)

    def update(self, outputs: Outputs, labels: NDArray[np.float32]) -> None:
        """Add nodes. An output above 0 predicts a positive; NaN is no label."""
        is_known, is_positive = ~np.isnan(labels), labels > 0.5
        is_predicted = (outputs > 0) & is_known
        is_right = (is_predicted == is_positive) & is_known
        found = (is_predicted & is_positive, is_predicted, is_positive, is_right, is_known)
        self._counts += np.stack([each.sum(axis=0) for each in found])

    def merge(self, other: TaskCounts) -> None:
        """Add the nodes of another one."""
        self._counts += other._counts

    def values(self) -> dict[str, Any]:
        """Return accuracy over all labels, and F1. Macro F1 is the mean over tasks with a label."""
        right, predicted, support, num_right, known = self._counts
        pooled = _f1(*(each.sum(keepdims=True) for each in (right, predicted, support)))
        return {
            "accuracy": int(num_right.sum()) / int(known.sum()),
            "f1_macro": float(_f1(right, predicted, support)[known > 0].mean()),
            "f1_micro": float(pooled[0]),
        }

    def columns(self) -> list[dict[str, Any]]:
        """Return precision, recall, F1, support (positives), predictions, accuracy and labels of each task."""
        right, predicted, support, num_right, known = self._counts
        accuracy = _ratio(num_right, known)
        return [
            {**column, "accuracy": float(accuracy[task]), "labels": int(known[task])}
            for task, column in enumerate(_columns(right, predicted, support))
        ]


def _columns(right: Counts, predicted: Counts, support: Counts) -> list[dict[str, Any]]:
    precision, recall, f1 = _ratio(right, predicted), _ratio(right, support), _f1(right, predicted, support)
    return [
        {
            "precision": float(precision[column]),
            "recall": float(recall[column]),
            "f1": float(f1[column]),
            "support": int(support[column]),
            "predicted": int(predicted[column]),
        }
        for column in range(len(right))
    ]


def _f1(right: Counts, predicted: Counts, support: Counts) -> NDArray[np.float64]:
    return _ratio(2 * right, predicted + support)


def _ratio(parts: Counts, wholes: Counts) -> NDArray[np.float64]:
    """Return parts / wholes, 0 where the whole is 0 (scikit-learn's zero_division=0)."""
    return np.divide(parts, wholes, out=np.zeros(len(parts)), where=wholes > 0)

"""Accuracy and ROC-AUC, accumulated batch by batch.

Scores are a model's outputs, float32 (n, classes). Labels are int64 (n) classes, or float32 (n, tasks) of 0 and 1 with
NaN where a task's label is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop.config.options import require_known
from diskhop.errors import ConfigError
from diskhop.predicting.metrics.ranking import has_both, roc_auc, sort_sides

Scores = NDArray[np.float32]
Labels = NDArray[np.int64] | NDArray[np.float32]


class Metric(Protocol):
    """Accumulates a value over batches; more is better."""

    def update(self, scores: Scores, labels: Labels) -> None:
        """Add a batch."""

    def value(self) -> float:
        """Return the metric of everything added."""


class Accuracy:
    """The fraction of nodes with the highest score at their class; of labels with the right sign for several tasks."""

    def __init__(self) -> None:
        self._num_right = 0
        self._num_labels = 0

    def update(self, scores: Scores, labels: Labels) -> None:
        """Add a batch."""
        if labels.ndim == 1:
            self._num_right += int((scores.argmax(axis=1) == labels).sum())
            self._num_labels += len(labels)
        else:
            is_known = ~np.isnan(labels)
            self._num_right += int((((scores > 0) == (labels > 0.5)) & is_known).sum())
            self._num_labels += int(is_known.sum())

    def value(self) -> float:
        """Return the accuracy, 0 to 1. Raises ConfigError without a labelled node."""
        if self._num_labels == 0:
            raise ConfigError("accuracy needs at least one labelled node; choose a split that has some")
        return self._num_right / self._num_labels


class RocAuc:
    """The area under the ROC curve of two classes, or its mean over the tasks in which both occur."""

    def __init__(self) -> None:
        self._scores: list[Scores] = []
        self._labels: list[NDArray[np.float32]] = []

    def update(self, scores: Scores, labels: Labels) -> None:
        """Add a batch."""
        if labels.ndim == 1:
            scores = scores[:, 1:] - scores[:, :1]
            labels = labels[:, None]
        self._scores.append(scores.astype(np.float32))
        self._labels.append(labels.astype(np.float32))

    def value(self) -> float:
        """Return the area, 0 to 1. Raises ConfigError if no task has both classes."""
        scores, labels = np.concatenate(self._scores), np.concatenate(self._labels)
        areas = []
        for task_scores, task_labels in zip(scores.T, labels.T, strict=True):
            is_known = ~np.isnan(task_labels)
            is_positive = task_labels[is_known] > 0.5
            if has_both(is_positive):
                areas.append(roc_auc(sort_sides(task_scores[is_known], is_positive)))
        if not areas:
            raise ConfigError("metric auc needs nodes of both classes in the split: use --metric accuracy")
        return float(np.mean(areas))


METRICS: dict[str, Callable[[], Metric]] = {"accuracy": Accuracy, "auc": RocAuc}


def require_metric(name: str, num_classes: int) -> None:
    """Refuse a metric that is unknown, or does not fit this number of classes (0: labels are tasks)."""
    require_known("metric", name, METRICS)
    if name == "auc" and num_classes not in (0, 2):
        raise ConfigError(f"metric auc needs two classes, the dataset has {num_classes}: use --metric accuracy")


def require_measurable(name: str, labels: Labels, part: str) -> None:
    """Refuse a part of the split on which the metric has no value."""
    tasks = labels[:, None] if labels.ndim == 1 else labels
    if name == "auc" and not any(has_both(each[~np.isnan(each)] > 0.5) for each in tasks.T):
        raise ConfigError(
            f"metric auc needs nodes of both classes, split '{part}' has {len(labels)} of one: use --metric accuracy, "
            "or import the graph with another split"
        )

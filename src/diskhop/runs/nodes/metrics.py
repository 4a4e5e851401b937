"""Metrics of node models, accumulated batch by batch. METRICS is the registry: a metric is a class and a line there.

Outputs are float32 (n, columns): a column per class or task, or values in the labels' units. Labels are int64 (n)
classes, or float32 (n, columns) of tasks (0 and 1) or of values, with NaN where one is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from diskhop.config.options import require_known
from diskhop.config.train import CLASSIFICATION, MULTILABEL, REGRESSION
from diskhop.errors import ConfigError
from diskhop.predicting.metrics.counts import ClassCounts, TaskCounts
from diskhop.predicting.metrics.ranking import Sides, average_precision, has_both, roc_auc, sort_sides
from diskhop.predicting.metrics.values import ValueErrors, varies

Scores = NDArray[np.float32]
Labels = NDArray[np.int64] | NDArray[np.float32]


class Metric(Protocol):
    """Accumulates a value over batches."""

    def update(self, scores: Scores, labels: Labels) -> None:
        """Add a batch."""

    def merge(self, other: Self) -> None:
        """Add what another one has."""

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

    def merge(self, other: Accuracy) -> None:
        """See Metric."""
        self._num_right += other._num_right
        self._num_labels += other._num_labels

    def value(self) -> float:
        """Return the accuracy, 0 to 1. Raises ConfigError without a labelled node."""
        if self._num_labels == 0:
            raise ConfigError("accuracy needs at least one labelled node; choose a split that has some")
        return self._num_right / self._num_labels


class F1:
    """The F1 score. name: f1_micro or f1_macro; see ClassCounts and TaskCounts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._counts: ClassCounts | TaskCounts | None = None

    def update(self, scores: Scores, labels: Labels) -> None:
        """Add a batch."""
        if self._counts is None:
            num_columns = scores.shape[1]
            self._counts = ClassCounts(num_columns, with_matrix=False) if labels.ndim == 1 else TaskCounts(num_columns)
        self._counts.update(scores, labels)  # type: ignore[arg-type]  # int64 for classes, float32 for tasks

    def merge(self, other: F1) -> None:
        """See Metric."""
        if self._counts is None:
            self._counts = other._counts
        elif other._counts is not None:
            self._counts.merge(other._counts)  # type: ignore[arg-type]  # both of classes, or both of tasks

    def value(self) -> float:
        """Return the score, 0 to 1. Raises ConfigError without a labelled node."""
        if self._counts is None:
            raise ConfigError(f"{self._name} needs at least one labelled node; choose a split that has some")
        return float(self._counts.values()[self._name])


class Ranking:
    """A measure of how positives rank among two classes, or its mean over the tasks in which both occur.

    name: the metric's. measure: from the scores of positives and negatives to the value.
    """

    def __init__(self, name: str, measure: Callable[[Sides], float]) -> None:
        self._name = name
        self._measure = measure
        self._scores: list[Scores] = []
        self._labels: list[NDArray[np.float32]] = []

    def update(self, scores: Scores, labels: Labels) -> None:
        """Add a batch."""
        if labels.ndim == 1:
            scores = scores[:, 1:] - scores[:, :1]
            labels = labels[:, None]
        self._scores.append(scores.astype(np.float32))
        self._labels.append(labels.astype(np.float32))

    def merge(self, other: Ranking) -> None:
        """See Metric."""
        self._scores += other._scores
        self._labels += other._labels

    def value(self) -> float:
        """Return the value, 0 to 1. Raises ConfigError if no task has both classes."""
        scores, labels = np.concatenate(self._scores), np.concatenate(self._labels)
        found = []
        for task_scores, task_labels in zip(scores.T, labels.T, strict=True):
            is_known = ~np.isnan(task_labels)
            is_positive = task_labels[is_known] > 0.5
            if has_both(is_positive):
                found.append(self._measure(sort_sides(task_scores[is_known], is_positive)))
        if not found:
            raise ConfigError(f"metric {self._name} needs nodes of both classes in the split: use --metric accuracy")
        return float(np.mean(found))


class Error:
    """An error of values, the mean over columns. name: rmse, mae or r2; see ValueErrors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._errors: ValueErrors | None = None

    def update(self, scores: Scores, labels: Labels) -> None:
        """Add a batch."""
        if self._errors is None:
            self._errors = ValueErrors(scores.shape[1])
        self._errors.update(scores, labels)

    def merge(self, other: Error) -> None:
        """See Metric."""
        if other._errors is not None:
            if self._errors is None:
                self._errors = ValueErrors(other._errors.num_columns)
            self._errors.merge(other._errors)

    def value(self) -> float:
        """Return the error. Raises ConfigError without a labelled node."""
        found = None if self._errors is None else self._errors.values()[self._name]
        if found is None:
            raise ConfigError(f"metric {self._name} needs nodes with different values; choose another split")
        return found


@dataclass(frozen=True, slots=True)
class MetricKind:
    """An entry of METRICS.

    make: returns a new accumulator.
    tasks: tasks whose outputs it measures.
    ranks: needs positives and negatives.
    """

    make: Callable[[], Metric]
    tasks: tuple[str, ...] = (CLASSIFICATION, MULTILABEL)
    ranks: bool = False


METRICS: dict[str, MetricKind] = {
    "accuracy": MetricKind(Accuracy),
    "auc": MetricKind(partial(Ranking, "auc", roc_auc), ranks=True),
    "ap": MetricKind(partial(Ranking, "ap", average_precision), ranks=True),
    "f1_micro": MetricKind(partial(F1, "f1_micro")),
    "f1_macro": MetricKind(partial(F1, "f1_macro")),
    "rmse": MetricKind(partial(Error, "rmse"), (REGRESSION,)),
    "mae": MetricKind(partial(Error, "mae"), (REGRESSION,)),
    "r2": MetricKind(partial(Error, "r2"), (REGRESSION,)),
}


# The metric that a run is selected by unless another is given.
METRIC_OF_TASK = {CLASSIFICATION: "accuracy", MULTILABEL: "auc", REGRESSION: "rmse"}


def require_metric(name: str, task: str, num_classes: int) -> None:
    """Refuse a metric that is unknown, or does not fit the task or this number of classes."""
    require_known("metric", name, METRICS)
    if task not in METRICS[name].tasks:
        known = ", ".join(each for each, kind in METRICS.items() if task in kind.tasks)
        raise ConfigError(f"metric {name} does not measure --task {task}: use --metric with one of {known}")
    if task == CLASSIFICATION and METRICS[name].ranks and num_classes != 2:
        raise ConfigError(f"metric {name} needs two classes, the dataset has {num_classes}: use --metric accuracy")


def require_measurable(name: str, labels: Labels, part: str) -> None:
    """Refuse a part of the split on which the metric has no value."""
    tasks = labels[:, None] if labels.ndim == 1 else labels
    if METRICS[name].ranks and not any(has_both(each[~np.isnan(each)] > 0.5) for each in tasks.T):
        raise ConfigError(
            f"metric {name} needs nodes of both classes, split '{part}' has {len(labels)} of one: use --metric "
            "accuracy, or import the graph with another split"
        )
    if name == "r2" and not any(varies(each) for each in tasks.T):
        raise ConfigError(
            f"metric r2 needs nodes of different values, split '{part}' has {len(labels)} alike: use --metric rmse, "
            "or import the graph with another split"
        )

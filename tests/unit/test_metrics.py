"""Metrics equal scikit-learn's, however the nodes are cut into batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    f1_score,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from diskhop.errors import ConfigError
from diskhop.runs.better import best_value, is_better
from diskhop.runs.nodes.metrics import METRICS, Accuracy, require_measurable, require_metric
from tests.examples import examples


def measure(name: str, scores: NDArray[np.float32], labels: NDArray[Any], cut: int) -> float:
    metric = METRICS[name].make()
    for part in (slice(0, cut), slice(cut, None)):
        metric.update(scores[part], labels[part])
    return metric.value()


@examples(100)
@given(seed=st.integers(0, 10**6), num_nodes=st.integers(2, 60), num_values=st.sampled_from([1, 2, 5, 10**6]))
def test_auc_equals_scikit_learns_with_ties(seed: int, num_nodes: int, num_values: int) -> None:
    generator = np.random.default_rng(seed)
    # Few distinct values: many ties.
    scores = generator.integers(0, num_values, (num_nodes, 2)).astype(np.float32)
    labels = generator.integers(0, 2, num_nodes)
    labels[:2] = 0, 1
    expected = roc_auc_score(labels, scores[:, 1] - scores[:, 0])
    assert measure("auc", scores, labels, num_nodes // 3) == pytest.approx(expected, abs=1e-12)


@examples(50)
@given(seed=st.integers(0, 10**6), num_nodes=st.integers(1, 60))
def test_accuracy_equals_scikit_learns(seed: int, num_nodes: int) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(num_nodes, 4)).astype(np.float32)
    labels = generator.integers(0, 4, num_nodes)
    expected = accuracy_score(labels, scores.argmax(axis=1))
    assert measure("accuracy", scores, labels, num_nodes // 2) == pytest.approx(expected, abs=1e-12)


def test_tasks_are_averaged_and_missing_labels_left_out() -> None:
    scores = np.array([[0.9, -1], [0.2, 1], [0.5, 2], [0.1, -2]], np.float32)
    labels = np.array([[1, 0], [0, np.nan], [0, 1], [np.nan, 0]], np.float32)
    first = roc_auc_score([1, 0, 0], [0.9, 0.2, 0.5])
    second = roc_auc_score([0, 1, 0], [-1, 2, -2])
    assert measure("auc", scores, labels, 2) == pytest.approx((first + second) / 2)
    assert measure("accuracy", scores, labels, 2) == pytest.approx(4 / 6)


def test_a_task_with_one_class_is_left_out_of_the_mean() -> None:
    scores = np.array([[0.9, 0.5], [0.2, 0.1]], np.float32)
    labels = np.array([[1, 1], [0, 1]], np.float32)
    assert measure("auc", scores, labels, 1) == 1.0


def test_auc_of_one_class_is_refused() -> None:
    metric = METRICS["auc"].make()
    metric.update(np.zeros((3, 2), np.float32), np.ones(3, np.int64))
    with pytest.raises(ConfigError, match="both classes"):
        metric.value()


def test_labels_that_auc_cannot_measure_are_told_beforehand() -> None:
    both = np.array([0, 1, 1])
    tasks = np.array([[1, np.nan], [np.nan, 0], [1, 1]], np.float32)
    require_measurable("auc", both, "valid")
    require_measurable("auc", tasks, "valid")
    require_measurable("accuracy", both[1:], "valid")
    for labels in (both[1:], both[:0], tasks[:2]):
        message = f"both classes, split 'valid' has {len(labels)} of one: use --metric accuracy"
        with pytest.raises(ConfigError, match=message):
            require_measurable("auc", labels, "valid")


def test_auc_is_for_two_classes_or_tasks() -> None:
    require_metric("auc", "classification", 2)
    require_metric("ap", "multilabel", 0)
    with pytest.raises(ConfigError, match="metric ap needs two classes, the dataset has 7"):
        require_metric("ap", "classification", 7)


@pytest.mark.parametrize(
    ("name", "task", "known"),
    [
        ("rmse", "classification", "accuracy, auc, ap, f1_micro, f1_macro"),
        ("r2", "multilabel", "accuracy, auc, ap, f1_micro, f1_macro"),
        ("accuracy", "regression", "rmse, mae, r2"),
    ],
)
def test_a_metric_of_another_task_is_refused(name: str, task: str, known: str) -> None:
    with pytest.raises(ConfigError, match=f"metric {name} does not measure --task {task}: use --metric .* {known}$"):
        require_metric(name, task, 2)


@examples(50)
@given(seed=st.integers(0, 10**6), num_nodes=st.integers(2, 60), num_values=st.sampled_from([2, 5, 10**6]))
def test_average_precision_equals_scikit_learns(seed: int, num_nodes: int, num_values: int) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.integers(0, num_values, (num_nodes, 2)).astype(np.float32)
    labels = generator.integers(0, 2, num_nodes)
    labels[:2] = 0, 1
    expected = average_precision_score(labels, scores[:, 1] - scores[:, 0])
    assert measure("ap", scores, labels, num_nodes // 3) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ["f1_micro", "f1_macro"])
@examples(30)
@given(seed=st.integers(0, 10**6), num_nodes=st.integers(1, 60))
def test_f1_equals_scikit_learns(name: str, seed: int, num_nodes: int) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(num_nodes, 4)).astype(np.float32)
    classes = generator.integers(0, 4, num_nodes)
    average = name.removeprefix("f1_")
    expected = f1_score(classes, scores.argmax(axis=1), average=average)
    assert measure(name, scores, classes, num_nodes // 2) == pytest.approx(expected, abs=1e-12)
    tasks = generator.integers(0, 2, (num_nodes, 4)).astype(np.float32)
    expected = f1_score(tasks, scores > 0, average=average, zero_division=0)
    assert measure(name, scores, tasks, num_nodes // 2) == pytest.approx(expected, abs=1e-12)


@examples(50)
@given(seed=st.integers(0, 10**6), num_nodes=st.integers(2, 60), offset=st.sampled_from([0.0, 1e4]))
def test_errors_of_values_equal_scikit_learns(seed: int, num_nodes: int, offset: float) -> None:
    generator = np.random.default_rng(seed)
    labels = (offset + generator.normal(size=(num_nodes, 3))).astype(np.float32)
    values = (labels + generator.normal(size=(num_nodes, 3))).astype(np.float32)
    true, found = labels.astype(np.float64), values.astype(np.float64)
    for name, score in (("rmse", root_mean_squared_error), ("mae", mean_absolute_error), ("r2", r2_score)):
        assert measure(name, values, labels, num_nodes // 3) == pytest.approx(score(true, found), rel=1e-9)


def test_missing_values_are_left_out_and_columns_averaged() -> None:
    labels = np.array([[1, np.nan], [3, 2], [np.nan, 2]], np.float32)
    values = np.array([[2, 9], [3, 4], [7, 1]], np.float32)
    assert measure("mae", values, labels, 1) == pytest.approx((0.5 + 1.5) / 2)
    assert measure("r2", values, labels, 2) == pytest.approx(1 - 1 / 2), "the second column has one value alone"
    require_measurable("r2", labels, "valid")
    with pytest.raises(ConfigError, match="metric r2 needs nodes of different values, split 'valid' has 2 alike"):
        require_measurable("r2", labels[1:, 1:], "valid")


def test_of_errors_the_least_is_the_best() -> None:
    assert is_better("rmse", 1.0, 2.0)
    assert is_better("r2", 2.0, 1.0)
    assert not is_better("mae", 1.0, 1.0)
    assert (best_value("mae", [3.0, 1.0]), best_value("mrr", [3.0, 1.0]), best_value("auc", [])) == (1.0, 3.0, None)


def test_accuracy_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one labelled node"):
        Accuracy().value()

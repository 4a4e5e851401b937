"""Metrics equal scikit-learn's, however the nodes are cut into batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, roc_auc_score

from diskhop.errors import ConfigError
from diskhop.runs.nodes.metrics import METRICS, Accuracy, RocAuc, require_measurable, require_metric
from tests.examples import examples


def measure(name: str, scores: NDArray[np.float32], labels: NDArray[Any], cut: int) -> float:
    metric = METRICS[name]()
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
    metric = RocAuc()
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
    require_metric("auc", 2)
    require_metric("auc", 0)
    with pytest.raises(ConfigError, match="two classes, the dataset has 7"):
        require_metric("auc", 7)


def test_accuracy_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one labelled node"):
        Accuracy().value()

"""Metrics of streamed outputs equal scikit-learn's and torchmetrics', for any memory and any cut into blocks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics as sk

from diskhop.budget import Budget
from diskhop.errors import BudgetError, ConfigError
from diskhop.predicting.metrics import measure
from diskhop.predicting.metrics.measure import measure_outputs
from diskhop.predicting.metrics.ranking import average_precision, roc_auc, sort_sides
from diskhop.predicting.rows import ArrayRows
from diskhop.protocols import NodeRows
from tests.examples import examples

PLENTY = 10**9
MANY = 10**6  # values: no two are equal


def exactly(expected: Any) -> Any:
    """The same but for the last bits."""
    return pytest.approx(expected, abs=1e-12)


def nearly(expected: Any) -> Any:
    """The same but for the rounding of probabilities to float32, which torchmetrics does all along."""
    return pytest.approx(expected, abs=1e-6)


def measured(
    outputs: NDArray[Any], labels: NDArray[Any], rows: NDArray[Any] | None = None, memory: int = PLENTY, **options: Any
) -> dict[str, Any]:
    """The metrics of one part, of all nodes unless rows are named."""
    part = NodeRows(np.arange(len(labels)) if rows is None else rows)
    return measure_outputs(ArrayRows(outputs.astype(np.float32)), labels, {"test": part}, Budget(memory), **options)[
        "test"
    ]


def drawn(seed: int, num_nodes: int, num_classes: int, num_values: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Outputs with ties if there are few values, and labels, of which some classes may have none."""
    generator = np.random.default_rng(seed)
    outputs = generator.normal(0, 2, (num_nodes, num_classes)).astype(np.float32)
    if num_values < MANY:
        outputs = (generator.integers(0, num_values, outputs.shape) / 4).astype(np.float32)
    labels = generator.integers(0, generator.integers(1, num_classes + 1), num_nodes)
    return outputs, labels


def log_softmax(outputs: NDArray[Any]) -> NDArray[Any]:
    return torch.from_numpy(outputs).double().log_softmax(dim=1).float().numpy()


def expected_error(probabilities: NDArray[np.float32], is_right: NDArray[np.bool_]) -> float:
    """torchmetrics' calibration error of norm l1 with 15 bins."""
    edges = torch.linspace(0, 1, 16)
    bins = (torch.bucketize(torch.from_numpy(probabilities), edges, right=True) - 1).numpy()
    error = 0.0
    for number in np.unique(bins):
        chosen = bins == number
        error += chosen.mean() * abs(is_right[chosen].mean() - probabilities[chosen].astype(np.float64).mean())
    return error


@examples(150)
@given(
    seed=st.integers(0, 10**6),
    num_nodes=st.integers(1, 80),
    num_classes=st.integers(1, 6),
    num_values=st.sampled_from([1, 2, 5, MANY]),
)
def test_classes_equal_scikit_learns(seed: int, num_nodes: int, num_classes: int, num_values: int) -> None:
    outputs, labels = drawn(seed, num_nodes, num_classes, num_values)
    found = measured(outputs, labels)
    predicted = outputs.argmax(axis=1)
    assert found["nodes"] == num_nodes
    assert found["accuracy"] == exactly(sk.accuracy_score(labels, predicted))
    for average in ("macro", "micro"):
        expected = sk.f1_score(labels, predicted, average=average, zero_division=0)
        assert found[f"f1_{average}"] == exactly(expected)
    known = list(range(num_classes))
    of_each = sk.precision_recall_fscore_support(labels, predicted, labels=known, zero_division=0)
    for name, expected in zip(("precision", "recall", "f1", "support"), of_each, strict=True):
        assert [column[name] for column in found["classes"]] == exactly(expected.tolist())
    if num_classes > 1:  # scikit-learn warns of a matrix of one class
        assert found["confusion"] == sk.confusion_matrix(labels, predicted, labels=known).tolist()
    check_ranking(found, outputs, labels)
    log_probabilities = log_softmax(outputs)
    probabilities = np.exp(log_probabilities.max(axis=1))
    bins = found["calibration"]
    assert sum(each["predictions"] for each in bins) == num_nodes
    if num_values == MANY:  # no probability is at the edge of a bin
        assert found["ece"] == nearly(expected_error(probabilities, predicted == labels))


def check_ranking(found: dict[str, Any], outputs: NDArray[Any], labels: NDArray[Any]) -> None:
    """Each class against the rest, and their mean; of two classes, the second."""
    num_classes = outputs.shape[1]
    scores = outputs - outputs[:, ::-1] if num_classes == 2 else log_softmax(outputs)
    areas, precisions = {}, {}
    for number in range(num_classes):
        is_one = labels == number
        if is_one.any() and not is_one.all():
            areas[number] = sk.roc_auc_score(is_one, scores[:, number])
            precisions[number] = sk.average_precision_score(is_one, scores[:, number])
    for name, expected in (("roc_auc", areas), ("average_precision", precisions)):
        of_classes = [column[name] for column in found["classes"]]
        assert of_classes == [expected[k] and exactly(expected[k]) if k in expected else None
                              for k in range(num_classes)]  # fmt: skip
        if not expected:
            assert found[name] is None
        elif num_classes == 2:
            assert found[name] == exactly(expected[1])
        else:
            assert found[name] == exactly(np.mean(list(expected.values())))
    assert found["ranked"] == len(areas)
    assert any("no class has both" in note for note in found["notes"]) == (not areas)


def test_the_macro_area_is_scikit_learns_one_versus_rest() -> None:
    outputs = np.random.default_rng(0).normal(size=(400, 5)).astype(np.float32)
    labels = np.arange(400) % 5
    probabilities = torch.from_numpy(outputs).double().softmax(dim=1).numpy()
    expected = sk.roc_auc_score(labels, probabilities, multi_class="ovr", average="macro")
    assert measured(outputs, labels)["roc_auc"] == nearly(expected)


@examples(100)
@given(
    seed=st.integers(0, 10**6),
    num_nodes=st.integers(1, 60),
    num_tasks=st.integers(1, 4),
    num_values=st.sampled_from([2, 5, MANY]),
)
def test_tasks_equal_scikit_learns(seed: int, num_nodes: int, num_tasks: int, num_values: int) -> None:
    generator = np.random.default_rng(seed)
    outputs = generator.normal(0, 3, (num_nodes, num_tasks)).astype(np.float32)
    if num_values < MANY:
        outputs = (generator.integers(-num_values, num_values, outputs.shape) / 4).astype(np.float32)
    labels = generator.choice([0, 1, np.nan], (num_nodes, num_tasks)).astype(np.float32)
    labels[0, 0] = 1
    found = measured(outputs, labels)
    is_known = ~np.isnan(labels)
    assert found["nodes"] == is_known.any(axis=1).sum()
    assert found["accuracy"] == exactly((outputs > 0)[is_known].__eq__(labels[is_known] > 0.5).mean())
    expected = sk.f1_score(labels[is_known] > 0.5, (outputs > 0)[is_known], zero_division=0)
    assert found["f1_micro"] == exactly(expected)
    scores, areas, precisions = [], [], []
    for task in range(num_tasks):
        known = is_known[:, task]
        truth, predicted = labels[known, task] > 0.5, outputs[known, task] > 0
        column = found["tasks"][task]
        assert (column["labels"], column["support"]) == (known.sum(), truth.sum())
        if not known.any():
            continue
        for name, function in (("precision", sk.precision_score), ("recall", sk.recall_score), ("f1", sk.f1_score)):
            assert column[name] == exactly(function(truth, predicted, zero_division=0))
        scores.append(column["f1"])
        assert column["accuracy"] == exactly((truth == predicted).mean())
        if truth.any() and not truth.all():
            areas.append(sk.roc_auc_score(truth, outputs[known, task]))
            precisions.append(sk.average_precision_score(truth, outputs[known, task]))
            assert column["roc_auc"] == exactly(areas[-1])
            assert column["average_precision"] == exactly(precisions[-1])
        else:
            assert column["roc_auc"] is None
    assert found["f1_macro"] == exactly(np.mean(scores))
    assert found["roc_auc"] == (exactly(np.mean(areas)) if areas else None)
    assert found["average_precision"] == (exactly(np.mean(precisions)) if areas else None)
    assert found["confusion"] is None
    if num_values == MANY:
        probabilities = torch.from_numpy(outputs[is_known]).sigmoid().numpy()
        assert found["ece"] == nearly(expected_error(probabilities, labels[is_known] > 0.5))


@examples(60)
@given(seed=st.integers(0, 10**6), num_values=st.sampled_from([1, 3, MANY]), num_nodes=st.integers(2, 90))
def test_ranking_takes_blocks_of_any_length(seed: int, num_values: int, num_nodes: int) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.integers(0, num_values, num_nodes).astype(np.float32)
    is_positive = generator.random(num_nodes) < 0.4
    is_positive[:2] = True, False
    sides = sort_sides(scores, is_positive)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("diskhop.predicting.metrics.ranking._BLOCK", 7)
        assert roc_auc(sides) == exactly(sk.roc_auc_score(is_positive, scores))
        assert average_precision(sides) == exactly(sk.average_precision_score(is_positive, scores))


@examples(40)
@given(seed=st.integers(0, 10**6), num_classes=st.integers(1, 5), block_values=st.integers(1, 200))
def test_parts_are_the_rows_they_name(seed: int, num_classes: int, block_values: int) -> None:
    generator = np.random.default_rng(seed)
    outputs, labels = drawn(seed, 90, num_classes, MANY)
    labels[generator.random(90) < 0.2] = -1
    order = generator.permutation(90)
    parts = {"train": NodeRows(order[:50]), "test": NodeRows(order[40:])}  # they may share nodes
    parts = {name: rows for name, rows in parts.items() if (labels[rows] >= 0).any()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "_BLOCK_VALUES", block_values)
        found = measure_outputs(ArrayRows(outputs), labels, parts, Budget(PLENTY))
    for name, rows in parts.items():
        labelled = np.sort(rows[labels[rows] >= 0])
        alone = measured(outputs[labelled], labels[labelled])
        assert found[name].pop("ece") == exactly(alone.pop("ece"))
        for each in (found[name], alone):
            each["calibration"] = [bin_["predictions"] for bin_ in each["calibration"]]
        assert found[name] == alone


class CountedRows(ArrayRows):
    """Rows that count how often they are read from the start."""

    num_passes = 0

    def blocks(self, block_rows: int, start: int = 0, stop: int | None = None) -> Any:
        self.num_passes += 1
        return super().blocks(block_rows, start, stop)


@pytest.mark.parametrize("num_classes", [2, 7])
def test_values_are_those_of_any_memory(num_classes: int) -> None:
    outputs, labels = drawn(3, 5000, num_classes, MANY)
    parts = {"train": NodeRows(np.arange(2000)), "test": NodeRows(np.arange(2000, 5000))}
    budget = Budget(PLENTY)
    expected = measure_outputs(ArrayRows(outputs), labels, parts, budget)
    others = sum(num_bytes for name, num_bytes in budget.table().items() if name != "scores")
    # Scores of one column, of two, of all.
    for num_columns in (1, 2, num_classes):
        table = CountedRows(outputs)
        done: list[tuple[int, ...]] = []
        budget = Budget(others + 4 * 5000 * num_columns + 12 * 3000)
        found = measure_outputs(table, labels, parts, budget, progress=lambda *rows, done=done: done.append(rows))
        assert found == expected
        assert table.num_passes == -(-num_classes // num_columns)
        assert done[-1] == (5000 * table.num_passes, 5000 * table.num_passes)
        assert budget.available_bytes == budget.total_bytes


def test_what_memory_is_too_small_for_is_said() -> None:
    outputs, labels = drawn(0, 5000, 300, MANY)
    budget = Budget(PLENTY)
    whole = measure_outputs(ArrayRows(outputs), labels, {"test": NodeRows(np.arange(5000))}, budget)["test"]
    assert whole["notes"] == []
    fixed = sum(budget.table()[name] for name in ("evaluated nodes", "block of outputs"))
    some = measured(outputs, labels, memory=fixed + 700_000)
    assert (some["confusion"], some["roc_auc"]) == (None, whole["roc_auc"])
    assert some["notes"] == ["confusion matrix left out: it needs 720 KB; use a larger --memory"]
    less = measured(outputs, labels, memory=fixed + 79_999)
    assert less["roc_auc"] is None
    assert all(column["average_precision"] is None for column in less["classes"])
    assert less["classes"][5]["precision"] == whole["classes"][5]["precision"]
    line = less["notes"][1]
    assert line.startswith("ROC-AUC and average precision left out: the scores of one class need 80 KB; use --memory 1")
    enough = int(line.split("--memory ")[1].split("MB")[0])
    assert measured(outputs, labels, memory=enough * 1_000_000)["roc_auc"] == whole["roc_auc"]
    with pytest.raises(BudgetError, match=r"evaluated nodes .*; the smallest that works is --memory"):
        measured(outputs, labels, memory=1_000_000)


def test_matrices_of_many_classes_are_left_out() -> None:
    outputs = np.zeros((3, 1001), np.float32)
    found = measured(outputs, np.array([0, 5, 1000]))
    assert found["confusion"] is None
    assert found["notes"] == ["confusion matrix left out: 1,001 classes are more than 1,000"]


def test_probability_1_has_a_bin_of_its_own() -> None:
    outputs = np.array([[200, 0], [200, 0], [0.1, 0]], np.float32)
    bins = measured(outputs, np.array([0, 1, 0]))["calibration"]
    assert len(bins) == 16
    assert bins[-1] == {"from": 1.0, "to": 1.0, "predictions": 2, "probability": 1.0, "accuracy": 0.5}
    assert (bins[7]["predictions"], bins[7]["accuracy"]) == (1, 1.0)
    assert bins[0] == {"from": 0.0, "to": 0.066667, "predictions": 0, "probability": None, "accuracy": None}


def test_names_of_classes_stand_next_to_their_numbers() -> None:
    found = measured(np.eye(2, dtype=np.float32), np.array([0, 1]), class_names=["cat", "dog"])
    assert [(each["class"], each["name"]) for each in found["classes"]] == [(0, "cat"), (1, "dog")]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_outputs_that_are_not_finite_are_refused(value: float) -> None:
    outputs = np.zeros((5, 3), np.float32)
    outputs[3, 1] = value
    with pytest.raises(ConfigError, match=r"the outputs of row 3 are not finite; .*--lr"):
        measured(outputs, np.zeros(5, np.int64))
    # Nodes of no part are not looked at.
    assert measured(outputs, np.zeros(5, np.int64), np.array([0, 4]))["accuracy"] == 1


def test_a_part_without_labels_is_refused() -> None:
    with pytest.raises(ConfigError, match="part 'test' has no labelled node"):
        measured(np.zeros((3, 2)), np.full(3, -1))


def test_nothing_warns_where_a_class_is_absent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = measured(np.array([[0, 1, 0], [0, 1, 0]], np.float32), np.array([0, 0]))
    assert (found["accuracy"], found["f1_macro"], found["roc_auc"]) == (0, 0, None)

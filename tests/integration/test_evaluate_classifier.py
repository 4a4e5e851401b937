"""Evaluating a node classifier: what is measured, on which nodes, and what a person and a report show of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError, SchemaError
from diskhop.loaders.neighbor import NeighborLoader
from diskhop.nn.models import build_model
from diskhop.predicting.rows import ArrayRows, RowTable
from diskhop.reporting.evaluation import evaluation_figures, evaluation_table
from diskhop.reporting.page import render
from diskhop.reporting.records import read_run
from diskhop.runs.evaluate.classifier import evaluate_classifier
from diskhop.runs.nodes.opened import OpenClassifier, open_classifier
from diskhop.runs.start import train
from diskhop.ui.evaluation import column_table, evaluation_rows, part_table
from tests.runs import OPTIONS, import_arrays, random_arrays, small_graph

PARTS = ("train", "valid", "test")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "graph")


@pytest.fixture(scope="module")
def run(graph: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    train(graph, out=out, eval_fanout=(-1, -1), **OPTIONS)
    return out


def outputs_of(opened: OpenClassifier, dataset: Dataset) -> NDArray[np.float32]:
    """Logits of all nodes with all neighbours, by the loader."""
    model = build_model(opened.config, opened.schema.feature_dim, opened.schema.num_outputs)  # type: ignore[arg-type]
    model.load_state_dict(opened.parameters)
    model.eval()
    outputs = np.empty((dataset.num_nodes, opened.schema.num_outputs), np.float32)
    with torch.no_grad(), NeighborLoader(dataset, num_neighbors=[-1, -1], batch_size=100, memory="100MB") as loader:
        for batch in loader:
            outputs[batch.input_id.numpy()] = model(batch.x, batch.block).numpy()
    return outputs


@contextmanager
def exact(opened: OpenClassifier, dataset: Dataset, budget: Budget, _later: object) -> Iterator[RowTable]:
    with budget.reserve("model", 1000):
        yield ArrayRows(outputs_of(opened, dataset))


@contextmanager
def drawn(opened: OpenClassifier, dataset: Dataset, budget: Budget, _later: object) -> Iterator[RowTable]:
    """Outputs that have nothing to do with the model."""
    generator = np.random.default_rng(0)
    yield ArrayRows(generator.normal(size=(dataset.num_nodes, opened.schema.num_outputs)).astype(np.float32))


def test_what_training_measured_is_found_again(run: Path, graph: Dataset) -> None:
    found = evaluate_classifier(run, exact)
    assert tuple(found["parts"]) == PARTS
    trained = json.loads((run / "result.json").read_bytes())
    assert found["parts"]["test"]["accuracy"] == trained["test"]["accuracy"]
    assert found["parts"]["valid"]["accuracy"] == pytest.approx(trained["best_valid"], abs=1e-12)
    sizes = {name: len(rows) for name in PARTS if (rows := graph.split_rows(name)) is not None}
    assert {name: part["nodes"] for name, part in found["parts"].items()} == sizes
    assert (found["dataset_hash"], found["trained_on"]) == (graph.hash, graph.hash)
    assert found["outputs"] == {"kind": "classes", "count": 4}
    assert json.loads((run / "evaluation.json").read_bytes()) == found
    assert 0.5 < found["parts"]["test"]["roc_auc"] <= 1


def test_one_part_alone_has_the_same_values(run: Path) -> None:
    whole = evaluate_classifier(run, drawn)
    alone = evaluate_classifier(run, drawn, part="valid", memory="20MB")
    assert alone["parts"] == {"valid": whole["parts"]["valid"]}
    with pytest.raises(ConfigError, match="unknown part 'tset'"):
        evaluate_classifier(run, drawn, part="tset")


def test_another_dataset_must_fit(run: Path, graph: Dataset, tmp_path: Path) -> None:
    newer = small_graph(tmp_path / "newer", num_nodes=900, num_edges=5000, seed=7)
    found = evaluate_classifier(run, exact, dataset=newer.path)
    assert (found["dataset_hash"], found["trained_on"]) == (newer.hash, graph.hash)
    assert "another dataset" in evaluation_table(found)["note"]
    wider = small_graph(tmp_path / "wider", dim=17, num_classes=5)
    with pytest.raises(SchemaError) as refused:
        evaluate_classifier(run, exact, dataset=wider)
    assert len(refused.value.lines) == 2


def test_a_dataset_that_changed_is_named(graph: Dataset, tmp_path: Path) -> None:
    arrays = random_arrays()
    first = import_arrays(tmp_path, "first", **arrays)
    train(first, out=tmp_path / "run", **{**OPTIONS, "epochs": 1})
    second = import_arrays(tmp_path, "second", **{**arrays, "y": arrays["y"][::-1]})
    first.path.rename(tmp_path / "gone")
    second.path.rename(first.path)
    with pytest.raises(ConfigError, match=r"is another dataset than .* add --dataset .*first-imported$"):
        evaluate_classifier(tmp_path / "run", exact)
    # Neither has a split: which nodes the run drew is not known of the other.
    found = evaluate_classifier(tmp_path / "run", drawn, dataset=first.path)
    assert list(found["parts"]) == ["all"]
    assert found["parts"]["all"]["nodes"] == 200
    assert "may include nodes of the training" in found["notes"][0]
    with pytest.raises(ConfigError, match="remove --part"):
        evaluate_classifier(tmp_path / "run", drawn, dataset=first.path, part="test")
    own = evaluate_classifier(tmp_path / "run", drawn, dataset=tmp_path / "gone")
    assert {name: part["nodes"] for name, part in own["parts"].items()} == {"train": 120, "valid": 40, "test": 40}


def test_a_dataset_without_labels_is_refused(tmp_path: Path) -> None:
    arrays = random_arrays()
    train(import_arrays(tmp_path, "first", **arrays), out=tmp_path / "run", **{**OPTIONS, "epochs": 1})
    del arrays["y"]
    with pytest.raises(ConfigError, match="has no labels"):
        evaluate_classifier(tmp_path / "run", exact, dataset=import_arrays(tmp_path, "second", **arrays))


def test_memory_for_labels_is_needed_before_any_work(run: Path) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("work began")

    with pytest.raises(BudgetError, match="labels"):
        evaluate_classifier(run, fail, memory=5000)


def test_tasks_are_measured(tmp_path: Path) -> None:
    arrays = random_arrays()
    generator = np.random.default_rng(1)
    arrays["y"] = generator.choice([0, 1, np.nan], (200, 3)).astype(np.float32)
    train(import_arrays(tmp_path, "tasks", **arrays), out=tmp_path / "run", **{**OPTIONS, "epochs": 1})
    found = evaluate_classifier(tmp_path / "run", drawn)
    assert found["outputs"] == {"kind": "tasks", "count": 3}
    assert column_table(found, "test").names[0] == "task"
    assert [row[0] for row in column_table(found, "test").rows] == ["0", "1", "2"]
    assert [figure.title for figure in evaluation_figures(found)] == ["Calibration"]
    assert evaluation_rows(found, "test") == []


def with_classes(found: dict[str, Any], matrix: NDArray[np.int64]) -> dict[str, Any]:
    """A result of another confusion matrix."""
    support = matrix.sum(axis=1).tolist()
    one = {"precision": 0.5, "recall": 0.5, "f1": 0.5, "predicted": 1, "roc_auc": None, "average_precision": 0.25}
    classes = [{"class": number, **one, "support": count} for number, count in enumerate(support)]
    part = {**found["parts"]["test"], "confusion": matrix.tolist(), "classes": classes}
    return {**found, "parts": {"test": part}}


def test_a_person_reads_parts_classes_and_confusions(run: Path) -> None:
    found = evaluate_classifier(run, exact)
    names, rows = part_table(found)
    assert names[:3] == ["part", "nodes", "accuracy"]
    assert [row[0] for row in rows] == list(PARTS)
    assert rows[2][2] == f"{found['parts']['test']['accuracy']:.4f}"
    matrix = np.diag(np.arange(1, 31) * 1000)
    matrix[4, 2], matrix[7, 1], matrix[7, 0] = 500, 9, 9
    many = with_classes(found, matrix)
    table = column_table(many, "test")
    assert [row[0] for row in table.rows] == [str(number) for number in range(29, 9, -1)]
    assert table.rows[0] == ["29", "30,000", "0.5000", "0.5000", "0.5000", "-", "0.2500"]
    lines = evaluation_rows(many, "test")
    assert lines[0] == ("classes", "the 20 largest classes of 30 in test; --json has all")
    assert lines[1] == ("confused in test", "500 of class 4 taken for 2 (9% of the class)")
    assert [text for _, text in lines[2:]] == [
        "9 of class 7 taken for 0 (0% of the class)", "9 of class 7 taken for 1 (0% of the class)"
    ]  # fmt: skip


def test_a_report_shows_the_evaluation(run: Path) -> None:
    found = evaluate_classifier(run, exact)
    page = render([read_run(run)])
    for text in ("<h3>Evaluation</h3>", "Confusion matrix", "Calibration", f"{found['parts']['test']['ece']:.4f}"):
        assert text in page
    heat, calibration = evaluation_figures(found)
    matrix = np.array(found["parts"]["test"]["confusion"])
    np.testing.assert_allclose(heat.data[0]["z"], matrix / matrix.sum(axis=1, keepdims=True), atol=1e-4)
    assert heat.data[0]["x"] == ["0", "1", "2", "3"]
    assert len(calibration.data[0]["x"]) == sum(
        bin_["predictions"] > 0 for bin_ in found["parts"]["test"]["calibration"]
    )


def test_a_heat_map_of_many_classes_stays_legible(run: Path) -> None:
    generator = np.random.default_rng(0)
    matrix = generator.integers(0, 9, (170, 170))
    matrix[5] += 100
    heat = evaluation_figures(with_classes(evaluate_classifier(run, drawn), matrix))[0]
    assert heat.note.endswith("the 30 largest of 170 classes, the others together")
    titles, shares = heat.data[0]["x"], np.array(heat.data[0]["z"])
    assert (len(titles), titles[-1], "5" in titles) == (31, "other", True)
    assert titles[:-1] == sorted(titles[:-1], key=int)
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=0.01)
    assert shares[30, 30] == pytest.approx(1 - shares[30, :30].sum(), abs=0.01)


def test_a_damaged_evaluation_is_named(run: Path, graph: Dataset, tmp_path: Path) -> None:
    train(graph, out=tmp_path / "run", **{**OPTIONS, "epochs": 1})
    assert "<h3>Evaluation</h3>" not in render([read_run(tmp_path / "run")])
    (tmp_path / "run" / "evaluation.json").write_text("{")
    with pytest.raises(ConfigError, match=r"evaluation\.json: is damaged.*diskhop evaluate"):
        read_run(tmp_path / "run")
    assert open_classifier(tmp_path / "run").config.model == "sage"

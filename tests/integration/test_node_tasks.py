"""Tasks of node models: several labels per node, and numbers, trained, predicted and measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import root_mean_squared_error

from diskhop.cli import run as run_command
from diskhop.config.node_kinds import KINDS
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, RequirementError, SchemaError
from diskhop.runs.evaluate.run import evaluate_run
from diskhop.runs.predict.run import predict_run
from diskhop.runs.start import train
from tests.runs import OPTIONS, assert_same_run, import_arrays, interrupt, random_arrays

WHOLE = {**OPTIONS, "fanout": (-1, -1), "epochs": 60, "lr": 0.02, "dropout": 0.0}
# Far from 0 and 1, as prices and years are.
MEAN, SCALE = 1000.0, 25.0


def numbers_of(arrays: dict[str, Any]) -> Any:
    """Two columns that follow from a node's features and those of its neighbours; some are missing."""
    x, (sources, destinations) = arrays["x"], arrays["edge_index"]
    sums = np.zeros(len(x))
    np.add.at(sums, destinations, x[sources, 0])
    degrees = np.maximum(np.bincount(destinations, minlength=len(x)), 1)
    numbers = np.stack([MEAN + SCALE * x[:, 1], MEAN + SCALE * sums / degrees], 1)
    numbers[::7, 0] = np.nan
    numbers[::11] = np.nan
    return numbers


@pytest.fixture(scope="module")
def arrays() -> dict[str, Any]:
    return random_arrays(300)


@pytest.fixture(scope="module")
def of_values(tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, Any]) -> Dataset:
    return import_arrays(tmp_path_factory.mktemp("values"), **{**arrays, "y": numbers_of(arrays)})


@pytest.fixture(scope="module")
def of_tasks(tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, Any]) -> Dataset:
    tasks = (numbers_of(arrays) > MEAN + np.array([SCALE, 2 * SCALE])).astype(float)
    tasks[np.isnan(numbers_of(arrays))] = np.nan
    return import_arrays(tmp_path_factory.mktemp("tasks"), **{**arrays, "y": tasks})


@pytest.fixture(scope="module")
def of_classes(tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, Any]) -> Dataset:
    return import_arrays(tmp_path_factory.mktemp("classes"), **arrays)


@pytest.mark.fast("sage")
@pytest.mark.parametrize("model", ["sage", "sign"])
def test_numbers_are_learned_and_predicted_in_their_units(of_values: Dataset, tmp_path: Path, model: str) -> None:
    options = {name: value for name, value in WHOLE.items() if model == "sage" or name != "fanout"}
    trained = train(of_values, out=tmp_path / "run", model=model, metric="r2", **options)
    assert (trained.config.task, trained.config.loss) == ("regression", "mse")
    assert trained.result["test"]["r2"] > 0.5
    predict_run(tmp_path / "run", out=tmp_path / "out", require=("test>=.5",))
    found = pd.read_parquet(tmp_path / "out").sort_values("id")
    values, labels = np.stack(found["value"]), of_values.labels
    assert labels is not None
    assert np.nanmean(np.abs(values - labels)) < SCALE
    evaluation = evaluate_run(tmp_path / "run")
    assert evaluation["outputs"] == {"kind": "values", "count": 2}
    part = evaluation["parts"]["test"]
    assert part["r2"] == pytest.approx(trained.result["test"]["r2"], abs=1e-4)
    schema = json.loads((tmp_path / "run/schema.json").read_text())
    assert schema["scaling"]["means"] == pytest.approx([MEAN + SCALE, MEAN + SCALE], rel=0.1)


def test_evaluation_of_values_equals_scikit_learns(of_values: Dataset, tmp_path: Path) -> None:
    train(of_values, out=tmp_path / "run", **{**WHOLE, "epochs": 2})
    predict_run(tmp_path / "run", out=tmp_path / "out")
    values = np.stack(pd.read_parquet(tmp_path / "out").sort_values("id")["value"]).astype(float)
    evaluation = evaluate_run(tmp_path / "run")
    labels = of_values.labels
    assert labels is not None
    num_labels = 0
    for part in evaluation["parts"].values():
        num_labels += sum(column["labels"] for column in part["values"])
        assert part["rmse"] == pytest.approx(np.mean([column["rmse"] for column in part["values"]]))
    assert num_labels == np.count_nonzero(~np.isnan(labels))
    # A dataset without a split: the run drew one of all labelled nodes, whose parts add up to them.
    squared = sum(
        column["rmse"] ** 2 * column["labels"] for part in evaluation["parts"].values() for column in part["values"][:1]
    )
    known = ~np.isnan(labels[:, 0])
    expected = root_mean_squared_error(labels[known, 0], values[known, 0])
    assert (squared / known.sum()) ** 0.5 == pytest.approx(expected, rel=1e-5)


def test_several_labels_are_learned_and_measured(of_tasks: Dataset, tmp_path: Path) -> None:
    trained = train(of_tasks, out=tmp_path / "run", metric="ap", class_weights="balanced", **WHOLE)
    assert trained.config.task == "multilabel"
    assert trained.result["test"]["ap"] > 0.6
    predict_run(tmp_path / "run", out=tmp_path / "out")
    found = pd.read_parquet(tmp_path / "out").sort_values("id")
    assert list(found.columns) == ["id", "probabilities"]
    part = evaluate_run(tmp_path / "run")["parts"]["test"]
    assert part["average_precision"] == pytest.approx(trained.result["test"]["ap"], abs=1e-6)
    assert 0 < part["f1_macro"] <= 1
    assert len(part["tasks"]) == 2


@pytest.mark.fast(2)
@pytest.mark.parametrize("metric", ["ap", "f1_micro", "f1_macro", "accuracy", "auc"])
def test_the_best_model_is_chosen_by_the_metric(of_tasks: Dataset, tmp_path: Path, metric: str) -> None:
    result = train(of_tasks, out=tmp_path / "run", metric=metric, **{**WHOLE, "epochs": 6}).result
    validations = [epoch["valid"] for epoch in result["epochs"]]
    assert result["best_valid"] == max(validations) == validations[result["best_epoch"]]


@pytest.mark.fast(1)
@pytest.mark.parametrize("metric", ["rmse", "mae"])
def test_of_errors_the_least_is_best(of_values: Dataset, tmp_path: Path, metric: str) -> None:
    options = {**WHOLE, "epochs": 12, "lr": 0.2, "patience": 3}
    result = train(of_values, out=tmp_path / "run", metric=metric, loss="mae", **options).result
    validations = [epoch["valid"] for epoch in result["epochs"]]
    assert validations[0] > validations[result["best_epoch"]] == min(validations) == result["best_valid"]
    bound = 2 * result["test"][metric]
    predict_run(tmp_path / "run", out=tmp_path / "out", require=(f"test<={bound:.3f}",))
    with pytest.raises(RequirementError, match=rf"{metric} on test is .*'test<=0\.001' does not hold"):
        predict_run(tmp_path / "run", out=tmp_path / "other", require=("test<=.001",))
    with pytest.raises(ConfigError, match=rf"then <= and a number, since the run's metric is {metric}"):
        predict_run(tmp_path / "run", out=tmp_path / "other", require=("test>=.7",))


def test_columns_of_0_and_1_can_be_numbers(of_tasks: Dataset, tmp_path: Path) -> None:
    trained = train(of_tasks, out=tmp_path / "run", task="regression", **{**WHOLE, "epochs": 2})
    assert (trained.config.loss, trained.config.metric) == ("mse", "rmse")
    predict_run(tmp_path / "run", out=tmp_path / "out")
    assert list(pd.read_parquet(tmp_path / "out").columns) == ["id", "value"]


@pytest.mark.parametrize(
    ("labels", "options", "said"),
    [
        (
            "classes",
            {"task": "regression"},
            "labels are 3 classes, and --task regression needs columns of numbers: remove --task, or import again "
            "with --label-kind values",
        ),
        ("classes", {"task": "multilabel"}, "--task multilabel needs columns of 0 and 1"),
        ("values", {"task": "classification"}, "labels are 2 values, and --task classification needs one class"),
        ("values", {"task": "multilabel"}, "--task multilabel needs columns of 0 and 1"),
        ("tasks", {"task": "classification"}, "labels are 2 tasks, and --task classification needs one class"),
        (
            "values",
            {"task": "ranking"},
            "task must be one of classification, multilabel, regression, link, got 'ranking'",
        ),
        ("values", {"loss": "focal"}, "--loss focal is not for --task regression: use --loss mse or mae"),
        ("classes", {"loss": "mae"}, "--loss mae is not for --task classification: use --loss cross-entropy or focal"),
        ("values", {"metric": "accuracy"}, "metric accuracy does not measure --task regression"),
        ("classes", {"class_weights": "1,2"}, "--class-weights has 2 numbers, and the dataset 3 classes"),
        ("classes", {"class_weights": "1,0,1"}, "class_weights must be balanced, or numbers above 0"),
        ("values", {"class_weights": "balanced"}, "--class-weights needs --loss cross-entropy or focal, got mse"),
        ("classes", {"focal_gamma": 1.0}, "--focal-gamma needs --loss focal, got cross-entropy"),
        ("tasks", {"loss": "focal", "label_smoothing": 0.1}, "--label-smoothing needs --loss cross-entropy, got focal"),
        ("classes", {"lr_schedule": "plateau", "evaluate": False}, "--lr-schedule plateau needs validation"),
    ],
)
def test_what_does_not_fit_the_labels_is_one_line(
    request: pytest.FixtureRequest, tmp_path: Path, labels: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        train(request.getfixturevalue(f"of_{labels}"), out=tmp_path / "run", **{**OPTIONS, **options})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_run_of_values_resumes_and_warms_another_in_its_units(
    of_values: Dataset, arrays: dict[str, Any], tmp_path: Path
) -> None:
    options = {**WHOLE, "epochs": 4}
    train(of_values, out=tmp_path / "whole", **options)
    interrupt(of_values, tmp_path / "run", 2, **options)
    train(of_values, out=tmp_path / "run", resume=True, **options)
    assert_same_run(tmp_path / "whole", tmp_path / "run")
    shifted = import_arrays(tmp_path, **{**arrays, "y": numbers_of(arrays) + 10})
    train(shifted, out=tmp_path / "warm", warm_start=str(tmp_path / "run"), **options)
    first, second = (json.loads((tmp_path / name / "schema.json").read_text()) for name in ("run", "warm"))
    assert first["scaling"] == second["scaling"]
    other = import_arrays(tmp_path, "other", **arrays)
    with pytest.raises(SchemaError, match=r"3 classes, but .* was trained on 2 values"):
        evaluate_run(tmp_path / "run", other)


def test_the_command_shows_and_reports_values(
    of_values: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    assert run_command(["train", str(of_values.path), "--epochs", "1", "--out", out]) == 0
    shown = capsys.readouterr()
    assert "labels are 2 values" in shown.err
    assert run_command(["evaluate", out]) == 0
    assert "RMSE" in capsys.readouterr().out
    assert run_command(["report", out, "--out", str(tmp_path / "page.html")]) == 0
    assert "RMSE" in (tmp_path / "page.html").read_text()


def test_every_kind_of_run_has_the_options_of_learning() -> None:
    for kind in KINDS:
        assert {"task", "loss", "lr_schedule", "warmup", "clip_norm", "accumulate"} <= {*kind.__dataclass_fields__}

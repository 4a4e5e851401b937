"""Advice of runs on nodes where neighbours or labels make a graph hard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.config.train import TrainConfig
from diskhop.dataset.dataset import Dataset
from diskhop.runs.nodes.advice import LabelFacts, adjusted_homophily, advise, read_label_facts
from diskhop.runs.nodes.defaults import resolve_config
from tests.runs import import_arrays, small_graph


def advice_of(dataset: Dataset, **options: Any) -> dict[str, str]:
    choices = resolve_config(dataset, options).choices
    return {choice.value: choice.why for choice in choices if choice.option == "advice"}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    return resolve_config(small_graph(tmp_path_factory.mktemp("advice") / "graph"), {}).config


def test_adjusted_homophily_is_one_within_classes_and_nothing_by_chance() -> None:
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 3, 10_000)
    assert adjusted_homophily(classes, classes) == 1
    assert abs(adjusted_homophily(classes, rng.permutation(classes)) or 0.0) < 0.02
    # Chance is more with classes of unequal sizes.
    uneven = (rng.random(10_000) < 0.1).astype(np.int64)
    assert abs(adjusted_homophily(uneven, rng.permutation(uneven)) or 0.0) < 0.02
    assert adjusted_homophily(np.array([0, 1]), np.array([1, 0])) == -1
    assert adjusted_homophily(np.zeros(5, np.int64), np.zeros(5, np.int64)) is None


@pytest.mark.parametrize("homophily", [0.25, 0.9])
def test_a_run_on_a_heterophilous_graph_says_what_to_try(tmp_path: Path, homophily: float) -> None:
    dataset = small_graph(tmp_path / "graph", homophily=homophily)
    advice = advice_of(dataset, model="gcn")
    assert ("heterophilous" in advice) == (homophily == 0.25)
    if advice:
        assert advice["heterophilous"].endswith("try --model sage --layers 5 --residual, or --tune 10")
        assert advice_of(dataset, model="sage", layers=5)["heterophilous"].endswith(
            "neighbours often differ; try --tune 10"
        )


def test_labels_of_test_nodes_are_not_looked_at(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)
    arrays = {"x": rng.random((400, 3), np.float32), "edge_index": rng.integers(0, 400, (2, 8000))}
    parts = dict(zip(("train_idx", "val_idx", "test_idx"), np.split(np.arange(400), [100, 200]), strict=True))
    found = []
    for name, of_test in (("same", labels), ("other", 1 - labels)):
        dataset = import_arrays(tmp_path, name, y=np.where(np.arange(400) < 200, labels, of_test), **arrays, **parts)
        facts = read_label_facts(dataset, resolve_config(dataset, {}).task)
        assert facts is not None
        assert 1500 < facts.num_edges < 2500, "a quarter of the edges are between these nodes"
        found.append((facts.homophily, facts.num_train.tolist()))
    assert found[0] == found[1]


def test_classes_that_are_missing_rare_or_large_are_named(config: TrainConfig) -> None:
    facts = LabelFacts(np.array([40, 40, 40, 40]), 0.8, 1000)
    assert list(advise(facts, config)) == []
    [missing] = advise(replace(facts, num_train=np.array([50, 0, 50, 0])), config)
    assert missing.value == "classes missing"
    assert missing.why.startswith("2 of 4 classes have no training node and are never predicted: 1, 3; import")
    [rare] = advise(replace(facts, num_train=np.array([60, 4, 50, 60])), config)
    assert (
        rare.why
        == "1 of 4 classes have under 5 training nodes; if they matter: --class-weights balanced --metric f1_macro"
    )
    [large] = advise(replace(facts, num_train=np.array([20, 80])), config)
    assert large.why.startswith("class 1 has 80% of the training nodes")
    assert large.why.endswith("try --metric auc --class-weights balanced")
    assert list(advise(replace(facts, num_train=np.array([20, 80])), replace(config, metric="auc"))) == []
    assert list(advise(replace(facts, num_train=np.array([60, 4])), replace(config, class_weights="balanced"))) == []
    assert list(advise(replace(facts, homophily=None), config)) == [], "too few edges to say"


def test_a_graph_without_edges_and_values_to_predict_have_no_advice(tmp_path: Path) -> None:
    labels = np.arange(60) % 3
    alone = import_arrays(
        tmp_path, "alone", edge_index=np.empty((2, 0), np.int64), x=np.ones((60, 2), np.float32), y=labels
    )
    assert advice_of(alone) == {}
    values = import_arrays(
        tmp_path, "values", edge_index=np.array([[0], [1]]), x=np.ones((60, 2), np.float32), y=labels + 0.5
    )
    assert advice_of(values) == {}

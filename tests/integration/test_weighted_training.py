"""Models use the weights of edges: in training, validation, evaluation and prediction, from memory and from disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.nn import GCNConv

from diskhop.cli import run as run_command
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, SchemaError
from diskhop.runs.evaluate.run import evaluate_run
from diskhop.runs.nodes.opened import open_classifier
from diskhop.runs.predict.run import predict_run
from diskhop.runs.start import train
from tests.runs import OPTIONS, assert_same_run, import_arrays, interrupt, losses, random_arrays

SHORT = {**OPTIONS, "epochs": 3, "lr": 0.02}
HOPS = {name: value for name, value in SHORT.items() if name != "fanout"}


def weighted_arrays(num_nodes: int, num_edges: int, *, is_signed: bool = False) -> dict[str, Any]:
    """A node's class is that of its heavy neighbours; most edges are light, and lead anywhere."""
    generator = np.random.default_rng(4)
    labels = generator.integers(0, 3, num_nodes)
    edges = generator.integers(0, num_nodes, (2, num_edges))
    edges = edges[:, edges[0] != edges[1]]
    edges = np.concatenate([edges, np.stack([np.arange(10), np.arange(10)])], axis=1)
    is_alike = labels[edges[0]] == labels[edges[1]]
    weights = np.where(is_alike, 5.0, -5.0 if is_signed else 0.05) * generator.uniform(0.5, 1, edges.shape[1])
    features = generator.normal(size=(num_nodes, 8)).astype(np.float32)
    features[np.arange(num_nodes), labels] += 0.7
    return {"edge_index": edges, "edge_weight": weights.astype(np.float32), "x": features, "y": labels}


@pytest.fixture(scope="module")
def arrays() -> dict[str, Any]:
    return weighted_arrays(400, 4000)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, Any]) -> Dataset:
    return import_arrays(tmp_path_factory.mktemp("weighted"), **arrays)


@pytest.mark.fast("sgc")
@pytest.mark.parametrize(
    "model", ["sage", pytest.param("gcn", marks=pytest.mark.slow), pytest.param("sign", marks=pytest.mark.slow), "sgc"]
)
def test_weights_make_models_better(dataset: Dataset, tmp_path: Path, model: str) -> None:
    options = {**(SHORT if model in ("sage", "gcn") else HOPS), "epochs": 25, "model": model}
    used = train(dataset, out=tmp_path / "used", **options).result["test"]["accuracy"]
    ignored = train(dataset, out=tmp_path / "ignored", edge_weights="ignore", **options).result["test"]["accuracy"]
    assert used > ignored + 0.1


@pytest.mark.fast("sage")
@pytest.mark.parametrize("model", ["sage", "gcn"])
def test_where_weights_are_read_changes_no_bit(dataset: Dataset, tmp_path: Path, model: str) -> None:
    train(dataset, out=tmp_path / "one", model=model, store="memory", **SHORT)
    options = {**SHORT, "threads": 2, "store": "belady"}
    train(dataset, out=tmp_path / "two", model=model, **options)
    assert_same_run(tmp_path / "one", tmp_path / "two")
    reserved = json.loads((tmp_path / "two/plan.json").read_text())["plan"]["reserved"]
    assert "edge weights" in reserved
    interrupt(dataset, tmp_path / "three", 1, model=model, store="direct", **SHORT)
    train(dataset, out=tmp_path / "three", resume=True)
    assert_same_run(tmp_path / "one", tmp_path / "three")


def test_weights_on_disk_are_those_in_memory(tmp_path: Path) -> None:
    """The weights of 2 million edges exceed a quarter of the budget."""
    generator = np.random.default_rng(0)
    num_nodes, num_edges = 2000, 2_000_000
    large = import_arrays(
        tmp_path,
        edge_index=generator.integers(0, num_nodes, (2, num_edges)),
        edge_weight=generator.normal(size=num_edges).astype(np.float32),
        x=generator.normal(size=(num_nodes, 8)).astype(np.float32),
        y=np.arange(num_nodes) % 3,
    )
    options = {**SHORT, "epochs": 1, "max_batches": 4, "eval_fanout": (5, 5), "model": "gcn", "store": "direct"}
    train(large, out=tmp_path / "memory", **options)
    train(large, out=tmp_path / "disk", **{**options, "memory_bytes": 30_000_000})
    for name, kind in (("memory", "edge weights"), ("disk", "reading edge weights")):
        assert kind in json.loads((tmp_path / name / "plan.json").read_text())["plan"]["reserved"]
    assert_same_run(tmp_path / "memory", tmp_path / "disk")


@pytest.mark.fast(1)
@pytest.mark.parametrize("is_signed", [False, True])
def test_predictions_of_gcn_equal_pygs(tmp_path: Path, is_signed: bool) -> None:
    arrays = weighted_arrays(300, 2500, is_signed=is_signed)
    dataset = import_arrays(tmp_path, **arrays)
    trained = train(dataset, out=tmp_path / "run", model="gcn", self_term=False, **{**SHORT, "norm": "none"})
    predict_run(tmp_path / "run", out=tmp_path / "out", what=("logits",))
    found = np.stack(pd.read_parquet(tmp_path / "out").sort_values("id")["logits"])
    parameters = open_classifier(tmp_path / "run").parameters
    if is_signed:
        expected = dense_gcn(arrays, parameters)
    else:
        convs = [GCNConv(8, 16), GCNConv(16, 3)]
        for number, conv in enumerate(convs):
            conv.load_state_dict({key: parameters[f"convs.{number}.{key}"] for key in ("bias", "lin.weight")})
        edges, weights = torch.from_numpy(arrays["edge_index"]), torch.from_numpy(arrays["edge_weight"])
        with torch.no_grad():
            hidden = convs[0](torch.from_numpy(arrays["x"]), edges, weights).relu()
            expected = convs[1](hidden, edges, weights).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4)
    # Measured from batches with all neighbours, as validation was.
    parts = evaluate_run(tmp_path / "run")["parts"]
    assert parts["test"]["accuracy"] == pytest.approx(trained.result["test"]["accuracy"])


def dense_gcn(arrays: dict[str, Any], parameters: dict[str, torch.Tensor]) -> Any:
    num_nodes = len(arrays["x"])
    matrix, loops, degrees = np.zeros((num_nodes, num_nodes)), np.ones(num_nodes), np.zeros(num_nodes)
    for (source, target), weight in zip(arrays["edge_index"].T.tolist(), arrays["edge_weight"].tolist(), strict=True):
        if source == target:
            loops[source] = weight
        else:
            matrix[target, source] += weight
            degrees[target] += abs(weight)
    scale = 1 / np.sqrt(degrees + np.abs(loops))
    matrix = scale[:, None] * (matrix + np.diag(loops)) * scale
    hidden = arrays["x"].astype(np.float64)
    for number in (0, 1):
        weight, bias = (parameters[f"convs.{number}.{key}"].double().numpy() for key in ("lin.weight", "bias"))
        hidden = matrix @ hidden @ weight.T + bias
        hidden = np.maximum(hidden, 0) if number == 0 else hidden
    return hidden


@pytest.mark.parametrize("model", ["sage", "sgc"])
def test_evaluation_is_that_of_training(dataset: Dataset, tmp_path: Path, model: str) -> None:
    options = SHORT if model == "sage" else HOPS
    trained = train(dataset, out=tmp_path / "run", model=model, **options)
    parts = evaluate_run(tmp_path / "run")["parts"]
    assert parts["test"]["accuracy"] == pytest.approx(trained.result["test"]["accuracy"])
    assert parts["valid"]["accuracy"] == pytest.approx(trained.result["best_valid"])


def test_gat_leaves_weights_out(dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", str(dataset.path), "--model", "gat", "--epochs", "1", "--hidden", "16", "--memory", "100MB"]
    assert run_command([*command, "--out", str(tmp_path / "run")]) == 0
    assert "gat weighs edges itself" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="--edge-weights use is not for gat"):
        train(dataset, model="gat", edge_weights="use", **SHORT)


def test_weights_that_are_missing_are_one_line(dataset: Dataset, arrays: dict[str, Any], tmp_path: Path) -> None:
    plain = import_arrays(tmp_path, **{name: value for name, value in arrays.items() if name != "edge_weight"})
    with pytest.raises(ConfigError, match="has no edge weights, which --edge-weights use needs; remove it, or import"):
        train(plain, edge_weights="use", **SHORT)
    assert train(plain, **SHORT).config.edge_weights == "ignore"
    train(dataset, out=tmp_path / "run", **SHORT)
    with pytest.raises(SchemaError, match=r"has no edge weights, but .* was trained with them"):
        predict_run(tmp_path / "run", plain, out=tmp_path / "out")
    with pytest.raises(ConfigError, match="--edge-weights use needs --direction in, got out"):
        train(dataset, model="sign", direction="out", edge_weights="use", **HOPS)
    assert train(dataset, model="sign", direction="both", **HOPS).config.edge_weights == "ignore"


def test_weights_of_one_are_no_weights(tmp_path: Path) -> None:
    arrays = random_arrays()
    num_edges = arrays["edge_index"].shape[1]
    same = import_arrays(tmp_path, "same", **arrays, edge_weight=np.ones(num_edges, np.float32))
    plain = import_arrays(tmp_path, "plain", **arrays)
    for name, graph in (("same", same), ("plain", plain)):
        train(graph, out=tmp_path / f"run-{name}", **SHORT)
    found, expected = (np.array(losses(tmp_path / f"run-{name}"), float) for name in ("same", "plain"))
    np.testing.assert_allclose(found, expected, rtol=1e-4)

"""diskhop.predict(): a user's model on all nodes, as an array or as files."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn
from torch_geometric.nn import GraphSAGE, SAGEConv

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError, DestinationError, PredictionError
from tests.runs import import_arrays, random_arrays

MEMORY = "60MB"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, dict[str, Any]]:
    arrays = random_arrays(300)
    return import_arrays(tmp_path_factory.mktemp("graph"), **arrays), arrays


def model_of(seed: int = 0) -> GraphSAGE:
    torch.manual_seed(seed)
    return GraphSAGE(4, 8, 2, 3).eval()


def expected(model: nn.Module, arrays: dict[str, Any]) -> Any:
    with torch.no_grad():
        return model(torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["edge_index"])).numpy()


def test_without_out_an_array_is_returned(graph: tuple[Dataset, dict[str, Any]]) -> None:
    dataset, arrays = graph
    found = diskhop.predict(dataset, model_of(), memory=MEMORY)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected(model_of(), arrays), atol=1e-5)
    np.testing.assert_array_equal(diskhop.predict(dataset.path, model_of(), memory=MEMORY, threads=1), found)


def test_with_out_files_are_written_as_the_command_does(graph: tuple[Dataset, dict[str, Any]], tmp_path: Path) -> None:
    dataset, arrays = graph
    logits = expected(model_of(), arrays)
    done = diskhop.predict(dataset, model_of(), memory=MEMORY, out=tmp_path / "out")
    assert done.num_rows == 300
    table = pq.read_table(tmp_path / "out")
    assert table.column_names == ["id", "logits"]
    np.testing.assert_allclose(np.array(table["logits"].to_pylist()), logits, atol=1e-5)
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
    with pytest.raises(DestinationError, match="already exists"):
        diskhop.predict(dataset, model_of(), memory=MEMORY, out=tmp_path / "out")
    diskhop.predict(
        dataset,
        model_of(),
        memory=MEMORY,
        out=tmp_path / "out",
        overwrite=True,
        what=("class", "embedding"),
        format="npy",
    )
    np.testing.assert_array_equal(np.load(tmp_path / "out/class.npy"), logits.argmax(axis=1))
    np.testing.assert_allclose(np.load(tmp_path / "out/embedding.npy"), logits, atol=1e-5)


def test_sampled_neighbours_repeat_by_the_seed(graph: tuple[Dataset, dict[str, Any]]) -> None:
    dataset, _ = graph
    first = diskhop.predict(dataset, model_of(), memory=MEMORY, fanout=1, seed=3)
    np.testing.assert_array_equal(diskhop.predict(dataset, model_of(), memory=MEMORY, fanout=[1, 1], seed=3), first)
    assert (diskhop.predict(dataset, model_of(), memory=MEMORY, fanout=1, seed=4) != first).any()


def test_another_model_does_not_reuse_the_rows_of_a_failed_one(
    graph: tuple[Dataset, dict[str, Any]], tmp_path: Path
) -> None:
    dataset, arrays = graph
    bad = model_of()
    with torch.no_grad():
        bad.convs[1].lin_l.weight.fill_(torch.nan)
    with pytest.raises(PredictionError, match="layer 2"):
        diskhop.predict(dataset, bad, memory=MEMORY, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    diskhop.predict(dataset, model_of(1), memory=MEMORY, out=tmp_path / "out", format="npy")
    np.testing.assert_allclose(np.load(tmp_path / "out/logits.npy"), expected(model_of(1), arrays), atol=1e-5)


def test_bad_arguments_are_refused_before_any_work(graph: tuple[Dataset, dict[str, Any]], tmp_path: Path) -> None:
    dataset, _ = graph
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match="layers must be a list of modules"):
        diskhop.predict(dataset, nn.Linear(4, 3), memory=MEMORY)
    with pytest.raises(ConfigError, match="'clas' is unknown"):
        diskhop.predict(dataset, model_of(), memory=MEMORY, out=out, what=["clas"])
    with pytest.raises(ConfigError, match="'csv' is unknown"):
        diskhop.predict(dataset, model_of(), memory=MEMORY, out=out, format="csv")
    with pytest.raises(ConfigError, match="fanout must be 'all'"):
        diskhop.predict(dataset, model_of(), memory=MEMORY, fanout=[1, 2, 3])
    with pytest.raises(BudgetError, match="the smallest that works is --memory"):
        diskhop.predict(dataset, [SAGEConv(4, 3)], memory="1MB", out=out)
    assert list(tmp_path.iterdir()) == []


def test_the_function_is_there_after_its_package_was_imported() -> None:
    """A package of the function's name would take its place in `diskhop`."""
    import_module("diskhop.predicting.output")
    assert callable(diskhop.predict)
    import_module("diskhop.reporting.page")
    assert callable(diskhop.report)

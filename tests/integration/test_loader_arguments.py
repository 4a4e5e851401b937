"""Arguments of loaders: any value of any type works, or is refused in one line when the loader is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, DiskhopError
from diskhop.protocols import SamplerSpec
from tests.hop_tables import write_hop_tables
from tests.runs import small_graph

NODES = 40
VALUES: dict[str, Any] = {
    "None": None,
    "True": True,
    "-1": -1,
    "2.5": 2.5,
    "nan": float("nan"),
    "2**70": 2**70,
    "text": "5",
    "bytes": b"5",
    "[]": [],
    "[1.5]": [1.5],
    "[None]": [None],
    "{}": {},
    "object": object(),
    "array": np.array(3),
    "uint8": np.zeros(NODES, np.uint8),
    "tensor": torch.tensor([1.5]),
    "Data": Data(edge_index=torch.zeros(2, 0, dtype=torch.long)),
    "ragged": [[1], [1, 2]],
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "g", num_nodes=NODES, num_edges=200, dim=4)


@pytest.fixture(scope="module")
def make_hops(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    tables = write_hop_tables(tmp_path_factory.mktemp("tables") / "t", [np.zeros((NODES, 4), np.float32)] * 2)
    return lambda **given: diskhop.HopLoader(**{"tables": tables, "memory": "50MB", "place": "memory", **given})


def works_or_one_line(make: Callable[[], Any]) -> None:
    line = ""
    try:
        make().close()
    except DiskhopError as error:
        line = str(error)
    assert "\n" not in line
    assert len(line) < 500


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_any_value_works_or_is_refused_in_one_line(dataset: Dataset, make_hops: Callable[..., Any], value: Any) -> None:
    usual = {"data": dataset, "num_neighbors": [2], "input_nodes": [0, 1], "memory": "50MB", "store": "direct"}
    names = [name for name in inspect.signature(diskhop.NeighborLoader).parameters if name != "pyg_arguments"]
    for name in (*names, "num_workers", "replace"):
        works_or_one_line(lambda name=name: diskhop.NeighborLoader(**{**usual, name: value}))  # type: ignore[misc]
    for name in inspect.signature(diskhop.HopLoader).parameters:
        if name != "node_rows":
            works_or_one_line(lambda name=name: make_hops(**{name: value}))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": VALUES["Data"]}, "got a Data in memory; import it with dataset = diskhop.from_pyg"),
        ({"data": 5}, "the dataset must be a Dataset or the path of its folder"),
        ({"num_neighbors": [2.7]}, "num_neighbors must be a list of whole numbers"),
        ({"num_neighbors": SamplerSpec("neighbor", (2.7,))}, "num_neighbors must be a list of whole numbers"),  # type: ignore[arg-type]
        ({"batch_size": None}, "batch_size must be a whole number"),
        ({"seed": None}, "seed must be a whole number"),
        ({"shuffle": "yes"}, "shuffle must be True or False"),
        ({"transform": 3}, "transform must be a function"),
        ({"out_dtype": "float32"}, "out_dtype must be a dtype of torch"),
        ({"memory": 2.5}, "memory must be bytes or a size as text"),
        ({"input_nodes": [NODES - 1, NODES]}, f"has id {NODES}"),
        ({"input_nodes": [-3]}, "has id -3"),
        ({"input_nodes": [1, 1]}, "id 1 is there twice"),
        ({"input_nodes": torch.zeros(NODES, dtype=torch.bool)}, "the mask has none"),
        ({"input_nodes": "train", "split": 3}, "has no split 3"),
        ({"input_nodes": [0], "split": 0}, "split must be left out"),
    ],
)
def test_what_cannot_be_is_named(dataset: Dataset, changes: dict[str, Any], words: str) -> None:
    arguments = {"data": dataset, "num_neighbors": [2], "memory": "50MB", **changes}
    with pytest.raises(ConfigError, match=words):
        diskhop.NeighborLoader(**arguments)


def test_a_tuple_of_ids_is_ids(dataset: Dataset) -> None:
    with diskhop.NeighborLoader(dataset, [2], (3, 1), batch_size=2, memory="50MB") as loader:  # type: ignore[arg-type]
        assert next(iter(loader)).n_id[:2].tolist() == [3, 1]


@pytest.mark.parametrize("use", ["open_dataset", "train", "plan_run", "propagate", "embed"])
def test_a_graph_in_memory_in_place_of_a_dataset_leads_to_from_pyg(tmp_path: Path, use: str) -> None:
    more: tuple[Any, ...] = (diskhop.PropagationSpec(hops=1),) if use == "propagate" else ()
    options = {"out": tmp_path / "run"} if use == "embed" else {}
    with pytest.raises(ConfigError, match="from_pyg"):
        getattr(diskhop, use)(VALUES["Data"], *more, **options)

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
from torch_geometric.loader import NeighborLoader
from torch_geometric.sampler import NumNeighbors
from torch_geometric.sampler.base import SubgraphType

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
    names = [name for name in inspect.signature(diskhop.NeighborLoader).parameters if name != "loader_arguments"]
    more = ("num_workers", "sampler", "generator", "prefetch_factor", "pin_memory", "in_order", "timeout")
    for name in (*names, *more):
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
        ({"input_nodes": [0, 1] * (NODES // 2)}, "zeros and ones, one for each node, which may be a mask or ids"),
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
    with diskhop.NeighborLoader(dataset, [2], (3, 1), batch_size=2, memory="50MB") as loader:
        assert next(iter(loader)).n_id[:2].tolist() == [3, 1]


@pytest.mark.parametrize("use", ["open_dataset", "train", "plan", "propagate", "embed"])
def test_a_graph_in_memory_in_place_of_a_dataset_leads_to_from_pyg(tmp_path: Path, use: str) -> None:
    more: tuple[Any, ...] = (diskhop.PropagationSpec(hops=1),) if use == "propagate" else ()
    options = {"out": tmp_path / "run"} if use == "embed" else {}
    with pytest.raises(ConfigError, match="from_pyg"):
        getattr(diskhop, use)(VALUES["Data"], *more, **options)


def first_of(loader: diskhop.NeighborLoader) -> Data:
    with loader:
        return next(iter(loader))


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 4, "multiprocessing_context": "fork"},
        {"filter_per_worker": True, "is_sorted": True},
        {"filter_per_worker": False},
        {"pin_memory": True, "pin_memory_device": "", "in_order": True, "shuffle": None},
        {"subgraph_type": SubgraphType.directional, "directed": True, "temporal_strategy": "uniform"},
        {"collate_fn": list, "dataset": range(3), "drop_last": False, "worker_init_fn": None, "timeout": 0},
        {"num_neighbors": NumNeighbors([2])},
    ],
    ids=lambda given: "-".join(given),
)
def test_what_sets_up_workers_changes_no_batch(dataset: Dataset, arguments: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"data": dataset, "num_neighbors": [2], "batch_size": 8, "memory": "50MB"}
    expected, found = (first_of(diskhop.NeighborLoader(**{**usual, **more})) for more in ({}, arguments))
    assert {*expected.keys()} == {*found.keys()}
    for name in ("x", "n_id", "edge_index", "input_id"):
        assert torch.equal(expected[name], found[name])


def test_arguments_stand_in_pygs_order(dataset: Dataset) -> None:
    theirs = [*inspect.signature(NeighborLoader).parameters]
    ours = [*inspect.signature(diskhop.NeighborLoader).parameters]
    assert ours[: len(theirs) - 1] == theirs[:-1]
    made = diskhop.NeighborLoader(dataset, [2], [3], None, False, "directional", False, "uniform", None, None, len)
    with made as loader:
        assert next(iter(loader)) > 5


def test_a_sampler_orders_the_seeds(dataset: Dataset) -> None:
    nodes = torch.arange(10, 20)
    orders = [[9, 0, 0, 3, 3], [1, 2, 3, 4, 5]]

    class Orders(torch.utils.data.Sampler[int]):
        def __iter__(self) -> Any:
            return iter(orders[self.number % 2])

        def __len__(self) -> int:
            return 5

        number = 0

    sampler = Orders()
    with diskhop.NeighborLoader(dataset, [2], nodes, batch_size=2, memory="50MB", sampler=sampler) as loader:
        assert (len(loader), len(loader.dataset)) == (3, 10)
        for number, order in enumerate(orders):
            sampler.number = number
            batches = list(loader)
            assert [batch.batch_size for batch in batches] == [2, 2, 1]
            assert torch.cat([batch.input_id for batch in batches]).tolist() == order
            seeds = torch.cat([batch.n_id[: batch.batch_size] for batch in batches])
            assert torch.equal(seeds, nodes[torch.tensor(order)])
        with pytest.raises(ConfigError, match="has no state, because the order is not its own"):
            loader.state_dict()
        # Passes at once keep their orders.
        sampler.number = 0
        first = iter(loader)
        next(first)
        sampler.number = 1
        assert torch.cat([batch.input_id for batch in loader]).tolist() == orders[1]
        assert torch.cat([batch.input_id for batch in first]).tolist() == orders[0][2:]


def test_a_generator_draws_the_seed(dataset: Dataset) -> None:
    def order(generator: torch.Generator) -> list[int]:
        with diskhop.NeighborLoader(
            dataset, [2], batch_size=NODES, shuffle=True, memory="50MB", generator=generator
        ) as loader:
            ids: list[int] = next(iter(loader)).input_id.tolist()
            return ids

    generator = torch.Generator().manual_seed(3)
    first, second = order(generator), order(generator)
    assert first != second
    assert order(torch.Generator().manual_seed(3)) == first


def test_input_ids_may_be_given(dataset: Dataset) -> None:
    loader = diskhop.NeighborLoader(dataset, [2], [5, 3], batch_size=2, memory="50MB", input_id=torch.tensor([70, 80]))
    assert first_of(loader).input_id.tolist() == [70, 80]

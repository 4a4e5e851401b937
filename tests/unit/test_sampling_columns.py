"""Claims about the weights and times that samplers draw by: which names find them, and which numbers they may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from diskhop import from_pyg
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError
from diskhop.sampling.columns import (
    SCAN_BYTES,
    TIMES,
    WEIGHTS,
    ColumnUse,
    check_weights,
    columns_bytes,
    find_column,
    open_columns,
)
from diskhop.sampling.neighbor_ways import NeighborWays
from diskhop.sampling.samplers import find_columns
from diskhop.system.memory import buffer_bytes
from tests.graphs import threads_engine

EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 0, 1, 2, 3]])


def dataset(folder: Path, **attributes: Any) -> Dataset:
    return from_pyg(Data(num_nodes=4, edge_index=EDGES, **attributes), folder / "graph")


def numbers(given: Dataset, use: str, name: str) -> list[float]:
    file = find_column(given, ColumnUse(use, name))
    assert file.num_bytes == file.path.stat().st_size
    return np.fromfile(file.path, file.dtype).tolist()  # type: ignore[no-any-return]


def test_attributes_are_found_by_the_names_of_the_source(tmp_path: Path) -> None:
    given = dataset(
        tmp_path,
        edge_weight=torch.tensor([0.5, 1, 2, 3, 4]),
        edge_time=torch.arange(5) + 10,
        probability=torch.tensor([1, 2, 3, 4, 5], dtype=torch.uint8),
        seen=torch.tensor([4, 3, 2, 1], dtype=torch.int16),
    )
    # In the order of the lists: by target, then source.
    assert numbers(given, WEIGHTS, "edge_weight") == numbers(given, WEIGHTS, "weights") == [1, 0.5, 2, 3, 4]
    assert numbers(given, TIMES, "edge_time") == numbers(given, TIMES, "times") == [11, 10, 12, 13, 14]
    assert numbers(given, WEIGHTS, "probability") == [2, 1, 3, 4, 5]
    assert numbers(given, TIMES, "seen") == [4, 3, 2, 1]
    assert find_column(given, ColumnUse(TIMES, "seen")).of == "nodes"
    assert find_column(given, ColumnUse(TIMES, "seen")).label == "node times"


@pytest.mark.parametrize(
    ("attributes", "use", "name", "message"),
    [
        (
            {},
            WEIGHTS,
            "edge_weight",
            "has no weights to sample by, and 'edge_weight' is wanted; import .* --weight COLUMN",
        ),
        ({}, TIMES, "time", "has no times to sample by, and 'time' is wanted; import the graph with --time"),
        ({"seen": torch.arange(4)}, WEIGHTS, "seen", "has no weights to sample by, and 'seen' is wanted"),
        ({"seen": torch.arange(4)}, TIMES, "sen", "has no times 'sen' of one number each; it has 'seen' of nodes"),
        (
            {"edge_pair": torch.ones(5, 2)},
            WEIGHTS,
            "edge_pair",
            "has no weights to sample by, and 'edge_pair' is wanted",
        ),
        ({"seen": torch.rand(4)}, TIMES, "seen", "times must be whole numbers of up to 8 bytes, 'seen' is float32"),
        (
            {"edge_half": torch.ones(5).half()},
            WEIGHTS,
            "edge_half",
            "weights must be numbers .* 'edge_half' is float16",
        ),
    ],
)
def test_what_cannot_be_drawn_by_is_refused(
    tmp_path: Path, attributes: dict[str, Any], use: str, name: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        find_column(dataset(tmp_path, **attributes), ColumnUse(use, name))


def test_a_graph_of_several_types_is_refused(tmp_path: Path) -> None:
    graph = HeteroData()
    graph["a"].num_nodes = graph["b"].num_nodes = 4
    graph["a", "to", "b"].edge_index = EDGES
    with pytest.raises(ConfigError, match="only graphs of"):
        find_column(from_pyg(graph, tmp_path / "graph"), ColumnUse(TIMES, "time"))


def test_samplers_of_one_run_use_one_column_each(tmp_path: Path) -> None:
    given = dataset(tmp_path, edge_weight=torch.ones(5), probability=torch.ones(5))
    specs = [NeighborWays(weights=name).spec((2,)) for name in ("edge_weight", "probability")]
    assert [file.name for file in find_columns(given, [specs[0], specs[0], NeighborWays().spec((3,))])] == [
        "edge_weight"
    ]
    with pytest.raises(ConfigError, match="draw by weights 'edge_weight' and 'probability'; use one"):
        find_columns(given, specs)


def test_bad_weights_are_named_by_the_sources_edge(tmp_path: Path) -> None:
    given = dataset(tmp_path, edge_weight=torch.tensor([1, 1, -2.5, 1, 1]))
    files = find_columns(given, [NeighborWays(weights="edge_weight").spec((2,))])
    budget = Budget(1 << 30)
    with pytest.raises(ConfigError, match=r"must be at least 0 and finite to sample by, got -2.5 at edge 2; sample"):
        check_weights(files, threads_engine(), budget)
    assert budget.available_bytes == budget.total_bytes


def test_their_memory_is_reserved_by_name(tmp_path: Path) -> None:
    given = dataset(tmp_path, edge_weight=torch.ones(5), time=torch.arange(4))
    files = find_columns(given, [NeighborWays(weights="edge_weight", times="time").spec((2,))])
    expected = {
        "memory": {"edge weights": buffer_bytes(20), "node times": buffer_bytes(32)},
        "mapped": {},
        "cached": {"edge weights": buffer_bytes(SCAN_BYTES), "node times": buffer_bytes(32)},
    }
    for mode, wanted in expected.items():
        assert columns_bytes(files, mode) == wanted  # type: ignore[arg-type]
        budget = Budget(sum(wanted.values()) or 1)
        with open_columns(files, mode, threads_engine(), budget) as columns:  # type: ignore[arg-type]
            assert {*columns} == {WEIGHTS, TIMES}
            assert {name: num_bytes for name, num_bytes in budget.table().items() if num_bytes} == wanted
        if wanted:
            with (
                pytest.raises(BudgetError, match=r"edge weights|node times"),
                open_columns(files, mode, threads_engine(), Budget(sum(wanted.values()) - 1)),  # type: ignore[arg-type]
            ):
                pass

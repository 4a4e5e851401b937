"""Runs say which parts of a dataset they leave out, and refuse graphs that they cannot use at all."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

import diskhop
from diskhop.cli import run
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.runs.data_use import ignored_parts
from tests.runs import import_arrays, random_arrays


@pytest.fixture(scope="module")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    arrays = random_arrays()
    num_edges = arrays["edge_index"].shape[1]
    extra: dict[str, Any] = {"edge_weight": np.ones(num_edges, np.float32), "edge_time": np.arange(num_edges)}
    return import_arrays(tmp_path_factory.mktemp("weighted"), **arrays, **extra)


@pytest.mark.parametrize(
    ("command", "kind", "parts"),
    [
        ("train --model sage --epochs 1 --out RUN", "node", ["edge times"]),
        ("train --model sgc --hops 1 --epochs 1 --out RUN", "hop", ["edge times"]),
        ("propagate --hops 1", "hop", ["edge times"]),
        ("plan --model sage", "node", ["edge times"]),
        ("embed --dim 4 --epochs 1 --out RUN", "embedding", ["edge weights", "edge times", "node features"]),
    ],
)
def test_parts_that_are_left_out_have_a_line_each(
    weighted: Dataset, tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str, kind: str, parts: list[str]
) -> None:
    assert [each.option for each in ignored_parts(weighted, kind)] == parts
    name, *options = command.replace("RUN", str(tmp_path / "run")).split()
    assert run([name, str(weighted.path), *options, "--memory", "100MB"]) == 0
    shown = "".join(capfd.readouterr())
    for part in parts:
        assert re.search(rf"^{part} +ignored", shown, re.MULTILINE), shown


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("train --model sage --epochs 1 --out RUN", r"edge-weights +use +the graph has some, and neighbours are drawn"),
        ("train --model sgc --hops 1 --epochs 1 --out RUN", r"edge-weights +use +the graph has some"),
        ("train --model gat --hidden 8 --epochs 1 --out RUN", r"edge-weights +ignore +gat weighs edges itself"),
        ("propagate --hops 1", "edge weights +use: the graph has some"),
        ("propagate --hops 1 --direction out", "edge weights +ignore: they are those of --direction in"),
        ("plan --model sage", "edge weights +use: the graph has some"),
        ("plan --model sage --edge-weights ignore", "edge weights +ignore: requested"),
    ],
)
def test_the_use_of_weights_has_a_line(
    weighted: Dataset, tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str, shown: str
) -> None:
    name, *options = command.replace("RUN", str(tmp_path / "run")).split()
    assert run([name, str(weighted.path), *options, "--memory", "100MB"]) == 0
    output = "".join(capfd.readouterr())
    assert re.search(rf"^{shown}", output, re.MULTILINE), output


def test_a_graph_without_such_parts_has_no_such_lines(tmp_path: Path) -> None:
    dataset = import_arrays(tmp_path, **random_arrays())
    assert ignored_parts(dataset, "node") == ignored_parts(dataset, "hop") == []
    assert [each.option for each in ignored_parts(dataset, "embedding")] == ["node features"]


def test_of_edges_and_triples_one_is_left_out(tmp_path: Path) -> None:
    triples = np.array([[0, 0, 1], [1, 1, 2]])
    dataset = import_arrays(tmp_path, **random_arrays(), triples=triples)
    assert [each.option for each in ignored_parts(dataset, "node")] == ["triples"]
    assert [each.option for each in ignored_parts(dataset, "embedding")] == ["node features", "edges"]


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    data = HeteroData()
    data["paper"].x = torch.ones(12, 2)
    data["paper"].y = torch.arange(12) % 2
    data["author"].x = torch.ones(3, 2)
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 2], [4, 5, 6]])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    return diskhop.from_pyg(data, tmp_path_factory.mktemp("typed") / "graph", memory="100MB")


@pytest.mark.parametrize(
    "use",
    [
        lambda dataset: diskhop.propagate(dataset, diskhop.PropagationSpec(hops=1), memory="100MB"),
        lambda dataset: diskhop.embed(dataset, out=dataset.path.with_name("run"), memory="100MB"),
        lambda dataset: diskhop.train(dataset, task="link", memory="100MB"),
    ],
)
def test_a_graph_of_several_types_is_refused_as_such(typed: Dataset, use: Callable[[Dataset], object]) -> None:
    with pytest.raises(
        ConfigError, match=r"2 (node|edge) types, .*(import one type alone|learns one: add --target)|has node types"
    ):
        use(typed)

"""Claims about HGTLoader: nodes by type and hop, all edges among them, and the same batches from every store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import HeteroData

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from tests.mini_batches import assert_same_batches
from tests.typed_graphs import neighborhood, typed_dataset


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> tuple[HeteroData, Dataset]:
    return typed_dataset(tmp_path_factory.mktemp("hgt") / "graph")


def load(dataset: Dataset | Path, num_samples: Any, **arguments: Any) -> list[HeteroData]:
    given: dict[str, Any] = {"input_nodes": ("paper", "train"), "batch_size": 20, "memory": "60MB"}
    with diskhop.HGTLoader(dataset, num_samples, **{**given, **arguments}) as loader:
        return list(loader)


def test_batches_have_the_wanted_nodes_and_all_edges_among_them(graph: tuple[HeteroData, Dataset]) -> None:
    data, dataset = graph
    wanted = {"author": [4, 3], "paper": [0, 5], "venue": [1, 1]}
    batches = load(dataset, wanted)
    assert len(batches) == 3
    for batch in batches:
        num_seeds = batch["paper"].batch_size
        assert bool(data["paper"].train_mask[batch["paper"].n_id[:num_seeds]].all())
        for name, counts in wanted.items():
            n_id = batch[name].n_id
            assert len(n_id.unique()) == len(n_id) <= sum(counts) + (num_seeds if name == "paper" else 0)
            if "x" in data[name]:
                torch.testing.assert_close(batch[name].x, data[name].x[n_id], rtol=0, atol=0)
        assert len(batch["author"].n_id) == 7
        for ends in data.edge_types:
            among = [torch.isin(data[ends].edge_index[end], batch[ends[2 * end]].n_id) for end in (0, 1)]
            assert torch.equal(batch[ends].e_id.sort().values, (among[0] & among[1]).nonzero().flatten())


def test_all_nodes_are_those_within_the_hops(graph: tuple[HeteroData, Dataset]) -> None:
    data, dataset = graph
    (batch,) = load(dataset, [-1, -1], input_nodes=("paper", torch.tensor([3, 8])))
    expected = neighborhood(data, "paper", [3, 8], 2)
    for name in data.node_types:
        assert set(batch[name].n_id.tolist()) == expected.nodes[name]


def test_stores_and_types_alike_change_nothing(graph: tuple[HeteroData, Dataset]) -> None:
    _, dataset = graph
    expected = load(dataset, [3, 2], store="memory", shuffle=True)
    assert_same_batches(load(dataset, {name: [3, 2] for name in dataset.nodes}, store="direct", shuffle=True), expected)
    assert_same_batches(load(dataset.path, [3, 2], store="static", cache="1MB", shuffle=True, memory="80MB"), expected)


@pytest.mark.parametrize(
    ("num_samples", "message"),
    [
        ({"author": [2]}, "num_samples lacks 'paper', and the node types are author, paper, venue; give each"),
        ({"author": [2], "paper": [2], "venue": [2], "shop": [2]}, "num_samples has 'shop', and the node types are"),
        ({"author": [2], "paper": [2, 1], "venue": [2]}, "'author' has 1 counts, and the sampler 2 hops"),
        (5, "num_samples must be nodes per hop, or a dict of them"),
        ([2.5], "num_samples must be a list of whole numbers"),
    ],
)
def test_bad_numbers_are_refused(graph: tuple[HeteroData, Dataset], num_samples: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(graph[1], num_samples)

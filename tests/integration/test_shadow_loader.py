"""Claims about ShaDowKHopSampler: PyG's subgraph per seed node, the same from every store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GraphSAGE, global_mean_pool
from torch_geometric.utils import subgraph

from diskhop import ShaDowKHopSampler, from_pyg
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError

NUM_NODES = 200


def graph() -> Data:
    generator = torch.Generator().manual_seed(1)
    return Data(
        x=torch.rand(NUM_NODES, 8, generator=generator),
        y=torch.arange(NUM_NODES) % 3,
        edge_index=torch.randint(0, NUM_NODES, (2, 900), generator=generator),
        edge_weight=torch.rand(900, generator=generator),
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return from_pyg(graph(), tmp_path_factory.mktemp("graphs") / "graph", order="hot")


def test_the_graphs_of_pygs_own_test(tmp_path: Path) -> None:
    row = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 4, 5, 5])
    col = torch.tensor([1, 2, 3, 0, 2, 0, 1, 4, 5, 0, 2, 5, 2, 4])
    data = Data(
        edge_index=torch.stack([row, col]), edge_weight=torch.arange(14), x=torch.randn(6, 16), y=torch.arange(6)
    )
    train_mask = torch.tensor([1, 1, 0, 0, 0, 0], dtype=torch.bool)
    dataset = from_pyg(data, tmp_path / "graph")
    with ShaDowKHopSampler(
        dataset, depth=1, num_neighbors=3, node_idx=train_mask, batch_size=2, memory="50MB"
    ) as loader:
        assert len(loader) == 1
        batch = next(iter(loader))
    assert batch.num_graphs == len(batch) == 2
    assert batch.batch.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert batch.ptr.tolist() == [0, 4, 7]
    assert batch.root_n_id.tolist() == [0, 5]
    assert torch.equal(batch.x, data.x[[0, 1, 2, 3, 0, 1, 2]])
    assert torch.equal(batch.y, data.y[train_mask])
    edges = list(zip(*batch.edge_index.tolist(), batch.edge_weight.tolist(), strict=True))
    assert [edge[0] for edge in edges] == [0, 0, 0, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6, 6]
    assert [edge[1] for edge in edges] == [1, 2, 3, 0, 2, 0, 1, 0, 5, 6, 4, 6, 4, 5]
    assert [edge[2] for edge in edges] == [0, 1, 2, 3, 4, 5, 6, 9, 0, 1, 3, 4, 5, 6]


@pytest.mark.parametrize("arguments", [{}, {"replace": True}, {"weight_attr": "edge_weight"}], ids=str)
def test_every_seed_has_the_induced_graph_of_its_sample(dataset: Dataset, arguments: dict[str, Any]) -> None:
    given, batches = graph(), {}
    for store in ("memory", "direct", "belady"):
        with ShaDowKHopSampler(
            dataset, 2, 3, batch_size=30, shuffle=True, store=store, memory="50MB", **arguments
        ) as loader:
            batches[store] = [*loader]
    for batch, direct, belady in zip(*batches.values(), strict=True):
        assert isinstance(batch, Batch)
        for other in (direct, belady):
            assert torch.equal(batch.n_id, other.n_id)
            assert torch.equal(batch.x, other.x)
            assert torch.equal(batch.edge_index, other.edge_index)
        assert torch.equal(batch.x, given.x[batch.n_id])
        assert torch.equal(batch.n_id[batch.root_n_id], batch.input_id)
        assert torch.equal(batch.y, given.y[batch.input_id])
        assert torch.equal(batch.batch[batch.root_n_id], torch.arange(len(batch.ptr) - 1))
        for number in range(len(batch)):
            nodes = batch.n_id[batch.ptr[number] : batch.ptr[number + 1]]
            assert torch.equal(nodes, nodes.unique())
            wanted, _ = subgraph(nodes, given.edge_index)
            own = batch.edge_index[:, batch.batch[batch.edge_index[1]] == number]
            assert sorted(batch.n_id[own].T.tolist()) == sorted(wanted.T.tolist())
        assert torch.equal(batch.edge_weight, given.edge_weight[batch.e_id])


def test_a_script_of_pygs_shape_learns(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = graph()
    data.x = torch.nn.functional.one_hot(data.y, 8).float()
    model = GraphSAGE(8, 16, num_layers=3)
    head = torch.nn.Linear(32, 3)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=0.02)
    kwargs: dict[str, Any] = {"batch_size": 50, "num_workers": 6, "persistent_workers": True, "memory": "50MB"}
    with ShaDowKHopSampler(from_pyg(data, tmp_path / "graph"), 2, 5, shuffle=True, **kwargs) as loader:
        for _ in range(15):
            for batch in loader:
                optimizer.zero_grad()
                h = model(batch.x, batch.edge_index)
                out = head(torch.cat([h[batch.root_n_id], global_mean_pool(h, batch.batch)], dim=-1))
                torch.nn.functional.cross_entropy(out, batch.y).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    assert float((out.argmax(-1) == batch.y).float().mean()) > 0.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 0}, "depth must be from 1 to 100, got 0"),
        ({"depth": 1.5}, r"depth must be from 1 to 100, got 1\.5"),
        ({"num_neighbors": 0}, "num_neighbors must be counts from 1"),
        ({"disjoint": True}, "ShaDowKHopSampler has no argument 'disjoint'"),
        ({"node_idx": [NUM_NODES]}, "has id 200"),
        ({"colour": 1}, "ShaDowKHopSampler has no argument 'colour'"),
    ],
)
def test_bad_arguments_are_refused(dataset: Dataset, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ShaDowKHopSampler(dataset, **{"depth": 2, "num_neighbors": 3, "memory": "50MB", **arguments})

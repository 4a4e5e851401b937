"""Batches have every attribute of the graph by its name, dtype and shape, as PyG's loaders serve it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NodeLoader

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError

NODES, EDGES = 300, 2400
OF_LOADERS = {"n_id", "e_id", "input_id", "batch_size", "num_sampled_nodes", "num_sampled_edges", "block"}


def graph(**changes: Any) -> Data:
    generator = torch.Generator().manual_seed(0)
    masks = torch.rand(NODES, 2, generator=generator) < 0.5
    values = {
        "x": torch.randn(NODES, 5, generator=generator),
        "y": torch.arange(NODES)[:, None] % 7,
        "train_mask": masks,
        "val_mask": ~masks,
        "pos": torch.randn(NODES, 2, 3, generator=generator, dtype=torch.float64),
        "time": torch.arange(NODES, dtype=torch.int32),
        "half": torch.randn(NODES, generator=generator).to(torch.bfloat16),
        "edge_index": torch.randint(0, NODES, (2, EDGES), generator=generator),
        "edge_attr": torch.randn(EDGES, 3, generator=generator),
        "edge_weight": torch.rand(EDGES, 1, generator=generator),
        "edge_time": torch.arange(EDGES),
        "kind": torch.arange(EDGES).to(torch.uint8),
        **changes,
    }
    return Data(**{key: value for key, value in values.items() if value is not None})


def check(batch: Data, data: Data) -> None:
    """Compare a batch with what PyG's filter_data gives for the same nodes and edges."""
    for name in data.node_attrs():
        assert batch[name].dtype == data[name].dtype
        assert torch.equal(batch[name], data[name][batch.n_id])
    for name in data.edge_attrs():
        if name != "edge_index":
            assert batch[name].dtype == data[name].dtype
            assert torch.equal(batch[name], data[name][batch.e_id])
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    assert {*batch.keys()} - OF_LOADERS - {"num_nodes"} == {*data.keys()}


@pytest.fixture(scope="module", params=[None, "hot"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Data, Dataset]:
    data = graph()
    return data, diskhop.from_pyg(data, tmp_path_factory.mktemp("graphs") / "graph", order=request.param)


@pytest.mark.parametrize("store", ["direct", "memory", "belady", "shared"])
def test_a_batch_has_every_attribute_of_its_nodes_and_edges(pair: tuple[Data, Dataset], store: str) -> None:
    data, dataset = pair
    with diskhop.NeighborLoader(dataset, [4, 3], batch_size=40, shuffle=True, memory="100MB", store=store) as loader:
        for batch in loader:
            assert isinstance(batch, Data)
            check(batch, data)
        check(loader([5, 3]), data)


@pytest.mark.parametrize(
    "x",
    [
        torch.arange(NODES),
        torch.randn(NODES),
        torch.arange(NODES)[:, None] * 3,
        torch.arange(NODES)[:, None] % 2 == 0,
        torch.randn(NODES, 3, dtype=torch.float64),
        torch.randn(NODES, 3).half(),
        torch.randn(NODES, 3).to(torch.bfloat16),
        torch.randn(NODES, 2, 4),
        None,
    ],
    ids=lambda x: "none" if x is None else f"{x.dtype}, {tuple(x.shape)}",
)
def test_x_of_any_dtype_and_shape(tmp_path: Path, x: torch.Tensor | None) -> None:
    data = graph(x=x, y=None, num_nodes=NODES)
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    del data.num_nodes
    with diskhop.NeighborLoader(dataset, [4, 3], batch_size=100, memory="100MB") as loader:
        assert ("cached rows" in loader.plan.reserved) <= (x is not None)
        for batch in loader:
            check(batch, data)


def test_attributes_that_do_not_fit_are_read_from_the_disk(tmp_path: Path) -> None:
    data = graph(pos=torch.randn(NODES, 10_000), edge_attr=torch.randn(EDGES, 2000))
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    with diskhop.NeighborLoader(dataset, [2, 2], batch_size=10, input_nodes=range(40), memory="90MB") as loader:
        held = loader.budget.table()
        assert 0 < held["attributes"] < 25_000_000
        assert held["reading attributes"] > 0
        for batch in loader:
            check(batch, data)
    with diskhop.NeighborLoader(dataset, [2, 2], batch_size=10, input_nodes=range(40), memory="400MB") as loader:
        assert loader.budget.table()["attributes"] > EDGES * 8000
        assert "reading attributes" not in loader.budget.table()


def test_batches_in_flight_are_reserved_with_their_attributes(tmp_path: Path) -> None:
    reserved = []
    for number, pos in enumerate((None, torch.zeros(NODES, 5000))):
        dataset = diskhop.from_pyg(graph(pos=pos), tmp_path / str(number))
        with diskhop.NeighborLoader(dataset, [2, 2], batch_size=10, memory="200MB", store="direct") as loader:
            reserved.append(loader.plan.batch_bytes)
    assert reserved[1] > reserved[0] + 10 * 5000 * 4


def test_a_graph_of_one_type_is_served_as_heterodata(tmp_path: Path) -> None:
    plain = graph()
    data = HeteroData()
    for name in plain.node_attrs():
        data["paper"][name] = plain[name]
    for name in plain.edge_attrs():
        data["paper", "cites", "paper"][name] = plain[name]
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    fanouts = {("paper", "cites", "paper"): [4, 3]}
    mask = torch.arange(NODES) >= 250
    for nodes in ("paper", ("paper", mask), ("paper", torch.arange(250, NODES)), ["paper", None]):
        with diskhop.NeighborLoader(dataset, fanouts, nodes, batch_size=50, memory="100MB") as loader:
            batch = next(iter(loader))
        assert isinstance(batch, HeteroData)
        assert batch.input_type == "paper"
        assert (batch.node_types, batch.edge_types) == (["paper"], [("paper", "cites", "paper")])
        nodes_of, edges_of = batch["paper"], batch["paper", "cites", "paper"]
        for name in plain.node_attrs():
            assert torch.equal(nodes_of[name], plain[name][nodes_of.n_id])
        for name in plain.edge_attrs():
            if name != "edge_index":
                assert torch.equal(edges_of[name], plain[name][edges_of.e_id])
        assert torch.equal(nodes_of.n_id[edges_of.edge_index], plain.edge_index[:, edges_of.e_id])
        first = 250 if isinstance(nodes, tuple) else 0
        assert nodes_of.n_id[:50].tolist() == [*range(first, first + 50)]
        assert nodes_of.batch_size == 50
        assert edges_of.block.num_layers == 2
    with diskhop.NeighborLoader(dataset, [4], batch_size=50, memory="100MB", transform=lambda each: each) as loader:
        assert "block" in next(iter(loader))["paper", "cites", "paper"]
    with pytest.raises(ConfigError, match=r"are of type 'author', .*; pass \('paper', ids\)"):
        diskhop.NeighborLoader(dataset, [4], ("author", None), memory="100MB")
    with pytest.raises(ConfigError, match="of the edge type"):
        diskhop.NeighborLoader(dataset, {("author", "writes", "paper"): [4]}, "paper", memory="100MB")
    of_others = ("author", "writes", "paper")
    with pytest.raises(ConfigError, match=r"; pass \('paper', 'cites', 'paper'\)"):
        diskhop.LinkNeighborLoader(dataset, [4], of_others, memory="100MB")
    for refused in (
        lambda: diskhop.ClusterData(dataset, 3),
        lambda: diskhop.GraphSAINTNodeSampler(dataset, 3),
        lambda: diskhop.ShaDowKHopSampler(dataset, 2, 3, memory="100MB"),
    ):
        with pytest.raises(ConfigError, match=r"; use diskhop\.NeighborLoader"):
            refused()


def test_scripts_may_change_the_data_of_a_loader(pair: tuple[Data, Dataset]) -> None:
    """Features that are removed are not read, and nodes get values, as in PyG's reddit.py."""
    data, dataset = pair
    with diskhop.NeighborLoader(dataset, [-1], batch_size=64, memory="100MB", store="direct") as loader:
        graph_of_loader: Any = loader.data
        assert (loader.data.num_nodes, loader.data.num_edges) == (NODES, EDGES)
        assert (loader.data.num_features, loader.data.num_edge_features, loader.data.num_classes) == (5, 3, 7)
        for name in ("x", "y", "train_mask", "pos", "half"):
            assert torch.equal(getattr(loader.data, name), data[name])
        first = next(iter(loader))
        del loader.data.x, loader.data.y, loader.data.edge_weight
        graph_of_loader.num_nodes = data.num_nodes
        loader.data.n_id = torch.arange(data.num_nodes)
        loader.data.rank = torch.arange(NODES).flip(0)
        loader.data.edge_rank = torch.arange(EDGES).flip(0)
        loader.data.city = "Rome"
        assert loader.data.num_features == 0
        batches = list(loader)
    assert torch.equal(batches[0].n_id, first.n_id)
    for batch in batches:
        assert not {"x", "y", "edge_weight"} & {*batch.keys()}
        assert torch.equal(batch.rank, (NODES - 1) - batch.n_id)
        assert torch.equal(batch.edge_rank, (EDGES - 1) - batch.e_id)
        assert torch.equal(batch.pos, data.pos[batch.n_id])
        assert (batch.city, batch.num_nodes) == ("Rome", len(batch.n_id))
    with diskhop.NeighborLoader(dataset, [-1], batch_size=64, memory="100MB") as other:
        graph_of_other: Any = other.data
        assert "x" in next(iter(other))
        with pytest.raises(ConfigError, match="num_nodes of a loader's data is 300 and cannot become 7"):
            graph_of_other.num_nodes = 7
        with pytest.raises(ConfigError, match="'num_edges' of a loader's data cannot be set"):
            graph_of_other.num_edges = 7
        with pytest.raises(AttributeError, match="has no 'nothing' to read; it has half, pos, "):
            _ = other.data.nothing
        with pytest.raises(AttributeError, match="has no 'nothing' to delete"):
            del other.data.nothing


def test_numbers_of_edges_need_not_be_read(pair: tuple[Data, Dataset]) -> None:
    _, dataset = pair
    with diskhop.NeighborLoader(dataset, [3], batch_size=64, memory="100MB") as loader:
        before = loader.budget.table()["attributes"]
        first = next(iter(loader))
        del loader.data.e_id
        batch = next(iter(loader))
        assert "e_id" not in batch
        with pytest.raises(AttributeError, match="has no 'edge_index' to delete"):
            del loader.data.edge_index
    assert "e_id" in first
    assert before > 4 * EDGES


@dataclasses.dataclass
class Named:
    """A user's class of batches."""


class OwnData(Data):  # type: ignore[misc]
    """A user's class of batches."""


def test_batches_may_be_of_a_users_class(pair: tuple[Data, Dataset]) -> None:
    data, dataset = pair
    with diskhop.NeighborLoader(dataset, [2], batch_size=8, memory="100MB", custom_cls=OwnData) as loader:
        batch = next(iter(loader))
    assert isinstance(batch, OwnData)
    check(batch, data)
    with pytest.raises(ConfigError, match="custom_cls must be a class of Data"):
        diskhop.NeighborLoader(dataset, [2], memory="100MB", custom_cls=Named)


def test_a_repeated_seed_without_hops_has_a_node_each_time(pair: tuple[Data, Dataset]) -> None:
    data, dataset = pair
    seeds = torch.tensor([3, 7, 3])
    with diskhop.NeighborLoader(dataset, [], seeds, batch_size=3, memory="100MB", store="direct") as loader:
        batch = next(iter(loader))
    with diskhop.PygStores(dataset, num_neighbors=[], batch_size=3, memory="100MB") as stores:
        theirs = next(iter(NodeLoader(stores.data, stores.sampler, input_nodes=seeds, batch_size=3)))
    for each in (batch, theirs):
        assert torch.equal(each.n_id, seeds)
        assert torch.equal(each.x, data.x[seeds])
        assert (each.num_edges, each.batch_size) == (0, 3)
        assert each.num_sampled_nodes == [3]


@pytest.mark.parametrize("hops", [[3], [4, 3], [-1, -1]])
def test_a_repeated_seed_has_a_node_each_time(pair: tuple[Data, Dataset], hops: list[int]) -> None:
    """Each seed has a node with its in-edges; edges from the node begin at the first one, as in PyG."""
    data, dataset = pair
    seeds = torch.tensor([7, 3, 7, 7, 200, 3, 11])
    with diskhop.NeighborLoader(dataset, hops, seeds, batch_size=7, memory="100MB", store="direct") as loader:
        batch = next(iter(loader))
        called = loader([0, 0, 1])
    assert batch.n_id[:7].tolist() == seeds.tolist()
    assert batch.input_id.tolist() == [*range(7)]
    assert batch.batch_size == batch.num_sampled_nodes[0] == 7
    check(batch, data)
    with diskhop.NeighborLoader(dataset, hops, [7, 3, 200, 11], batch_size=7, memory="100MB", store="direct") as loader:
        once = next(iter(loader))
    assert sorted({*batch.n_id.tolist()}) == sorted(once.n_id.tolist())
    assert sum(batch.num_sampled_nodes) == len(batch.n_id)
    assert sum(batch.num_sampled_edges) == batch.num_edges
    edges_into = [batch.e_id[batch.edge_index[1] == place].tolist() for place in range(7)]
    assert edges_into[0] == edges_into[2] == edges_into[3] != []
    for place, node in enumerate(once.n_id[:4].tolist()):
        assert once.e_id[once.edge_index[1] == place].tolist() == edges_into[seeds.tolist().index(node)]
    sources = batch.edge_index[0]
    assert not torch.isin(sources, torch.tensor([2, 3, 5])).any()
    # The block has the same edges.
    assert torch.equal(batch.block.layer(0).edge_index(), batch.edge_index)
    assert called.n_id[:3].tolist() == [7, 7, 3]
    check(called, data)


@pytest.mark.parametrize("states_count", [True, False])
def test_batches_state_their_number_of_nodes_where_the_graph_does(tmp_path: Path, states_count: bool) -> None:
    data = graph(num_nodes=NODES if states_count else None)
    with diskhop.NeighborLoader(diskhop.from_pyg(data, tmp_path / "one"), [3], memory="50MB") as loader:
        batch = loader([4, 5])
        assert ("num_nodes" in batch) == states_count
        assert batch.num_nodes == len(batch.n_id)
    typed = HeteroData({"user": {"x": torch.rand(9, 2)}, "item": {"x": torch.rand(5, 2)}})
    if states_count:
        typed["item"].num_nodes = 5
    typed["user", "buys", "item"].edge_index = torch.stack([torch.arange(9), torch.arange(9) % 5])
    with diskhop.NeighborLoader(diskhop.from_pyg(typed, tmp_path / "two"), [3], "item", memory="50MB") as loader:
        typed_batch = loader([0, 3])
        assert "num_nodes" not in typed_batch["user"]
        assert ("num_nodes" in typed_batch["item"]) == states_count
        assert typed_batch["item"].num_nodes == 2

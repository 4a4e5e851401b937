"""Claims about NeighborLoader and LinkNeighborLoader on graphs with types, from disk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import HeteroData
from torch_geometric.sampler import HeteroSamplerOutput
from torch_geometric.utils import sort_edge_index

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.loaders.typed_opposites import opposite_types
from diskhop.stores.stores import STORES
from tests.mini_batches import assert_same_batches
from tests.typed_graphs import EDGES, NODES, neighborhood, typed_data, typed_dataset

MEMORY = "60MB"
CITES, WRITES, IN = ("paper", "cites", "paper"), ("author", "writes", "paper"), ("paper", "in", "venue")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> tuple[HeteroData, Dataset]:
    return typed_dataset(tmp_path_factory.mktemp("typed") / "graph")


def load(dataset: Dataset, **arguments: Any) -> list[HeteroData]:
    given: dict[str, Any] = {"num_neighbors": [3, 2], "batch_size": 20, "input_nodes": "train", "memory": MEMORY}
    with diskhop.NeighborLoader(dataset, **{**given, **arguments}) as loader:
        return list(loader)


def check_values(data: HeteroData, batch: HeteroData) -> None:
    """Every node and edge of a batch has the values of the source."""
    assert set(batch.node_types) == set(data.node_types)
    assert set(batch.edge_types) == set(data.edge_types)
    for name in data.node_types:
        n_id = batch[name].n_id
        assert len(n_id) == len(n_id.unique()) == batch[name].num_nodes == sum(batch[name].num_sampled_nodes)
        if "x" in data[name]:
            torch.testing.assert_close(batch[name].x, data[name].x[n_id], rtol=0, atol=0)
    assert torch.equal(batch["paper"].y, data["paper"].y[batch["paper"].n_id])
    for ends in data.edge_types:
        source, _, destination = ends
        own = batch[ends]
        assert sum(own.num_sampled_edges) == own.edge_index.shape[1]
        ids = torch.stack([batch[source].n_id[own.edge_index[0]], batch[destination].n_id[own.edge_index[1]]])
        assert torch.equal(ids, data[ends].edge_index[:, own.e_id])
    assert torch.equal(batch[WRITES].edge_attr, data[WRITES].edge_attr[batch[WRITES].e_id])


def test_batches_have_the_values_of_every_type(graph: tuple[HeteroData, Dataset]) -> None:
    data, dataset = graph
    batches = load(dataset)
    train = data["paper"].train_mask.nonzero().flatten()
    seeds = torch.cat([batch["paper"].n_id[: batch["paper"].batch_size] for batch in batches])
    assert torch.equal(seeds.sort().values, train)
    for batch in batches:
        check_values(data, batch)
        for ends in EDGES:
            degrees = torch.bincount(batch[ends].edge_index[1], minlength=1)
            assert int(degrees.max()) <= 3


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 5), first=st.integers(0, 60), count=st.integers(1, 9), num_hops=st.integers(1, 3))
def test_all_neighbours_are_those_of_a_plain_search(
    tmp_path_factory: pytest.TempPathFactory, seed: int, first: int, count: int, num_hops: int
) -> None:
    data, dataset = typed_dataset(tmp_path_factory.mktemp("typed") / "graph", seed)
    ids = torch.arange(first, min(first + count, NODES["paper"][0]))
    (batch,) = load(dataset, num_neighbors=[-1] * num_hops, input_nodes=("paper", ids), batch_size=100)
    check_values(data, batch)
    expected = neighborhood(data, "paper", ids.tolist(), num_hops)
    for name in data.node_types:
        assert set(batch[name].n_id.tolist()) == expected.nodes[name]
    for ends in data.edge_types:
        assert sorted(batch[ends].e_id.tolist()) == sorted(expected.edges[ends])


@pytest.mark.parametrize("store", STORES)
def test_stores_give_the_same_batches(graph: tuple[HeteroData, Dataset], store: str, tmp_path: Path) -> None:
    _, dataset = graph
    looks_ahead = {"scratch": tmp_path} if STORES[store].looks_ahead else {}
    ordered = {"ordered": True} if "ordered" in STORES[store].uses else {}
    found = load(dataset, store=store, shuffle=True, seed=7, **looks_ahead, **ordered)
    assert_same_batches(found, load(dataset, store="memory", shuffle=True, seed=7))


def test_fan_outs_by_edge_type(graph: tuple[HeteroData, Dataset]) -> None:
    _, dataset = graph
    by_type = {ends: [1, 0] for ends in EDGES} | {CITES: [2, 2]}
    for batch in load(dataset, num_neighbors=by_type):
        for ends in EDGES:
            degrees = torch.bincount(batch[ends].edge_index[1], minlength=1)
            assert int(degrees.max()) <= (2 if ends == CITES else 1)
            assert ends == CITES or batch[ends].num_sampled_edges[1] == 0


def test_seeds_of_any_type_and_repeated_ones(graph: tuple[HeteroData, Dataset]) -> None:
    data, dataset = graph
    ids = torch.tensor([3, 1, 3, 39, 1])
    (batch,) = load(dataset, input_nodes=("author", ids), batch_size=5)
    assert torch.equal(batch["author"].n_id[:5], ids)
    assert batch["author"].input_id.tolist() == [0, 1, 2, 3, 4]
    torch.testing.assert_close(batch["author"].x, data["author"].x[batch["author"].n_id], rtol=0, atol=0)
    (batch,) = load(dataset, input_nodes="venue", batch_size=5)
    assert batch["venue"].n_id[:5].tolist() == [0, 1, 2, 3, 4]


def test_disjoint_batches_tell_the_seed_of_every_node(graph: tuple[HeteroData, Dataset]) -> None:
    data, dataset = graph
    for batch in load(dataset, disjoint=True):
        for name in data.node_types:
            assert len(batch[name].batch) == len(batch[name].n_id)
            if "x" in data[name]:
                torch.testing.assert_close(batch[name].x, data[name].x[batch[name].n_id], rtol=0, atol=0)
        for source, relation, destination in data.edge_types:
            ends = batch[source, relation, destination].edge_index
            assert torch.equal(batch[source].batch[ends[0]], batch[destination].batch[ends[1]])


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_links_of_an_edge_type(graph: tuple[HeteroData, Dataset], mode: str) -> None:
    data, dataset = graph
    with diskhop.LinkNeighborLoader(
        dataset, [2, 2], edge_label_index=WRITES, neg_sampling={"mode": mode, "amount": 1}, batch_size=40, memory=MEMORY
    ) as loader:
        batches = list(loader)
    found = []
    for batch in batches:
        authors, papers = batch["author"].n_id, batch["paper"].n_id
        if mode == "binary":
            own = batch[WRITES]
            index, num_links = own.edge_label_index, len(own.input_id)
            assert own.edge_label.tolist() == [1] * num_links + [0] * num_links
            pairs = torch.stack([authors[index[0]], papers[index[1]]])[:, :num_links]
        else:
            pairs = torch.stack([authors[batch["author"].src_index], papers[batch["paper"].dst_pos_index]])
            assert len(batch["paper"].dst_neg_index) == pairs.shape[1]
        found.append(pairs)
    assert torch.equal(torch.cat(found, 1), data[WRITES].edge_index)


@pytest.mark.parametrize("of", ["paper", "edges"])
def test_no_neighbour_is_later_than_its_seed(tmp_path: Path, of: str) -> None:
    data = typed_data()
    generator = torch.Generator().manual_seed(1)
    if of == "paper":
        data["paper"].time = torch.randint(0, 50, (data["paper"].num_nodes,), generator=generator)
    else:
        for ends in EDGES:
            data[ends].time = torch.randint(0, 50, (data[ends].edge_index.shape[1],), generator=generator)
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    times = torch.full((50,), 25)
    drawn = 0
    for batch in load(dataset, time_attr="time", input_time=times, num_neighbors=[-1, -1]):
        if of == "paper":
            assert int(batch["paper"].time[batch["paper"].batch_size :].max()) <= 25
        for ends in EDGES:
            drawn += batch[ends].edge_index.shape[1]
            if of == "edges":
                assert bool((data[ends].time[batch[ends].e_id] <= 25).all())
    assert drawn > 100


def test_opposites_of_edges_are_those_of_pyg(tmp_path: Path) -> None:
    data = typed_data()
    # PyG's name for the edge type that leads back; the others are the only ones in their direction.
    data["paper", "rev_writes", "author"].edge_index = torch.tensor([[3, 3, 88], [0, 39, 5]])
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    drawn = load(dataset, num_neighbors=[2, 2], store="memory")
    found = load(dataset, num_neighbors=[2, 2], subgraph_type="bidirectional")
    num_added = 0
    for batch, directional in zip(found, drawn, strict=True):
        index = directional.edge_index_dict
        sampled = HeteroSamplerOutput(
            node=directional.n_id_dict,
            row={ends: each[0] for ends, each in index.items()},
            col={ends: each[1] for ends, each in index.items()},
            edge={ends: directional[ends].e_id for ends in index},
        )
        expected = sampled.to_bidirectional()
        for ends in data.edge_types:
            assert list(batch[ends].keys()) == ["edge_index"]
            wanted = sort_edge_index(torch.stack([expected.row[ends], expected.col[ends]]), sort_by_row=False)
            assert torch.equal(batch[ends].edge_index, wanted)
            num_added += wanted.shape[1] - index[ends].shape[1]
        for name in batch.node_types:
            assert torch.equal(batch[name].n_id, directional[name].n_id)
            assert "num_sampled_nodes" not in batch[name]
    assert num_added > 50


def test_opposites_of_links_need_one_type_that_leads_back(graph: tuple[HeteroData, Dataset], tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"batch_size": 50, "memory": MEMORY, "subgraph_type": "bidirectional"}
    with diskhop.LinkNeighborLoader(graph[1], [2], WRITES, **arguments) as loader:
        for batch in loader:
            back = sort_edge_index(batch["paper", "by", "author"].edge_index.flip(0), sort_by_row=False)
            assert torch.equal(batch[WRITES].edge_index, back)
            assert batch[WRITES].edge_label_index.shape[1] == len(batch[WRITES].input_id)
        state = loader.state_dict()
    with (
        diskhop.LinkNeighborLoader(graph[1], [2], WRITES, **{**arguments, "subgraph_type": "directional"}) as other,
        pytest.raises(ConfigError, match="opposites"),
    ):
        other.load_state_dict(state)
    data = typed_data()
    del data["paper", "by", "author"]
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    with pytest.raises(
        ConfigError, match=r"\('author', 'writes', 'paper'\), and no edge type except .* leads from paper to auth"
    ):
        diskhop.LinkNeighborLoader(dataset, [2], WRITES, **arguments)
    # A type that has the opposites of another type does not lead back from this one.
    types = [("user", "buys", "item"), ("item", "rev_buys", "user"), ("user", "rates", "item")]
    assert opposite_types(types[:2]) == {types[0]: types[1], types[1]: types[0]}
    with pytest.raises(
        ConfigError, match=r"\('user', 'rates', 'item'\), and no edge type except .* leads from item to user"
    ):
        opposite_types(types)


def test_loaders_that_start_at_once_share_merged_lists(tmp_path: Path) -> None:
    _, dataset = typed_dataset(tmp_path / "graph")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: load(dataset), range(4)))
    for batches in found[1:]:
        assert_same_batches(found[0], batches)


def test_data_tells_types_and_attributes(graph: tuple[HeteroData, Dataset]) -> None:
    data, dataset = graph
    with diskhop.NeighborLoader(dataset, [2], input_nodes="train", memory=MEMORY) as loader:
        assert [sorted(each) for each in loader.data.metadata()] == [sorted(each) for each in data.metadata()]
        assert torch.equal(loader.data["paper"].y, data["paper"].y)
        np.testing.assert_array_equal(loader.data["author"].x, data["author"].x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input_nodes": "writer"}, "neither a node type nor a split.*author, paper, venue"),
        ({"input_nodes": ("writer", [1])}, "node type 'writer'.*author, paper, venue"),
        ({"input_nodes": [1, 2]}, "must name their node type"),
        ({"input_nodes": ("venue", [7])}, "7"),
        ({"num_neighbors": {CITES: [2, 2]}}, "one per type, of the edge types"),
        ({"num_neighbors": {("paper", "likes", "paper"): [2, 2]}}, "edge type"),
        ({"features": "degree"}, "without types"),
    ],
)
def test_bad_arguments_are_refused_in_a_line(
    graph: tuple[HeteroData, Dataset], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        load(graph[1], **arguments)
    assert "\n" not in str(raised.value)

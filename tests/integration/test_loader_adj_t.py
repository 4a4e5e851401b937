"""Graphs with a sparse matrix adj_t: their import, and their batches against PyG's conversion of edge_index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import ToSparseTensor
from torch_geometric.typing import WITH_TORCH_SPARSE
from torch_geometric.utils import coalesce, to_edge_index, to_torch_sparse_tensor

import diskhop
from diskhop.errors import SourceError

NODES, EDGES = 30, 120
LAYOUTS = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc]


def graph(num_targets: int = NODES) -> dict[str, torch.Tensor]:
    drawn = torch.Generator().manual_seed(3)
    ends = [torch.randint(0, high, (EDGES,), generator=drawn) for high in (NODES, num_targets)]
    edge_index = coalesce(torch.stack(ends))
    count = edge_index.shape[1]
    kinds = torch.randint(0, 9, (count, 2), generator=drawn)
    return {"edge_index": edge_index, "edge_weight": torch.rand(count, generator=drawn), "edge_kinds": kinds}


def data_of(**more: Any) -> Data:
    return Data(x=torch.arange(NODES).float()[:, None], y=torch.arange(NODES) % 3, **graph(), **more)


def parts_of(adj_t: Any) -> list[torch.Tensor]:
    edge_index, values = to_edge_index(adj_t)
    return [edge_index, values]


def same(ours: Any, theirs: Any) -> bool:
    is_same = type(ours) is type(theirs) and all(map(torch.equal, parts_of(ours), parts_of(theirs)))
    return is_same and (ours.sizes() == theirs.sizes() if hasattr(ours, "sizes") else ours.layout == theirs.layout)


def loader_of(kind: str, dataset: diskhop.Dataset, **more: Any) -> Any:
    common = {"memory": "100MB", "batch_size": 6, "seed": 5, **more}
    if kind == "shadow":
        return diskhop.ShaDowKHopSampler(dataset, depth=2, num_neighbors=3, **common)
    if kind == "links":
        return diskhop.LinkNeighborLoader(dataset, [3, 2], neg_sampling_ratio=1.0, **common)
    return diskhop.NeighborLoader(dataset, [3, 2], subgraph_type=kind, **common)


def both(tmp_path: Path, data: Any, converted: Any) -> Iterator[diskhop.Dataset]:
    """Import the graph with edge_index in the order of adj_t, and with adj_t."""
    for name, each in (("pairs", data), ("sparse", converted)):
        yield diskhop.from_pyg(each, tmp_path / name)


@pytest.mark.parametrize("kind", ["directional", "induced", "links", "shadow"])
def test_batches_have_adj_t_where_the_graph_has_it(tmp_path: Path, kind: str) -> None:
    data = ToSparseTensor(remove_edge_index=False)(data_of())
    del data.adj_t
    pairs, sparse = both(tmp_path, data, ToSparseTensor()(data_of()))
    with loader_of(kind, pairs) as expected, loader_of(kind, sparse) as loader:
        for theirs, ours in zip(expected, loader, strict=True):
            assert "edge_index" not in ours
            assert "edge_weight" not in ours
            theirs = ToSparseTensor()(theirs)
            assert same(ours.adj_t, theirs.adj_t)
            for name in ("n_id", "x", "y", "e_id", "edge_kinds"):
                assert torch.equal(ours[name], theirs[name])
            assert ours.num_edges == theirs.num_edges == len(ours.e_id)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_imported_and_given_back(tmp_path: Path, layout: torch.layout) -> None:
    found = graph()
    adj_t = to_torch_sparse_tensor(found["edge_index"].flip(0), found["edge_weight"], size=NODES, layout=layout)
    dataset = diskhop.from_pyg(Data(adj_t=adj_t), tmp_path / "graph")
    assert dataset.num_nodes == NODES
    with diskhop.NeighborLoader(dataset, [-1], memory="100MB", batch_size=NODES) as loader:
        (batch,) = loader
    # Of all nodes, a batch is the graph: nodes are in the order of their ids.
    assert same(batch.adj_t, adj_t)


def test_types_of_edges_keep_their_own_form(tmp_path: Path) -> None:
    data = HeteroData(user={"x": torch.rand(NODES, 2)}, item={"x": torch.rand(NODES + 5, 2)})
    bought, sold = graph(NODES + 5), graph()
    ends, others = ("user", "bought", "item"), ("user", "knows", "user")
    data[ends].adj_t = to_torch_sparse_tensor(
        bought["edge_index"].flip(0), bought["edge_weight"], (NODES + 5, NODES), layout=torch.sparse_csr
    )
    data[others].edge_index = sold["edge_index"]
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    every = torch.arange(NODES + 5)
    with diskhop.NeighborLoader(dataset, [-1], ("item", every), memory="100MB", batch_size=NODES + 5) as loader:
        (batch,) = loader
    assert "edge_index" not in batch[ends]
    assert "edge_index" in batch[others]
    rows, columns = to_edge_index(batch[ends].adj_t)[0]
    values = to_edge_index(batch[ends].adj_t)[1]
    found = torch.stack([batch["user"].n_id[columns], batch["item"].n_id[rows]])
    assert batch[ends].adj_t.shape == (NODES + 5, len(batch["user"].n_id))
    expected = coalesce(bought["edge_index"], bought["edge_weight"])
    for ours, theirs in zip(coalesce(found, values), expected, strict=True):
        assert torch.equal(ours, theirs)


def test_a_transform_sees_adj_t_and_block_stays_until_it_is_replaced(tmp_path: Path) -> None:
    dataset = diskhop.from_pyg(ToSparseTensor()(data_of()), tmp_path / "graph")

    def without_edges(batch: Data) -> Data:
        batch.adj_t = to_torch_sparse_tensor(torch.zeros(2, 0).long(), size=batch.num_nodes, layout=torch.sparse_csr)
        return batch

    for transform, keeps in ((lambda batch: batch, True), (without_edges, False)):
        with loader_of("directional", dataset, transform=transform) as loader:
            assert all(("block" in batch) == keeps for batch in loader)


def test_loaders_that_pyg_has_for_edge_index_give_it(tmp_path: Path) -> None:
    dataset = diskhop.from_pyg(ToSparseTensor()(data_of()), tmp_path / "graph")
    clusters = diskhop.ClusterData(dataset, num_parts=2, memory="100MB")
    with diskhop.ClusterLoader(clusters, memory="100MB") as loader:
        for batch in loader:
            assert len(batch.edge_weight) == batch.edge_index.shape[1]
            assert "adj_t" not in batch


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"edge_index": torch.zeros(2, 1).long()}, "data.adj_t: is next to edge_index, and batches have one of them"),
        ({"edge_weight": torch.ones(3), "edge_attr": torch.ones(3)}, "has values that would become edge_attr"),
        ({"adj_t": torch.eye(3).repeat(2, 1, 1)}, "data.adj_t: must be one matrix"),
    ],
)
def test_what_has_no_meaning_is_one_line(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    data = Data(**{"adj_t": torch.eye(3), **more})
    data.adj_t = data.adj_t.to_sparse_csr()
    with pytest.raises(SourceError) as caught:
        diskhop.from_pyg(data, tmp_path / "graph")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not WITH_TORCH_SPARSE, reason="torch-sparse is not installed")
@pytest.mark.parametrize("attr", ["edge_weight", None])
def test_a_sparse_tensor_stays_one(tmp_path: Path, attr: str | None) -> None:
    from torch_geometric.typing import SparseTensor

    data = ToSparseTensor(attr=attr)(data_of())
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    with loader_of("shadow", dataset) as loader:
        for batch in loader:
            assert isinstance(batch.adj_t, SparseTensor)
            assert (batch.adj_t.storage.value() is None) == (attr is None)
            assert ("edge_weight" in batch) == (attr is None)

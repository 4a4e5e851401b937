"""PyG's own loaders on a dataset, by its FeatureStore, GraphStore and BaseSampler."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.nn import GraphSAGE
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError
from diskhop.stores.stores import STORES
from tests.integration.test_loader_attributes import EDGES, NODES, graph

SEEDS = torch.arange(0, NODES, 2)


@pytest.fixture(scope="module", params=[None, "hot"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Data, Dataset]:
    data = graph()
    return data, diskhop.from_pyg(data, tmp_path_factory.mktemp("graphs") / "graph", order=request.param)


def stores_of(dataset: Dataset, **changes: Any) -> diskhop.PygStores:
    return diskhop.PygStores(dataset, **{"num_neighbors": [4, 3], "batch_size": 40, "memory": "100MB", **changes})


@pytest.mark.fast(8)
@pytest.mark.parametrize("store", STORES)
def test_pygs_loader_gives_the_batches_of_ours_bit_for_bit(
    pair: tuple[Data, Dataset], tmp_path: Path, store: str
) -> None:
    data, dataset = pair
    more = {"scratch": tmp_path} if "scratch" in STORES[store].uses else {}
    with stores_of(dataset, store=store, batches_per_epoch=4, **more) as stores:
        loader = NodeLoader(stores.data, stores.sampler, input_nodes=SEEDS, batch_size=40)
        theirs = [*loader, *loader]
    with diskhop.NeighborLoader(dataset, [4, 3], SEEDS, batch_size=40, memory="100MB", store="direct") as own:
        ours = [*own, *own]
    assert len(theirs) == len(ours) == 8
    model = GraphSAGE(5, 8, num_layers=2, out_channels=3)
    for one, other in zip(theirs, ours, strict=True):
        for name in ("n_id", "e_id", "edge_index", "input_id", *data.node_attrs()):
            assert one[name].dtype == other[name].dtype
            assert torch.equal(one[name], other[name])
        assert one.batch_size == other.batch_size
        assert one.num_sampled_nodes == other.num_sampled_nodes
        assert one.num_sampled_edges == other.num_sampled_edges
        assert torch.equal(model(one.x, one.edge_index), model(other.x, other.edge_index))


@pytest.mark.fast(3)
@pytest.mark.parametrize(
    "ways",
    [
        {"replace": True, "weight_attr": "edge_weight"},
        {"disjoint": True},
        {"subgraph_type": "induced"},
        {"subgraph_type": "bidirectional", "disjoint": True},
        {"time_attr": "time"},
        {"time_attr": "edge_time", "input_time": torch.arange(len(SEEDS))},
    ],
)
def test_ways_to_sample_are_those_of_our_loader(tmp_path: Path, ways: dict[str, Any]) -> None:
    data = graph()
    data.edge_weight, data.edge_time = torch.arange(EDGES).float(), torch.arange(EDGES) % 80
    data.time = torch.arange(NODES) % 20
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    of_seeds = {name: value for name, value in ways.items() if name == "input_time"}
    of_stores = {name: value for name, value in ways.items() if name != "input_time"}
    with stores_of(dataset, **of_stores) as stores:
        theirs = [*NodeLoader(stores.data, stores.sampler, input_nodes=SEEDS, batch_size=40, **of_seeds)]
    with diskhop.NeighborLoader(dataset, [4, 3], SEEDS, batch_size=40, memory="100MB", **ways) as own:
        for one, other in zip(theirs, own, strict=True):
            assert ("batch" in one, "seed_time" in one) == ("batch" in other, "seed_time" in other)
            assert ("num_sampled_nodes" in one) == ("num_sampled_nodes" in other)
            for name in ("n_id", "e_id", "edge_index", "x", "batch", "seed_time"):
                assert name not in other or torch.equal(one[name], other[name]), name


@pytest.mark.fast(6)
@pytest.mark.parametrize("ways", [{}, {"disjoint": True}, {"time_attr": "time"}], ids=str)
@pytest.mark.parametrize("neg_sampling", [None, NegativeSampling("binary", 1.5), NegativeSampling("triplet", 2)])
def test_links_are_those_of_our_own_loader(
    pair: tuple[Data, Dataset], neg_sampling: NegativeSampling | None, ways: dict[str, Any]
) -> None:
    data, dataset = pair
    links = data.edge_index[:, :60]
    times = {"edge_label_time": data.time[links].max(0).values} if "time_attr" in ways else {}
    arguments: dict[str, Any] = {"neg_sampling": neg_sampling, "batch_size": 20, **times}
    with (
        stores_of(dataset, **ways) as stores,
        diskhop.LinkNeighborLoader(
            dataset, [4, 3], edge_label_index=links, memory="100MB", **ways, **arguments
        ) as ours,
    ):
        theirs = LinkLoader(stores.data, stores.sampler, edge_label_index=(None, links), **arguments)
        for one, other in zip(theirs, ours, strict=True):
            for name in ("n_id", "edge_index", "x", "batch", "edge_label", "edge_label_index", "edge_label_time"):
                assert name not in other or torch.equal(one[name], other[name]), name
            for name in ("src_index", "dst_pos_index", "dst_neg_index", "seed_time", "input_id"):
                assert name not in other or torch.equal(one[name], other[name]), name
    if times:
        with (
            stores_of(dataset, **ways) as stores,
            pytest.raises(ConfigError, match="'edge_label_time' is not set"),
        ):
            next(iter(LinkLoader(stores.data, stores.sampler, edge_label_index=(None, links), batch_size=5)))


def test_every_attribute_of_a_batch_is_asked_for_at_once(
    pair: tuple[Data, Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, dataset = pair
    with stores_of(dataset) as stores:
        features, _ = stores.data
        calls: list[list[str]] = []
        fetch = stores._graph.fetch

        def counted(names: list[str], ids: Any) -> Any:
            calls.append(names)
            return fetch(names, ids)

        monkeypatch.setattr(stores._graph, "fetch", counted)
        loader = NodeLoader(stores.data, stores.sampler, input_nodes=SEEDS, batch_size=50)
        assert len(list(loader)) == len(calls) == 3
    assert all(len(names) == len(features.get_all_tensor_attrs()) for names in calls)


@pytest.mark.fast("hot")
def test_worker_processes_open_the_dataset_themselves(pair: tuple[Data, Dataset]) -> None:
    data, dataset = pair
    with stores_of(dataset) as stores:
        next(iter(NodeLoader(stores.data, stores.sampler, input_nodes=SEEDS, batch_size=40)))
        arguments = {"input_nodes": SEEDS, "batch_size": 40, "num_workers": 2, "shuffle": True}
        loader = NodeLoader(stores.data, stores.sampler, **arguments)
        torch.manual_seed(3)
        first, second = list(loader), list(loader)
        torch.manual_seed(3)
        again = list(loader)
    assert torch.equal(torch.cat([each.input_id for each in first]).sort()[0], torch.arange(len(SEEDS)))
    for batch, same in zip(first, again, strict=True):
        assert torch.equal(batch.n_id, same.n_id)
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    assert not all(torch.equal(one.n_id, other.n_id) for one, other in zip(first, second, strict=True))


def test_stores_travel_to_other_processes(pair: tuple[Data, Dataset]) -> None:
    data, dataset = pair
    with stores_of(dataset) as stores:
        next(iter(NodeLoader(stores.data, stores.sampler, input_nodes=SEEDS, batch_size=40)))
        copied_data, copied_sampler = pickle.loads(pickle.dumps((stores.data, stores.sampler)))
        batch = next(iter(NodeLoader(copied_data, copied_sampler, input_nodes=SEEDS, batch_size=40)))
    assert torch.equal(batch.x, data.x[batch.n_id])


@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
def test_pygs_link_loader_takes_the_stores(pair: tuple[Data, Dataset], mode: str | None) -> None:
    data, dataset = pair
    with stores_of(dataset) as stores:
        loader = LinkLoader(
            stores.data,
            stores.sampler,
            edge_label_index=(None, data.edge_index[:, :60]),
            neg_sampling=None if mode is None else NegativeSampling(mode, 2),
            batch_size=20,
        )
        for number, batch in enumerate(loader):
            assert torch.equal(batch.x, data.x[batch.n_id])
            assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
            given = data.edge_index[:, 20 * number : 20 * number + 20]
            if mode == "triplet":
                ends = torch.stack([batch.n_id[batch.src_index], batch.n_id[batch.dst_pos_index]])
                assert batch.dst_neg_index.shape == (20, 2)
            else:
                ends = batch.n_id[batch.edge_label_index[:, :20]]
                assert batch.edge_label_index.shape[1] == (20 if mode is None else 60)
            assert torch.equal(ends, given)


def test_typed_graphs_give_heterodata(tmp_path: Path) -> None:
    plain, data = graph(), HeteroData()
    data["paper"].x, data["paper"].time = plain.x, plain.time
    data["paper", "cites", "paper"].edge_index = plain.edge_index
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    with stores_of(dataset) as stores:
        for nodes in ("paper", ("paper", SEEDS)):
            batch = next(iter(NodeLoader(stores.data, stores.sampler, input_nodes=nodes, batch_size=40)))
            assert isinstance(batch, HeteroData)
            assert torch.equal(batch["paper"].x, plain.x[batch["paper"].n_id])
            assert torch.equal(batch["paper"].time, plain.time[batch["paper"].n_id])
            edges = batch["paper", "cites", "paper"]
            assert torch.equal(batch["paper"].n_id[edges.edge_index], plain.edge_index[:, edges.e_id])
        loader = LinkLoader(stores.data, stores.sampler, ("paper", "cites", "paper"), batch_size=20)
        assert len(loader) == EDGES // 20
        assert next(iter(loader))["paper", "cites", "paper"].edge_label_index.shape == (2, 20)
        with pytest.raises(ConfigError, match=r"seed nodes are of type author, .*; pass \('paper', ids\)"):
            stores.sampler.sample_from_nodes(NodeSamplerInput(None, SEEDS, None, "author"))
        other = EdgeSamplerInput(None, SEEDS, SEEDS, input_type=("author", "writes", "paper"))
        with pytest.raises(ConfigError, match=r"; pass \(\('paper', 'cites', 'paper'\), links\)"):
            stores.sampler.sample_from_edges(other)


def test_a_store_of_features_reads_any_index(pair: tuple[Data, Dataset]) -> None:
    data, dataset = pair
    with stores_of(dataset) as stores:
        features, edges = stores.data
        assert {attr.attr_name for attr in features.get_all_tensor_attrs()} == {*data.node_attrs()}
        mask = torch.arange(NODES) % 7 == 0
        for index in (torch.tensor([5, 3, 5]), slice(4, 20, 3), slice(None), mask):
            for name in ("x", "pos", "train_mask", "half"):
                assert torch.equal(features.get_tensor(None, name, index), data[name][index])
        assert torch.equal(features.get_tensor(None, "x", None), data.x)
        assert torch.equal(features.get_tensor(None, "x", 7), data.x[7])
        assert features.get_tensor_size(None, "pos") == (NODES, 2, 3)
        assert features.remove_tensor(None, "x", None)
        batch = next(iter(NodeLoader(stores.data, stores.sampler, input_nodes=SEEDS, batch_size=40)))
        assert "x" not in batch
        assert torch.equal(batch.pos, data.pos[batch.n_id])
        with pytest.raises(KeyError, match="no attribute 'x' of the nodes"):
            features.get_tensor(None, "x", None)
        with pytest.raises(ConfigError, match="cannot be put into a dataset on disk"):
            features.put_tensor(data.x, None, "x", None)
        (known,) = edges.get_all_edge_attrs()
        row, col = edges.get_edge_index(known)
        found = sorted(zip(row.tolist(), col.tolist(), strict=True))
        assert found == sorted(map(tuple, data.edge_index.T.tolist()))


def test_bad_use_is_one_line(pair: tuple[Data, Dataset]) -> None:
    _, dataset = pair
    with pytest.raises(ConfigError, match="num_neighbors must be a list"):
        stores_of(dataset, num_neighbors=5)
    with stores_of(dataset, memory="20KB") as stores, pytest.raises(BudgetError, match="too small"):
        next(iter(NodeLoader(stores.data, stores.sampler, input_nodes=SEEDS)))
    with stores_of(dataset) as stores:
        with pytest.raises(ConfigError, match="input_nodes has id 300, which no node of"):
            next(iter(NodeLoader(stores.data, stores.sampler, input_nodes=torch.tensor([NODES]))))
        times = torch.arange(len(SEEDS))
        loader = NodeLoader(stores.data, stores.sampler, input_nodes=SEEDS, input_time=times)
        with pytest.raises(ConfigError, match="input_time has no effect without time_attr"):
            next(iter(loader))


def test_lightning_takes_the_stores(pair: tuple[Data, Dataset]) -> None:
    pytest.importorskip("pytorch_lightning")
    from torch_geometric.data.lightning import LightningNodeData

    data, dataset = pair
    with stores_of(dataset) as stores:
        module = LightningNodeData(
            stores.data,
            input_train_nodes=SEEDS,
            input_val_nodes=SEEDS,
            node_sampler=stores.sampler,
            batch_size=40,
            pin_memory=False,
        )
        for loader in (module.train_dataloader(), module.val_dataloader()):
            batch = next(iter(loader))
            assert torch.equal(batch.x, data.x[batch.n_id])

"""Claims about LABOR, LADIES and FastGCN in NeighborLoader: no store changes a batch, and PyG's layers take weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import SequentialSampler
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv, SAGEConv

from diskhop import LinkNeighborLoader, NeighborLoader, from_pyg
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.nn.layers.sage import SageLayer
from diskhop.protocols import neighbor_spec
from tests.mini_batches import assert_same_batches

NUM_NODES, NUM_EDGES = 300, 6000
CHOICES: list[tuple[list[int], dict[str, Any]]] = [
    ([5, 4], {"sampler": "labor"}),
    ([5, 4], {"sampler": "labor", "importance": 1, "batch_dependency": 3}),
    ([60, 60], {"sampler": "ladies"}),
    ([150, 150], {"sampler": "fastgcn", "batch_dependency": 4}),
]


def graph() -> Data:
    generator = torch.Generator().manual_seed(1)
    return Data(
        x=torch.rand(NUM_NODES, 8, generator=generator),
        y=torch.arange(NUM_NODES) % 3,
        edge_index=torch.randint(0, NUM_NODES, (2, NUM_EDGES), generator=generator),
        edge_weight=torch.rand(NUM_EDGES, generator=generator),
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return from_pyg(graph(), tmp_path_factory.mktemp("graphs") / "graph", order="hot")


def load(dataset: Dataset, num_neighbors: Any, **arguments: Any) -> NeighborLoader:
    return NeighborLoader(dataset, num_neighbors, **{"batch_size": 40, "memory": "50MB", **arguments})


@pytest.mark.parametrize(("num_neighbors", "chosen"), CHOICES, ids=str)
def test_a_batch_is_the_same_from_any_store(
    dataset: Dataset, tmp_path: Path, num_neighbors: list[int], chosen: dict[str, Any]
) -> None:
    given = graph()
    with load(dataset, num_neighbors, store="memory", shuffle=True, **chosen) as loader:
        expected = [*loader]
        assert "sampler" not in repr(loader) or chosen["sampler"] in repr(loader)
    for batch in expected:
        sources, targets = batch.n_id[batch.edge_index]
        assert torch.equal(given.edge_index[:, batch.e_id], torch.stack([sources, targets]))
        assert torch.equal(batch.x, given.x[batch.n_id])
        assert torch.equal(batch.edge_weight, given.edge_weight[batch.e_id])
        assert sum(batch.num_sampled_edges) == batch.num_edges
        has_weights = chosen["sampler"] != "labor" or "importance" in chosen
        assert ("edge_importance" in batch) == has_weights
        if has_weights:
            assert torch.equal(batch.edge_importance, batch.block.weights.edges)
            assert (batch.edge_importance > 0).all()
    for store in ("direct", "belady", "shared"):
        arguments = {"scratch": tmp_path / store} if store == "belady" else {"ordered": store == "shared"}
        with load(dataset, num_neighbors, store=store, shuffle=True, threads=3, **arguments, **chosen) as loader:
            assert_same_batches(loader, expected)


def test_sums_with_the_weights_are_near_those_over_all_neighbours(dataset: Dataset) -> None:
    """PyG's layers take edge_importance as edge_weight; the mean of many batches is the sum over all neighbours."""
    conv = GraphConv(8, 4, aggr="add", bias=False)
    conv.lin_root.weight.data.zero_()
    given = graph()
    with torch.no_grad():
        wanted = conv(given.x, given.edge_index)[:40]
    for num_neighbors, chosen in CHOICES[2:]:
        arguments = {**chosen, "batch_dependency": 1, "input_nodes": torch.arange(40)}
        total = torch.zeros(40, 4)
        with load(dataset, num_neighbors[:1], **arguments) as loader, torch.no_grad():
            for _ in range(200):
                (batch,) = [*loader]
                total += conv(batch.x, batch.edge_index, batch.edge_importance)[:40]
        errors = (total / 200 - wanted).norm() / wanted.norm()
        # About 0.03 are to be expected of 200 draws; without the weights it would be 0.5 or more.
        assert errors < 0.08


def test_our_layer_takes_the_weighted_mean(dataset: Dataset) -> None:
    layer = SageLayer(8, 5)
    reference = SAGEConv(8, 5, aggr="sum")
    reference.load_state_dict(layer.state_dict())
    with load(dataset, [80], sampler="ladies") as loader, torch.no_grad():
        batch = next(iter(loader))
        ours = layer(batch.x, batch.block.layer(0))
        sources, targets = batch.edge_index
        totals = torch.zeros(batch.num_nodes).index_add(0, targets, batch.edge_importance)
        shares = batch.edge_importance / totals[targets]
        means = torch.zeros(batch.num_nodes, 8).index_add(0, targets, batch.x[sources] * shares[:, None])
        theirs = reference.lin_l(means) + reference.lin_r(batch.x)
    torch.testing.assert_close(ours, theirs[: batch.batch_size], atol=1e-5, rtol=1e-5)


def test_repeated_seeds_and_single_batches_keep_their_weights(dataset: Dataset) -> None:
    with load(dataset, [60], sampler="ladies", input_nodes=torch.tensor([3, 9, 3, 3])) as loader:
        (batch,) = [*loader]
        assert len(batch.edge_importance) == batch.num_edges
        lists = [batch.edge_importance[batch.edge_index[1] == seed] for seed in range(4)]
        assert torch.equal(lists[0], lists[2])
        assert torch.equal(lists[0], lists[3])
        assert len(loader([1, 0]).edge_importance) > 0


def test_the_order_of_seeds_is_still_an_argument(dataset: Dataset) -> None:
    with load(dataset, [5], sampler=SequentialSampler(range(NUM_NODES))) as loader:
        assert len([*loader]) == 8
    with load(dataset, [5], sampler="neighbor") as named, load(dataset, [5]) as plain:
        assert_same_batches(named, plain)


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ([5], {"sampler": "labour"}, r"NeighborLoader: unknown sampler 'labour' \(did you mean 'labor'"),
    ([5], {"sampler": "labor", "batch_dependency": 0}, "batch_dependency must be from 1"),
    ([5], {"batch_dependency": 4}, "batch_dependency must be 1 without a sampler's name, got 4; pass sampler='labor'"),
    ([5], {"importance": 1}, "importance must be 0 without sampler='labor', got 1"),
    ([5], {"sampler": "ladies", "importance": 1}, "importance must be 0 with sampler='ladies', got 1; leave it out"),
    ([5], {"sampler": "labor", "replace": True}, "sampler='labor' draws in its own way, which replace would change"),
    ([5], {"sampler": "fastgcn", "weight_attr": "edge_weight"}, "in its own way, which weights would change"),
    (neighbor_spec([5]), {"sampler": "labor"}, "num_neighbors is a SamplerSpec, which names its own sampler"),
    (5, {"sampler": "labor"}, "num_neighbors must be a list of whole numbers"),
    ([0], {"sampler": "ladies"}, "fan-outs must be"),
]


@pytest.mark.parametrize(("num_neighbors", "arguments", "error"), REFUSED, ids=str)
def test_arguments_that_do_not_fit_are_refused_in_one_line(
    dataset: Dataset, num_neighbors: Any, arguments: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigError, match=error) as raised:
        load(dataset, num_neighbors, **arguments)
    assert "\n" not in str(raised.value)


def test_links_take_samplers_too(dataset: Dataset) -> None:
    arguments: dict[str, Any] = {"batch_size": 50, "memory": "50MB", "neg_sampling_ratio": 1.0, "batch_dependency": 4}
    with LinkNeighborLoader(dataset, [60, 60], sampler="ladies", **arguments) as loader:
        batch = next(iter(loader))
    assert len(batch.edge_importance) == batch.num_edges
    assert batch.edge_label_index.shape == (2, 100)

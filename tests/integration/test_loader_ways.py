"""Claims about PyG's ways to sample in NeighborLoader: fields and meaning are PyG's, and no store changes them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.utils import coalesce, subgraph

from diskhop import NeighborLoader, from_pyg
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError
from diskhop.nn.layers.sage import SageLayer
from diskhop.nn.models import Network
from diskhop.protocols import neighbor_spec
from diskhop.sampling.columns import SCAN_BYTES
from diskhop.stores.stores import STORES
from tests.mini_batches import assert_same_batches

NUM_NODES, NUM_EDGES = 300, 4000
WAYS: list[dict[str, Any]] = [
    {"replace": True},
    {"weight_attr": "edge_weight"},
    {"weight_attr": "edge_weight", "replace": True, "disjoint": True},
    {"subgraph_type": "bidirectional"},
    {"subgraph_type": SubgraphType.induced},
    {"disjoint": True, "subgraph_type": "induced"},
    {"time_attr": "time"},
    {"time_attr": "time", "temporal_strategy": "last"},
    {"time_attr": "edge_time", "input_time": torch.arange(NUM_NODES) % 30},
]


def graph() -> Data:
    generator = torch.Generator().manual_seed(1)
    return Data(
        x=torch.rand(NUM_NODES, 8, generator=generator),
        y=torch.arange(NUM_NODES) % 3,
        time=torch.arange(NUM_NODES) % 30,
        edge_index=torch.randint(0, NUM_NODES, (2, NUM_EDGES), generator=generator),
        edge_weight=torch.rand(NUM_EDGES, generator=generator).round(decimals=1),
        edge_time=torch.randint(0, 30, (NUM_EDGES,), generator=generator),
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return from_pyg(graph(), tmp_path_factory.mktemp("graphs") / "graph", order="hot")


def load(dataset: Dataset, num_neighbors: Any = (5, 4), **arguments: Any) -> NeighborLoader:
    fanouts = list(num_neighbors) if isinstance(num_neighbors, tuple) else num_neighbors
    return NeighborLoader(dataset, fanouts, **{"batch_size": 40, "memory": "50MB", **arguments})


@pytest.mark.fast(4)
@pytest.mark.parametrize("ways", WAYS, ids=lambda ways: "-".join(map(str, ways)))
def test_a_batch_has_pygs_fields_whatever_carries_it(dataset: Dataset, tmp_path: Path, ways: dict[str, Any]) -> None:
    given = graph()
    with load(dataset, store="memory", shuffle=True, **ways) as loader:
        expected = [*loader]
    is_disjoint = "disjoint" in ways or "time_attr" in ways
    is_by_hop = str(ways.get("subgraph_type", "directional")) == "directional"
    for batch in expected:
        assert torch.equal(batch.x, given.x[batch.n_id])
        assert torch.equal(batch.edge_weight, given.edge_weight[batch.e_id])
        assert torch.equal(batch.edge_time, given.edge_time[batch.e_id])
        assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)
        assert ("batch" in batch, "seed_time" in batch) == (is_disjoint, "input_time" in ways)
        assert ("num_sampled_nodes" in batch, "num_sampled_edges" in batch) == (is_by_hop, is_by_hop)
        if ways.get("subgraph_type") != "bidirectional":
            assert torch.equal(batch.n_id[batch.edge_index], given.edge_index[:, batch.e_id])
        if "weight_attr" in ways:
            assert batch.edge_weight.min() > 0
        if is_disjoint:
            assert torch.equal(batch.batch[: batch.batch_size], torch.arange(batch.batch_size))
            assert torch.equal(batch.batch[batch.edge_index[0]], batch.batch[batch.edge_index[1]])
        if ways.get("time_attr") == "time":
            latest = batch.time[: batch.batch_size][batch.batch]
            assert bool((batch.time <= latest).all())
        if "input_time" in ways:
            assert torch.equal(batch.seed_time, ways["input_time"][batch.input_id])
            assert bool((batch.edge_time <= batch.seed_time[batch.batch[batch.edge_index[1]]]).all())
    for store in STORES:
        looks_ahead = {"scratch": str(tmp_path)} if STORES[store].looks_ahead else {}
        with load(dataset, store=store, shuffle=True, ordered=True, **looks_ahead, **ways) as loader:
            assert_same_batches(loader, expected)


def test_a_single_batch_may_have_a_seed_twice(dataset: Dataset) -> None:
    with load(dataset, disjoint=True) as loader:
        batch = loader([3, 3, 5])
        assert batch.batch_size == 3
        assert batch.n_id[:3].tolist() == [3, 3, 5]
        drawn = [set(batch.e_id[batch.batch[batch.edge_index[1]] == seed].tolist()) for seed in range(2)]
        assert drawn[0] != drawn[1], "each has draws of its own"
    times = torch.tensor([0, 29])
    with load(dataset, (-1,), input_nodes=[3, 3], input_time=times, time_attr="edge_time") as loader:
        batch = next(iter(loader))
        counts = torch.bincount(batch.batch[batch.edge_index[1]], minlength=2).tolist()
        assert counts[0] < counts[1] == int((graph().edge_index[1] == 3).sum())
        assert loader([1]).seed_time.tolist() == [29]
    with load(dataset, (-1,), input_nodes=[3, 3], subgraph_type="induced") as loader:
        batch = next(iter(loader))
        assert batch.n_id[:2].tolist() == [3, 3]
        assert torch.equal(batch.n_id[batch.edge_index], graph().edge_index[:, batch.e_id])


def test_an_induced_subgraph_is_pygs(dataset: Dataset) -> None:
    given = graph()
    with load(dataset, (4, 3), subgraph_type="induced", shuffle=True) as loader:
        for batch in loader:
            wanted, _ = subgraph(batch.n_id, given.edge_index)
            ours = torch.sort(batch.n_id[batch.edge_index[0]] * NUM_NODES + batch.n_id[batch.edge_index[1]]).values
            assert torch.equal(ours, torch.sort(wanted[0] * NUM_NODES + wanted[1]).values)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with (
            load(dataset, (4, 3), directed=False, shuffle=True) as old,
            load(dataset, (4, 3), subgraph_type="induced", shuffle=True) as new,
        ):
            assert_same_batches(old, new)
    assert any("old name of subgraph_type='induced'" in str(each.message) for each in caught)


def test_a_bidirectional_subgraph_has_the_drawn_edges_and_their_opposites(dataset: Dataset) -> None:
    with load(dataset, subgraph_type="bidirectional") as loader, load(dataset) as directional:
        for batch, drawn in zip(loader, directional, strict=True):
            both = coalesce(torch.cat([drawn.edge_index, drawn.edge_index.flip(0)], 1), sort_by_row=False)
            assert torch.equal(batch.edge_index, both)
            assert torch.equal(batch.n_id, drawn.n_id)


@pytest.mark.parametrize("subgraph_type", ["induced", "bidirectional", "directional"])
def test_diskhops_layers_give_what_pygs_give(dataset: Dataset, subgraph_type: str) -> None:
    """Every layer uses every edge; three layers on two hops, which directional subgraphs do not serve."""
    torch.manual_seed(0)
    num_layers = 2 if subgraph_type == "directional" else 3
    ours = Network(lambda inputs, outputs, _: SageLayer(inputs, outputs), 8, 16, 3, num_layers)
    theirs = GraphSAGE(8, 16, num_layers, 3)
    theirs.load_state_dict(ours.state_dict())
    with load(dataset, (4, 3), subgraph_type=subgraph_type, disjoint=True) as loader:
        for batch in loader:
            expected = theirs(batch.x, batch.edge_index)[: batch.batch_size]
            torch.testing.assert_close(ours(batch.x, batch.block)[: batch.batch_size], expected)


def test_a_list_without_weights_draws_nothing(tmp_path: Path) -> None:
    """PyG's own example, and a node whose edges all have weight 0."""
    edge_index = torch.tensor([[1, 3, 0, 4], [2, 2, 1, 3]])
    given = Data(num_nodes=5, edge_index=edge_index, edge_weight=torch.tensor([0.0, 1.0, 0.0, 1.0]))
    dataset = from_pyg(given, tmp_path / "graph")
    with load(dataset, (1, 1), input_nodes=[2], weight_attr="edge_weight") as loader:
        batch = next(iter(loader))
        assert batch.n_id.tolist() == [2, 3, 4]
        assert batch.n_id[batch.edge_index].tolist() == [[3, 4], [2, 3]]
    for fanout in (1, -1):
        with load(dataset, (fanout,), input_nodes=[1], weight_attr="edge_weight") as loader:
            assert next(iter(loader)).num_edges == 0


def test_a_state_is_of_its_way_to_sample(dataset: Dataset) -> None:
    with load(dataset, disjoint=True) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with load(dataset, disjoint=True) as same:
        same.load_state_dict(state)
        assert len([*same]) == len(same) - 1
    with load(dataset) as other, pytest.raises(ConfigError, match="with num_neighbors"):
        other.load_state_dict(state)
    times = {"time_attr": "edge_time", "input_time": np.arange(NUM_NODES)}
    with load(dataset, **times) as loader:
        state = loader.state_dict()
    with (
        load(dataset, **times | {"input_time": np.arange(NUM_NODES) + 1}) as other,
        pytest.raises(ConfigError, match="with input_nodes"),
    ):
        other.load_state_dict(state)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"replace": 2}, "replace must be True or False, got 2"),
        ({"subgraph_type": "inducd"}, r"unknown subgraph_type 'inducd' \(did you mean 'induced'\?\)"),
        ({"subgraph_type": 3}, "subgraph_type must be text, got 3; for example subgraph_type='induced'"),
        ({"temporal_strategy": "latest", "time_attr": "time"}, "unknown temporal_strategy 'latest'"),
        ({"temporal_strategy": "last"}, "temporal_strategy must be 'uniform' without times"),
        ({"temporal_strategy": "last", "time_attr": "time", "weight_attr": "edge_weight"}, "drawn by weights"),
        ({"time_attr": "times"}, None),
        (
            {"time_attr": "tim"},
            "has no times 'tim' of one number each; it has 'edge_time' of edges, 'time' of nodes, 'y'",
        ),
        (
            {"weight_attr": "time"},
            "has no weights 'time' of one number each; it has 'edge_weight' of edges, 'edge_time'",
        ),
        ({"time_attr": 3}, "time_attr must be text"),
        (
            {"time_attr": "edge_time"},
            "has times of edges, and the 300 input nodes need times as well; pass them as input",
        ),
        ({"input_time": [1, 2]}, "input_time has no effect without time_attr"),
        ({"input_time": [1, 2], "time_attr": "time"}, "input_time must be 300 whole numbers, one per input node"),
        ({"input_time": torch.rand(300), "time_attr": "time"}, "input_time must be whole numbers"),
        (
            {"num_neighbors": neighbor_spec([2]), "replace": True},
            "num_neighbors is a SamplerSpec, .* set replace in it",
        ),
    ],
)
def test_what_means_nothing_is_refused(dataset: Dataset, arguments: dict[str, Any], message: str | None) -> None:
    if message is None:
        arguments, message = {**arguments}, "has times of edges"
    with pytest.raises(ConfigError, match=message):
        load(dataset, **arguments)


def test_negative_weights_are_refused_before_the_first_batch(tmp_path: Path) -> None:
    given = graph()
    given.edge_weight[1234] = -0.5
    dataset = from_pyg(given, tmp_path / "graph")
    with pytest.raises(
        ConfigError, match=r"weights 'edge_weight' must be at least 0 and finite .* got -0.5 at edge 1234"
    ):
        load(dataset, input_nodes=[0], weight_attr="edge_weight")
    with load(dataset, input_nodes=[0]) as loader:
        next(iter(loader))


@pytest.mark.fast(1)
@pytest.mark.parametrize(("memory", "topology"), [("40MB", "cached"), ("500MB", "memory")])
def test_lists_weights_and_times_are_kept_within_the_budget(tmp_path: Path, memory: str, topology: str) -> None:
    """Lists, weights and times of 48 MB are cached in a small budget, with the batches of a large one."""
    generator = torch.Generator().manual_seed(1)
    num_edges = 3_000_000
    given = Data(
        x=torch.rand(5000, 4, generator=generator),
        edge_index=torch.randint(0, 5000, (2, num_edges), generator=generator),
        edge_weight=torch.rand(num_edges, generator=generator),
        edge_time=torch.randint(0, 30, (num_edges,), generator=generator),
    )
    dataset = from_pyg(given, tmp_path / "graph")
    options: dict[str, Any] = {"weight_attr": "edge_weight", "time_attr": "edge_time"}
    options |= {"input_nodes": torch.arange(64), "input_time": torch.full((64,), 20), "batch_size": 8, "threads": 1}
    with load(dataset, (3, 3), memory="500MB", **options) as loader:
        expected = [*loader]
    with pytest.raises(BudgetError, match=r"--memory 16 MB is too small: .*topology .* the smallest that works"):
        load(dataset, (3, 3), memory="16MB", **options)
    with load(dataset, (3, 3), memory=memory, **options) as loader:
        assert loader.plan.topology == topology
        reserved = loader.budget.table()
        assert_same_batches(loader, expected)
    weights, times = {"memory": (4, 8), "cached": (SCAN_BYTES / num_edges,) * 2}[topology]
    assert weights * num_edges <= reserved.get("edge weights", 0) <= weights * num_edges * 1.1
    assert times * num_edges <= reserved.get("edge times", 0) <= times * num_edges * 1.1

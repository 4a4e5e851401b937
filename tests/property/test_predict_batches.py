"""Batches give what one forward pass of PyG over the whole graph gives in float64, whatever graph and model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import GAT, GCN, GIN, GATConv, GCNConv, GINConv, GraphSAGE, LGConv, PNAConv, SAGEConv
from torch_geometric.nn import Sequential as GraphSequential

from diskhop.budget import Budget
from diskhop.config.sampled import ALL_NEIGHBORS
from diskhop.disk.probe import remembered_model
from diskhop.nn.activation import elu, relu
from diskhop.nn.layers.network import MakeLayer
from diskhop.nn.models import GatLayer, GcnLayer, Network, SageLayer
from diskhop.predicting.predict import predict_array
from diskhop.predicting.streamed.run import StreamedRun
from diskhop.runtime.tasks import TaskTools, WorkFolder
from tests.batched import (
    WithNorm,
    assert_close,
    build_graph,
    disturb,
    predict_small,
    small_batches,
    stored_features,
    whole_graph,
)
from tests.examples import examples
from tests.graphs import memory_folder, threads_engine

# Rows and neighbours of a batch: single rows, a few batches, one batch.
ENTRIES = st.sampled_from([1, 25, 1 << 16])


@st.composite
def graphs(draw: Any) -> tuple[Any, Any, str]:
    """Edges with loops, repeats, isolated nodes and perhaps a hub of half of the edges; features; and their dtype."""
    num_nodes = draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    pairs = rng.integers(0, num_nodes, (2, draw(st.integers(1, 120))))
    if draw(st.booleans()):
        pairs[1, ::2] = rng.integers(num_nodes)
    features = rng.normal(size=(num_nodes, draw(st.sampled_from([1, 5, 8])))).astype(np.float32)
    return pairs, features, draw(st.sampled_from(["float32", "float16", "int8"]))


def perceptron(in_dim: int, out_dim: int) -> nn.Module:
    return nn.Sequential(nn.Linear(in_dim, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, out_dim))


LISTS: dict[str, Callable[[int], list[nn.Module]]] = {
    "sage": lambda dim: [SAGEConv(dim, 6), SAGEConv(6, 4, aggr="max")],
    "gcn": lambda dim: [GCNConv(dim, 6), GCNConv(6, 4)],
    "gcn without loops": lambda dim: [GCNConv(dim, 6, add_self_loops=False), LGConv(), GCNConv(6, 4, improved=True)],
    "gat": lambda dim: [GATConv(dim, 3, heads=2), GATConv(6, 4)],
    "gin": lambda dim: [GINConv(perceptron(dim, 6)), GINConv(perceptron(6, 4), train_eps=True)],
    "own module": lambda dim: [WithNorm(dim, 6), GraphSequential("x, e", [(GCNConv(6, 4), "x, e -> x"), nn.Tanh()])],
    "degrees": lambda dim: [PNAConv(dim, 4, ["mean", "std"], ["identity", "amplification"], torch.tensor([1, 2, 3]))],
}


@pytest.mark.parametrize("name", LISTS)
@examples(5)
@given(graph=graphs(), entries=ENTRIES, is_hot=st.booleans())
def test_layers_equal_one_pass_over_the_graph(
    name: str, graph: tuple[Any, Any, str], entries: int, is_hot: bool
) -> None:
    pairs, features, dtype = graph
    torch.manual_seed(0)
    layers = LISTS[name](features.shape[1])
    for layer in layers:
        disturb(layer)
    order = np.random.default_rng(1).permutation(len(features)) if is_hot else None
    with memory_folder(Path(tempfile.gettempdir())) as folder, small_batches(entries):
        dataset = build_graph(folder / "graph", pairs, features, dtype=dtype, order=order)
        store = "direct" if is_hot else None
        actual = predict_array(dataset, layers, memory="80MB", threads=2, engine="threads", store=store)
        stored = dataset.id_map().in_source_order(stored_features(dataset))
    assert_close(actual, whole_graph(layers, stored, pairs))


@pytest.mark.fast(6)
@pytest.mark.parametrize("jk", [None, "last", "cat", "max", "lstm"])
@pytest.mark.parametrize("kind", [GCN, GraphSAGE, GAT, GIN])
@examples(1)
@given(graph=graphs(), entries=ENTRIES)
def test_models_of_pyg_are_taken_as_they_are(
    kind: Any, jk: str | None, graph: tuple[Any, Any, str], entries: int
) -> None:
    pairs, features, dtype = graph
    torch.manual_seed(0)
    options = {"norm": "batch_norm", "act": "elu", "act_first": jk == "cat", "dropout": 0.5}
    model = kind(features.shape[1], 6, 3, 4, jk=jk, **options).train()
    disturb(model)
    with memory_folder(Path(tempfile.gettempdir())) as folder, small_batches(entries):
        dataset = build_graph(folder / "graph", pairs, features, dtype=dtype)
        actual = predict_small(dataset, model, folder / "work", store="direct")
        assert_close(actual, whole_graph(model, stored_features(dataset), pairs))
    assert all(each.training for each in model.modules())


@examples(6)
@given(graph=graphs(), entries=ENTRIES, fanout=st.sampled_from([1, 3, ALL_NEIGHBORS]), seed=st.integers(0, 3))
def test_draws_do_not_depend_on_memory_store_or_threads(
    graph: tuple[Any, Any, str], entries: int, fanout: int, seed: int
) -> None:
    pairs, features, dtype = graph
    torch.manual_seed(0)
    layers = [GCNConv(features.shape[1], 6), SAGEConv(6, 4), GATConv(4, 4)]
    with memory_folder(Path(tempfile.gettempdir())) as folder, small_batches(entries):
        dataset = build_graph(folder / "graph", pairs, features, dtype=dtype)
        ways: list[dict[str, Any]] = [
            {"threads": 1, "memory_bytes": 25_000_000},
            {"threads": 3, "store": "direct"},
            {"threads": 2, "store": "static"},
            {"store": "belady", "scratch": str(folder / "scratch")},
            {"store": "shared"},
            {"store": "memory"},
        ]
        given: dict[str, Any] = {"fanout": [fanout, 2, fanout], "seed": seed}
        first, *others = [predict_small(dataset, layers, folder / "work", **given, **way) for way in ways]
    for other in others:
        np.testing.assert_array_equal(other, first)


OWN: dict[str, MakeLayer] = {
    "sage": lambda in_dim, out_dim, is_last: SageLayer(in_dim, out_dim),
    "gcn": lambda in_dim, out_dim, is_last: GcnLayer(in_dim, out_dim),
    "gat": lambda in_dim, out_dim, is_last: GatLayer(in_dim, out_dim, heads=1 if is_last else 2, dropout=0.5),
}


@pytest.mark.parametrize("name", OWN)
@examples(5)
@given(graph=graphs(), entries=ENTRIES)
def test_networks_of_diskhop_equal_models_of_pyg(name: str, graph: tuple[Any, Any, str], entries: int) -> None:
    pairs, features, dtype = graph
    dim = features.shape[1]
    torch.manual_seed(0)
    network = Network(OWN[name], dim, 6, 4, 3, activation=elu if name == "gat" else relu, dropout=0.5)
    model: nn.Module = {"sage": GraphSAGE, "gcn": GCN}.get(name, GatWithOneHead)(dim, 6, 3, 4)
    model.load_state_dict(network.state_dict())
    with memory_folder(Path(tempfile.gettempdir())) as folder, small_batches(entries):
        dataset = build_graph(folder / "graph", pairs, features, dtype=dtype)
        actual = predict_small(dataset, network, folder / "work", store="direct")
        assert_close(actual, whole_graph(model, stored_features(dataset), pairs))


@pytest.mark.parametrize("name", ["sage", "gcn"])
@examples(5)
@given(graph=graphs(), entries=ENTRIES)
def test_networks_of_diskhop_equal_their_streamed_way(name: str, graph: tuple[Any, Any, str], entries: int) -> None:
    pairs, features, dtype = graph
    torch.manual_seed(0)
    network = Network(OWN[name], features.shape[1], 6, 4, 3)
    # The streamed sums of GCN take self-loops off again, which costs digits where one node has dozens.
    pairs = np.unique(pairs, axis=1)
    with memory_folder(Path(tempfile.gettempdir())) as folder, small_batches(entries):
        dataset = build_graph(folder / "graph", pairs, features, dtype=dtype)
        actual = predict_small(dataset, network, folder / "work", store="direct")
        run = StreamedRun(
            dataset=dataset,
            network=network.eval(),
            wanted=frozenset([3]),
            budget=Budget(80_000_000),
            threads=2,
            tools=TaskTools(threads_engine()),
            disk=remembered_model(dataset.path, "threads"),
        )
        with WorkFolder(folder / "streamed") as work, run.compute(work, lambda _plan: None) as computed:
            (streamed,) = computed.layers.values()
            assert_close(np.concatenate([block.copy() for block in streamed.blocks(7)]), actual.astype(np.float64))


class GatWithOneHead(GAT):  # type: ignore[misc]  # PyG has no types
    """PyG's GAT, its last layer with one head."""

    def __init__(self, in_dim: int, hidden_dim: int, num_layers: int, out_dim: int) -> None:
        super().__init__(in_dim, hidden_dim, num_layers, out_dim, heads=2, act="elu")
        self.convs[-1] = GATConv(hidden_dim, out_dim)

"""Our models on sampled blocks are PyG's models, and on all neighbours they are the whole graph's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import GAT, GCN, GATConv, GraphSAGE

from diskhop._native import BufferPool, make_neighbor_sampler
from diskhop.config.sampled import SampledConfig
from diskhop.errors import ConfigError
from diskhop.nn.layers.aggregate import LayerBlock, mean_and_self, weighted_sum
from diskhop.nn.layers.gcn import GcnLayer
from diskhop.nn.matmul.backends import BACKENDS
from diskhop.nn.matmul.products import Linear
from diskhop.nn.models import LAYERS, Block, Network, build_model
from diskhop.protocols import SampledBatch
from tests.examples import examples

IN_DIM, HIDDEN, OUT_DIM = 5, 8, 3
PYG_MODELS = {"sage": GraphSAGE, "gcn": GCN, "gat": GAT}


def make_config(model: str, fanout: tuple[int, ...], **options: Any) -> SampledConfig:
    chosen: dict[str, Any] = {
        "model": model,
        "layers": len(fanout),
        "hidden": HIDDEN,
        "heads": 2,
        "norm": "none",
        "dropout": 0.0,
        "lr": 0.01,
        "task": "classification",
        "loss": "cross-entropy",
        "metric": "accuracy",
        "fanout": fanout,
        "eval_fanout": fanout,
        "batch_size": 4,
        "eval_batch_size": 4,
        "epochs": 1,
        "memory_bytes": 1 << 30,
        "store": "direct",
        "engine": "auto",
        "threads": 1,
    }
    return SampledConfig(**{**chosen, **options})


class Graph:
    """A random graph with self-loops, parallel edges and isolated nodes."""

    def __init__(self, num_nodes: int, num_edges: int, seed: int) -> None:
        generator = np.random.default_rng(seed)
        edges = generator.integers(0, num_nodes, (2, num_edges))
        order = np.lexsort((edges[0], edges[1]))
        self.edge_index = torch.from_numpy(edges[:, order])
        self.indices = edges[0][order].astype(np.uint32)
        self.indptr = np.concatenate([[0], np.bincount(edges[1], minlength=num_nodes).cumsum()])
        self.x = torch.from_numpy(generator.normal(size=(num_nodes, IN_DIM)).astype(np.float32))

    def sample(self, seeds: list[int], fanout: tuple[int, ...], number: int = 0) -> SampledBatch:
        sampler = make_neighbor_sampler(self.indptr, self.indices, fanout)
        drawn = sampler.sample(np.array(seeds), 0, 0, 0, number, BufferPool(0))
        node_ids, indptr, sources, positions, nodes_by_hop, edges_by_hop, *_ = drawn
        counts = (tuple(nodes_by_hop), tuple(edges_by_hop))
        return SampledBatch(number, len(seeds), node_ids, indptr, sources, positions, *counts)

    def degrees(self, batch: SampledBatch) -> Tensor:
        return torch.from_numpy(np.diff(self.indptr)[batch.node_ids])


def edge_index_of(batch: SampledBatch) -> Tensor:
    targets = np.repeat(np.arange(len(batch.indptr) - 1), np.diff(batch.indptr))
    return torch.from_numpy(np.stack([batch.sources.astype(np.int64), targets]))


def pyg_twin(name: str, network: Network, num_layers: int, **options: Any) -> torch.nn.Module:
    twin: Any = PYG_MODELS[name](IN_DIM, HIDDEN, num_layers, OUT_DIM, **options)
    if name == "gat":
        twin.convs[-1] = GATConv(HIDDEN if num_layers > 1 else IN_DIM, OUT_DIM)
    twin.load_state_dict(network.state_dict())
    return cast(torch.nn.Module, twin.eval())


def twin_options(name: str) -> dict[str, Any]:
    return {"heads": 2, "act": "elu"} if name == "gat" else {}


@pytest.mark.parametrize("name", LAYERS)
@examples(25)
@given(seed=st.integers(0, 10**6), num_layers=st.integers(1, 3), fanout=st.sampled_from([1, 3, -1]))
def test_a_sampled_batch_gives_the_values_and_gradients_of_pyg(
    name: str, seed: int, num_layers: int, fanout: int
) -> None:
    graph = Graph(12, 40, seed)
    batch = graph.sample([3, 0, 7], (fanout,) * num_layers)
    x = graph.x[batch.node_ids]
    network = build_model(make_config(name, (fanout,) * num_layers), IN_DIM, OUT_DIM)
    twin = pyg_twin(name, network, num_layers, **twin_options(name))

    ours = network(x, Block.of(batch))
    theirs = twin(
        x,
        edge_index_of(batch),
        num_sampled_nodes_per_hop=list(batch.num_sampled_nodes),
        num_sampled_edges_per_hop=list(batch.num_sampled_edges),
    )[: batch.num_seeds]
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)

    ours.square().sum().backward()
    theirs.square().sum().backward()
    for (name_of, parameter), other in zip(network.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, atol=1e-4, rtol=1e-3, msg=name_of)


@pytest.mark.parametrize("matmul", BACKENDS)
@pytest.mark.parametrize("name", ["sage", "gcn"])
def test_parameters_come_from_pygs_layers_and_go_back(name: str, matmul: str) -> None:
    graph = Graph(300, 3000, seed=4)
    batch = graph.sample(list(range(40)), (5, 5))
    x = graph.x[batch.node_ids]
    twin = cast(Any, PYG_MODELS[name])(IN_DIM, 32, 2, OUT_DIM)
    network = build_model(make_config(name, (5, 5), hidden=32, matmul=matmul), IN_DIM, OUT_DIM)
    network.load_state_dict(twin.state_dict())
    back = cast(Any, PYG_MODELS[name])(IN_DIM, 32, 2, OUT_DIM)
    back.load_state_dict(network.state_dict())
    sampled = {
        "num_sampled_nodes_per_hop": list(batch.num_sampled_nodes),
        "num_sampled_edges_per_hop": list(batch.num_sampled_edges),
    }
    outputs, gradients = [], []
    for model in (twin, network, back):
        rows = x.clone().requires_grad_()
        out = model(rows, Block.of(batch)) if model is network else model(rows, edge_index_of(batch), **sampled)
        out = out[: batch.num_seeds]
        outputs.append(out)
        gradients.append(torch.autograd.grad(out.square().mean(), [rows, *model.parameters()]))
    assert torch.equal(outputs[0], outputs[2])
    torch.testing.assert_close(outputs[1], outputs[0], atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["sage", "gcn"])
@pytest.mark.parametrize("options", [{}, {"norm": "layer", "residual": True, "dropout": 0.5}, {"norm": "batch"}])
def test_bfloat16_is_float32_to_its_rounding(name: str, options: dict[str, Any]) -> None:
    graph = Graph(300, 3000, seed=4)
    batch = graph.sample(list(range(40)), (5, 5))
    x = graph.x[batch.node_ids]
    results = []
    for precision in ("float32", "bfloat16"):
        torch.manual_seed(0)
        network = build_model(make_config(name, (5, 5), hidden=32, precision=precision, **options), IN_DIM, OUT_DIM)
        out = network(x, Block.of(batch))
        assert out.dtype == torch.float32
        gradients = torch.autograd.grad(out.square().mean(), list(network.parameters()))
        assert all(gradient.dtype == torch.float32 for gradient in gradients)
        results.append((out.detach(), torch.cat([gradient.flatten() for gradient in gradients])))
    for full, short in zip(*results, strict=True):
        assert 0 < float((full - short).norm() / full.norm()) < 0.05


@pytest.mark.parametrize("name", ["sage", "gcn"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_features_of_16_bits_are_read_as_they_are_stored(name: str, dtype: torch.dtype) -> None:
    graph = Graph(30, 300, seed=5)
    batch = graph.sample([4, 9], (3, 3))
    stored = graph.x[batch.node_ids].to(dtype)
    network = build_model(make_config(name, (3, 3)), IN_DIM, OUT_DIM)
    assert torch.equal(network(stored, Block.of(batch)), network(stored.float(), Block.of(batch)))


_SOME_OPTIONS: list[dict[str, Any]] = [
    *({}, {"normalize_input": True}, {"input_dropout": 0.5}, {"norm": "layer", "residual": True}),
    {"norm": "layer", "self_term": True},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("name", "options"),
    [(name, each) for name in LAYERS for each in _SOME_OPTIONS if name != "sage" or "self_term" not in each],
)
def test_rows_that_lie_among_others_give_the_same_bits(name: str, dtype: torch.dtype, options: dict[str, Any]) -> None:
    graph = Graph(60, 600, seed=6)
    batch = graph.sample([4, 9, 30], (3, 3))
    stored = graph.x.abs().to(dtype)
    degrees = graph.degrees(batch)
    network = build_model(make_config(name, (3, 3), **options), IN_DIM, OUT_DIM)
    results = []
    for x, rows in (
        (stored[batch.node_ids], None),
        (stored, torch.from_numpy(batch.node_ids.astype(np.int32))),
    ):
        torch.manual_seed(0)
        out = network(x, Block.of(batch, degrees, rows))
        results.append((out, *torch.autograd.grad(out.square().sum(), list(network.parameters()))))
    for packed, spread in zip(*results, strict=True):
        assert torch.equal(packed, spread)


@pytest.mark.parametrize("name", LAYERS)
@examples(25)
@given(seed=st.integers(0, 10**6), num_layers=st.integers(1, 3))
def test_all_neighbours_and_whole_degrees_give_the_whole_graph(name: str, seed: int, num_layers: int) -> None:
    graph = Graph(12, 30, seed)
    is_loop = graph.edge_index[0] == graph.edge_index[1]
    graph = without_edges(graph, is_loop.numpy())
    fanout = (-1,) * num_layers
    batch = graph.sample([5, 1], fanout)
    network = build_model(make_config(name, fanout), IN_DIM, OUT_DIM)
    whole = pyg_twin(name, network, num_layers, **twin_options(name))(graph.x, graph.edge_index)
    ours = network(graph.x[batch.node_ids], Block.of(batch, graph.degrees(batch)))
    torch.testing.assert_close(ours, whole[[5, 1]], atol=1e-5, rtol=1e-4)


def without_edges(graph: Graph, is_removed: np.ndarray[Any, np.dtype[np.bool_]]) -> Graph:
    graph.edge_index = graph.edge_index[:, torch.from_numpy(~is_removed)]
    graph.indices = graph.edge_index[0].numpy().astype(np.uint32)
    counts = np.bincount(graph.edge_index[1].numpy(), minlength=len(graph.x))
    graph.indptr = np.concatenate([[0], counts.cumsum()])
    return graph


def test_gcn_by_whole_degrees_is_right_in_expectation_when_neighbours_are_drawn() -> None:
    graph = Graph(30, 300, seed=1)
    layer = GcnLayer(IN_DIM, OUT_DIM).eval()

    def run(fanout: int, number: int) -> Tensor:
        batch = graph.sample([4, 9], (fanout,), number)
        block = Block.of(batch, graph.degrees(batch)).layer(0)
        out: Tensor = layer(graph.x[batch.node_ids], block)
        return out.detach()

    draws = torch.stack([run(2, number) for number in range(400)])
    spread = draws.std(dim=0) / len(draws) ** 0.5
    assert ((draws.mean(dim=0) - run(-1, 0)).abs() < 5 * spread).all()
    assert (spread > 0).all()


def test_aggregation_is_the_mean_beside_the_row_and_the_weighted_sum() -> None:
    x = torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    indptr, sources = torch.tensor([0, 2, 2], dtype=torch.int32), torch.tensor([0, 2], dtype=torch.int32)
    layer = LayerBlock(indptr, sources, 3)
    assert mean_and_self(x, layer).tolist() == [[2.5, 25.0, 1.0, 10.0], [0.0, 0.0, 2.0, 20.0]]
    weights = torch.tensor([2.0, 0.5]), torch.tensor([1.0, 3.0])
    assert weighted_sum(x, layer, *weights).tolist() == [[5.0, 50.0], [6.0, 60.0]]


def test_aggregation_adds_in_the_order_of_edges_whatever_the_threads() -> None:
    graph = Graph(2000, 40_000, seed=2)
    x = torch.randn(2000, 100, generator=torch.Generator().manual_seed(0))
    layer = Block.of(graph.sample(list(range(500)), (20,))).layer(0)
    before = torch.get_num_threads()
    results = []
    try:
        for num_threads in (1, 2, 5):
            torch.set_num_threads(num_threads)
            rows = x[: layer.num_sources].clone().requires_grad_()
            out = mean_and_self(rows, layer)
            (gradient,) = torch.autograd.grad(out.square().sum(), rows)
            results.append((out, gradient))
    finally:
        torch.set_num_threads(before)
    for out, gradient in results[1:]:
        assert torch.equal(out, results[0][0])
        assert torch.equal(gradient, results[0][1])


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("options", [{"norm": "layer", "residual": True}, {"norm": "batch"}, {"normalize_input": True}])
def test_a_batch_without_edges_has_values_and_gradients(name: str, options: dict[str, Any]) -> None:
    graph = Graph(6, 0, seed=0)
    batch = graph.sample([2, 3], (4, 4))
    network = build_model(make_config(name, (4, 4), **options), IN_DIM, OUT_DIM)
    out = network(graph.x[batch.node_ids].half(), Block.of(batch))
    out.sum().backward()
    assert out.shape == (2, OUT_DIM)
    assert out.isfinite().all()


def test_batch_norm_takes_a_batch_of_one_row() -> None:
    graph = Graph(6, 0, seed=0)
    batch = graph.sample([2], (4, 4))
    network = build_model(make_config("sage", (4, 4), norm="batch"), IN_DIM, OUT_DIM)
    in_training = network(graph.x[batch.node_ids], Block.of(batch))
    assert torch.equal(in_training, network.eval()(graph.x[batch.node_ids], Block.of(batch)))


def test_residual_adds_the_layers_input() -> None:
    graph = Graph(10, 30, seed=3)
    batch = graph.sample([1], (-1, -1))
    network = build_model(make_config("sage", (-1, -1), residual=True, hidden=IN_DIM), IN_DIM, OUT_DIM)
    plain = build_model(make_config("sage", (-1, -1), hidden=IN_DIM), IN_DIM, OUT_DIM)
    plain.load_state_dict(network.state_dict())
    with torch.no_grad():
        for parameter in network.convs[0].parameters():
            parameter.zero_()
    # A first layer that gives nothing leaves the features as they were.
    x = graph.x[batch.node_ids]
    block = Block.of(batch)
    layer = block.layer(1)
    assert torch.equal(network(x, block), network.convs[1](x[: layer.num_sources], layer))


@pytest.mark.parametrize("name", ["gcn", "gat"])
@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
def test_self_terms_are_linear_maps_of_each_layers_input_before_its_norm(name: str, norm: str) -> None:
    graph = Graph(40, 200, seed=3)
    batch = graph.sample([1, 7, 2], (-1, -1))
    network = build_model(make_config(name, (-1, -1), self_term=True, norm=norm), IN_DIM, OUT_DIM).eval()
    h, block = graph.x[batch.node_ids], Block.of(batch)
    for number, conv in enumerate(network.convs):
        layer, term = block.layer(number), network.self_terms[number]
        assert isinstance(term, Linear)
        h = conv(h, layer) + functional.linear(h[: layer.num_targets], term.weight, term.bias)
        h = network.finished(number, h)
    torch.testing.assert_close(network(graph.x[batch.node_ids], block), h, atol=1e-6, rtol=1e-6)


def test_dropout_acts_in_training_only() -> None:
    graph = Graph(10, 30, seed=3)
    batch = graph.sample([1], (-1, -1))
    network = build_model(make_config("sage", (-1, -1), dropout=0.5, input_dropout=0.5), IN_DIM, OUT_DIM)
    x, block = graph.x[batch.node_ids], Block.of(batch)
    assert not torch.equal(network(x, block), network(x, block))
    network.eval()
    assert torch.equal(network(x, block), network(x, block))


@pytest.mark.parametrize(("option", "known"), [("model", "sage, gcn, gat"), ("norm", "none, batch, layer")])
def test_an_unknown_name_lists_the_known_ones(option: str, known: str) -> None:
    changes: dict[str, Any] = {option: "nonsense"}
    with pytest.raises(ConfigError, match=f"unknown {option} 'nonsense'.*{known}"):
        build_model(replace(make_config("sage", (2,)), **changes), IN_DIM, OUT_DIM)

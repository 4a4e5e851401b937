"""Weighted layers equal PyG's, and dense products in float64, for weights of any sign."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch_geometric.nn import GCNConv

from diskhop._native import BufferPool
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.nn.layers.aggregate import BlockWeights, LayerBlock, mean_and_self
from diskhop.nn.layers.gcn import GcnLayer
from diskhop.nn.layers.sage import SageLayer
from diskhop.pipeline.edge_weights import EdgeWeights, sum_strengths
from diskhop.protocols import Purpose, neighbor_spec
from diskhop.sampling.neighbor import NeighborSampler
from diskhop.sampling.topology import open_topology
from tests.examples import examples
from tests.graphs import threads_engine
from tests.runs import import_arrays

SIGNS = ["positive", "signed", "zero"]


def random_weights(num_edges: int, signs: str, seed: int = 0) -> NDArray[np.float32]:
    generator = np.random.default_rng(seed)
    weights = generator.uniform(0.1, 3, num_edges)
    if signs == "signed":
        weights *= generator.choice([-1, 1], num_edges)
    elif signs == "zero":
        weights[generator.random(num_edges) < 0.2] = 0
    return weights.astype(np.float32)


def whole_block(num_nodes: int, edge_index: NDArray[Any], weights: NDArray[np.float32]) -> LayerBlock:
    """All edges of a graph, in which every node is a target."""
    order = np.argsort(edge_index[1], kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(edge_index[1], minlength=num_nodes))]).astype(np.int32)
    sources = torch.from_numpy(edge_index[0][order].astype(np.int32))
    return LayerBlock(
        torch.from_numpy(indptr), sources, num_nodes, weights=BlockWeights(torch.from_numpy(weights[order]))
    )


def random_edges(num_nodes: int, num_edges: int, seed: int) -> NDArray[np.int64]:
    """Edges with repeats, but each node's edge to itself once: which of several PyG takes is not defined."""
    edges = np.random.default_rng(seed).integers(0, num_nodes, (2, num_edges))
    is_loop = edges[0] == edges[1]
    loops = np.unique(edges[0][is_loop])
    return np.concatenate([edges[:, ~is_loop], np.stack([loops, loops])], axis=1)


def dense_gcn(num_nodes: int, edges: NDArray[Any], weights: NDArray[Any]) -> NDArray[np.float64]:
    """The matrix of the weighted GCN: absolute weights in the degrees, loops of weight 1 where there is none."""
    matrix = np.zeros((num_nodes, num_nodes))
    loops = np.ones(num_nodes)
    for (source, target), weight in zip(edges.T.tolist(), weights.tolist(), strict=True):
        if source == target:
            loops[source] = weight
        else:
            matrix[target, source] += weight
    # Degrees sum absolute weights edge by edge: two edges between the same nodes may have other signs.
    degrees = np.abs(loops)
    for (source, target), weight in zip(edges.T.tolist(), weights.tolist(), strict=True):
        degrees[target] += abs(weight) * (source != target)
    scale = np.divide(1, np.sqrt(degrees), out=np.zeros(num_nodes), where=degrees > 0)
    return scale[:, None] * (matrix + np.diag(loops)) * scale[None, :]


@pytest.mark.parametrize("signs", SIGNS)
@examples(30)
@given(seed=st.integers(0, 10**6), num_nodes=st.integers(1, 20), num_edges=st.integers(0, 60))
def test_gcn_equals_a_dense_product_and_pyg(signs: str, seed: int, num_nodes: int, num_edges: int) -> None:
    edges = random_edges(num_nodes, num_edges, seed)
    weights = random_weights(edges.shape[1], signs, seed)
    torch.manual_seed(seed)
    layer, x = GcnLayer(5, 3), torch.randn(num_nodes, 5)
    block = whole_block(num_nodes, edges, weights)
    with torch.no_grad():
        found = layer(x, block)
        expected = dense_gcn(num_nodes, edges, weights) @ x.double().numpy() @ layer.lin.weight.double().numpy().T
        np.testing.assert_allclose(found.numpy(), expected + layer.bias.numpy(), atol=2e-5)
        if signs != "signed":
            pyg = GCNConv(5, 3)
            pyg.load_state_dict(layer.state_dict())
            same = pyg(x, torch.from_numpy(edges), torch.from_numpy(weights))
            torch.testing.assert_close(found, same, rtol=1e-4, atol=1e-5)
        assert found.isfinite().all()


@pytest.mark.parametrize("signs", SIGNS)
@examples(30)
@given(seed=st.integers(0, 10**6), num_nodes=st.integers(1, 20), num_edges=st.integers(0, 60))
def test_sage_takes_the_weighted_mean(signs: str, seed: int, num_nodes: int, num_edges: int) -> None:
    edges = random_edges(num_nodes, num_edges, seed)
    weights = random_weights(edges.shape[1], signs, seed)
    torch.manual_seed(seed)
    x = torch.randn(num_nodes, 4)
    block = whole_block(num_nodes, edges, weights)
    sums, totals = np.zeros((num_nodes, 4)), np.zeros(num_nodes)
    np.add.at(sums, edges[1], weights[:, None] * x.double().numpy()[edges[0]])
    np.add.at(totals, edges[1], np.abs(weights))
    expected = sums / np.where(totals == 0, 1, totals)[:, None]
    found = mean_and_self(x, block)
    np.testing.assert_allclose(found[:, :4].numpy(), expected, atol=1e-5)
    assert torch.equal(found[:, 4:], x)


def test_equal_weights_change_nothing() -> None:
    edges = random_edges(20, 60, 3)
    block = whole_block(20, edges, np.full(edges.shape[1], 0.5, np.float32))
    plain = LayerBlock(block.indptr, block.sources, block.num_sources)
    x = torch.randn(20, 6)
    torch.testing.assert_close(mean_and_self(x, block), mean_and_self(x, plain))
    ones = LayerBlock(block.indptr, block.sources, 20, weights=BlockWeights(torch.ones(edges.shape[1])))
    layer = GcnLayer(6, 2)
    torch.testing.assert_close(layer(x, ones), layer(x, plain))


@pytest.mark.parametrize("make", [GcnLayer, SageLayer])
def test_gradients_of_weighted_sums_equal_torchs(make: Any) -> None:
    edges = random_edges(15, 50, 4)
    weights = random_weights(edges.shape[1], "signed", 4)
    block, layer = whole_block(15, edges, weights), make(4, 3)
    x = torch.randn(15, 4, requires_grad=True)
    layer(x, block).square().sum().backward()
    given, steps = x.detach().clone(), 1e-2
    for row, column in ((0, 0), (7, 3), (14, 1)):
        moved = [given.clone(), given.clone()]
        moved[0][row, column] += steps
        moved[1][row, column] -= steps
        with torch.no_grad():
            up, down = (float(layer(each, block).double().square().sum()) for each in moved)
        assert x.grad is not None
        assert float(x.grad[row, column]) == pytest.approx((up - down) / (2 * steps), rel=2e-3, abs=1e-3)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    edges = random_edges(40, 300, 5)
    return import_arrays(
        tmp_path_factory.mktemp("weights"),
        edge_index=edges,
        edge_weight=random_weights(edges.shape[1], "signed", 5),
        x=np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32),
        y=np.arange(40) % 3,
    )


def test_strengths_are_sums_of_absolute_weights(dataset: Dataset) -> None:
    found = sum_strengths(dataset)
    weights, expected, loops = dataset.edge_weights(), np.zeros(40), np.ones(40)
    assert weights is not None
    indptr = np.fromfile(dataset.topology.indptr_path, np.int64)
    indices = np.fromfile(dataset.topology.indices_path, np.uint32)
    for node in range(40):
        for edge in range(indptr[node], indptr[node + 1]):
            if indices[edge] == node:
                loops[node] = weights[edge]
            else:
                expected[node] += abs(weights[edge])
    np.testing.assert_allclose(found.strengths, expected, rtol=1e-6)
    np.testing.assert_array_equal(found.loops_of(np.arange(40)), loops.astype(np.float32))


@pytest.mark.parametrize("memory_bytes", [1 << 20, 1000])
def test_weights_in_memory_and_on_disk_are_the_same(dataset: Dataset, memory_bytes: int) -> None:
    weights = EdgeWeights(dataset, memory_bytes, with_strengths=True)
    assert ("edge weights" in weights.reserved) == (memory_bytes > 10_000)
    opened = weights.open(threads_engine(), 4096)
    stored = dataset.edge_weights()
    assert stored is not None
    with open_topology(dataset.topology, "memory", threads_engine(), Budget(1 << 20)) as topology:
        sampler = NeighborSampler(topology, neighbor_spec((3, 2)), 0, BufferPool(0))
        batch = sampler.sample(np.arange(5), purpose=Purpose.TRAIN, epoch=0, number=0)
    found = opened.of(batch)
    np.testing.assert_array_equal(found.edges.numpy(), stored[batch.edge_positions])
    assert found.strengths is not None
    np.testing.assert_array_equal(found.strengths.numpy(), sum_strengths(dataset).strengths[batch.node_ids])
    assert opened.of(batch, with_strengths=False).strengths is None

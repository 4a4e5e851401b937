"""Models on a device, by torch and by Triton's kernels, give the values and gradients of the core."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from diskhop.nn.layers.aggregate import BlockWeights
from diskhop.nn.models import LAYERS, Block, build_model
from tests.devices import BY_INTERPRETER, as_on_a_device
from tests.unit.test_models import IN_DIM, OUT_DIM, Graph, make_config

ROADS = [pytest.param(False, id="torch"), pytest.param(True, id="triton", marks=BY_INTERPRETER)]


def run(name: str, graph: Graph, weighted: bool, **options: Any) -> list[Tensor]:
    batch = graph.sample([3, 0, 7], (3, 2))
    torch.manual_seed(0)
    network = build_model(make_config(name, (3, 2), **options), IN_DIM, OUT_DIM)
    weights = None
    if weighted:
        weights = BlockWeights(torch.from_numpy(np.random.default_rng(1).normal(size=len(batch.sources)).astype("f4")))
    x = graph.x[batch.node_ids].requires_grad_()
    out = network(x, Block.of(batch, graph.degrees(batch) if name == "gcn" else None, weights=weights))
    return [out, *torch.autograd.grad(out.square().sum(), [x, *network.parameters()])]


@pytest.mark.fast("torch", "gat-options0-triton", "gcn-options0-triton", "sage-options0-triton")
@pytest.mark.parametrize("kernels", ROADS)
@pytest.mark.parametrize("options", [{}, {"norm": "layer", "residual": True}, {"norm": "batch"}])
@pytest.mark.parametrize("name", LAYERS)
def test_a_model_on_a_device_is_the_one_on_the_cpu(name: str, options: dict[str, Any], kernels: bool) -> None:
    graph = Graph(40, 200, seed=2)
    expected = run(name, graph, weighted=False, **options)
    with as_on_a_device(kernels=kernels):
        found = run(name, graph, weighted=False, **options)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.fast("torch", "gcn-triton")
@pytest.mark.parametrize("kernels", ROADS)
@pytest.mark.parametrize("name", ["sage", "gcn"])
def test_weights_of_edges_count_as_on_the_cpu(name: str, kernels: bool) -> None:
    graph = Graph(40, 200, seed=2)
    expected = run(name, graph, weighted=True)
    with as_on_a_device(kernels=kernels):
        found = run(name, graph, weighted=True)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", LAYERS)
def test_dropout_on_a_device_is_repeatable_and_drops_its_share(name: str) -> None:
    graph = Graph(400, 4000, seed=2)
    with as_on_a_device(kernels=False):
        first, again = (run(name, graph, weighted=False, dropout=0.5, hidden=64) for _ in range(2))
        kept = run(name, graph, weighted=False, hidden=64)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(first, again, strict=True))
    assert not torch.equal(first[0], kept[0])

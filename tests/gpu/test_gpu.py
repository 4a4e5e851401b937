"""Batches, kernels and models on a GPU against those in memory. Skipped where there is no GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor

import diskhop
from diskhop.nn.kernels import triton_softmax, triton_sums
from diskhop.nn.kernels.assembly import assembly_reference
from diskhop.nn.kernels.leveled_rows import LeveledRows
from diskhop.nn.kernels.lists import NeighborLists
from diskhop.nn.kernels.softmax import gradient_reference, softmax_reference
from diskhop.nn.kernels.sums import products_reference, sums_reference
from diskhop.nn.kernels.triton_assembly import assemble_by_triton
from diskhop.nn.models import LAYERS, Block, build_model
from diskhop.nn.reproducible import reproducible
from diskhop.nn.typed.block import TypedBlock
from tests.examples import examples
from tests.mini_batches import assert_same_batches
from tests.runs import small_graph
from tests.typed_graphs import typed_dataset
from tests.unit.test_device_rows import DTYPES, leveled
from tests.unit.test_kernels import EPSILON, Case, by_head, cases
from tests.unit.test_models import IN_DIM, OUT_DIM, Graph, make_config
from tests.unit.test_typed_models import VARIANTS, make, rows_of, sample

DEVICE = torch.device("cuda")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here: pytest -m gpu runs these where one is"),
]


def on_device(lists: NeighborLists) -> NeighborLists:
    moved = (
        None if each is None else each.to(DEVICE)
        for each in (lists.indptr, lists.sources, lists.weights, lists.own_weights)
    )
    return NeighborLists(*moved)  # type: ignore[arg-type]


# 500 and 900 rows of 128 bytes, or none, on the device; the next in pinned memory where a store keeps some.
@pytest.mark.parametrize(
    ("store", "device_memory"),
    [
        ("direct", None),
        ("shared", None),
        ("belady", 64_000),
        ("static", 64_000),
        ("packed", 64_000),
        ("memory", 115_200),
    ],
)
def test_batches_have_the_bytes_of_those_in_memory(tmp_path: Path, store: str, device_memory: int | None) -> None:
    dataset = small_graph(tmp_path / "g", num_nodes=3000, num_edges=40_000, dim=32)
    arguments: dict[str, Any] = {"num_neighbors": [10, 5], "batch_size": 100, "memory": "60MB", "store": store}
    arguments |= {"input_nodes": "train", "ordered": store == "shared", "shuffle": True}
    with diskhop.NeighborLoader(dataset, **arguments) as loader:
        expected = list(loader)
    with diskhop.NeighborLoader(dataset, **arguments, device=DEVICE, device_memory=device_memory) as loader:
        assert (loader.plan.row_places is None) == (device_memory is None)
        found = []
        for batch in loader:
            assert batch.x.device.type == batch.block.sources.device.type == DEVICE.type
            found.append(batch.cpu())
    assert_same_batches(found, expected)


@examples(100)
@given(case=cases())
def test_sums_are_the_references(case: Case) -> None:
    found = triton_sums.sums_by_triton(case.x.to(DEVICE), on_device(case.lists), torch.float32).cpu()
    expected = sums_reference(case.x, case.lists, torch.float32)
    # A compiled kernel may fuse a product and a sum: each term is rounded once instead of twice.
    weights, own = case.lists.weights, case.lists.own_weights
    absolute = replace(
        case.lists,
        weights=None if weights is None else weights.abs(),
        own_weights=None if own is None else own.abs(),
    )
    magnitude = sums_reference(case.x.abs(), absolute, torch.float32)
    assert bool(((found - expected).abs() <= 32 * EPSILON * magnitude).all())


@examples(100)
@given(case=cases())
def test_products_and_softmax_are_the_references(case: Case) -> None:
    generator, lists = torch.Generator().manual_seed(0), on_device(case.lists)
    grad = torch.randn(case.lists.num_lists, case.x.shape[1], generator=generator)
    found = triton_sums.products_by_triton(case.x.to(DEVICE), grad.to(DEVICE), lists, case.num_heads).cpu()
    rows = case.x[case.lists.sources.long()].float() * grad[case.lists.list_of_edge()]
    difference = (found - products_reference(case.x, grad, case.lists, case.num_heads)).abs()
    assert bool((difference <= 16 * EPSILON * by_head(rows.abs(), case).sum(2)).all())
    scores = 10 * torch.randn(len(case.lists.sources), case.num_heads, generator=generator)
    weights = softmax_reference(scores, case.lists)
    softmax = triton_softmax.softmax_by_triton(scores.to(DEVICE), lists).cpu()
    torch.testing.assert_close(softmax, weights, rtol=32 * EPSILON, atol=EPSILON)
    grad = torch.randn(scores.shape, generator=generator)
    gradient = triton_softmax.gradient_by_triton(weights.to(DEVICE), grad.to(DEVICE), lists).cpu()
    expected = gradient_reference(weights, grad, case.lists)
    torch.testing.assert_close(gradient, expected, rtol=64 * EPSILON, atol=64 * EPSILON)


@pytest.mark.parametrize("dtype", DTYPES)
def test_assembled_rows_are_the_references_also_from_pinned_memory(dtype: torch.dtype) -> None:
    rows, values = leveled(dtype, 37, (50, 60, 70), seed=1)
    there = LeveledRows(rows.device.to(DEVICE), rows.host.pin_memory(), rows.staged.to(DEVICE))
    indices = torch.randint(0, 180, (400,), generator=torch.Generator().manual_seed(0))
    starts = torch.tensor([0, 50, 110])
    levels = torch.bucketize(indices, starts, right=True) - 1
    addresses = (levels << 48) | (indices - starts[levels])
    found = assemble_by_triton(there, addresses.to(DEVICE))
    assert torch.equal(found.cpu(), values[indices])
    assert torch.equal(assembly_reference(there, addresses.to(DEVICE)), found)


@pytest.mark.parametrize("name", LAYERS)
def test_a_model_is_the_one_on_the_cpu_and_repeats_itself(name: str) -> None:
    graph = Graph(400, 4000, seed=2)
    batch = graph.sample(list(range(20)), (5, 4))

    def run(device: torch.device) -> list[Tensor]:
        torch.manual_seed(0)
        network = build_model(make_config(name, (5, 4)), IN_DIM, OUT_DIM).to(device)
        x = graph.x[batch.node_ids].to(device).requires_grad_()
        block = Block.of(batch, graph.degrees(batch) if name == "gcn" else None)
        out = network(x, block.mapped(lambda tensor: tensor.to(device)))
        results = [out, *torch.autograd.grad(out.square().sum(), [x, *network.parameters()])]
        return [each.detach().cpu() for each in results]

    expected, found, again = run(torch.device("cpu")), run(DEVICE), run(DEVICE)
    for ours, theirs, repeated in zip(found, expected, again, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
        assert torch.equal(ours, repeated)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_typed_model_is_the_one_on_the_cpu_and_repeats_itself(variant: str) -> None:
    batch, _ = sample(degree=8)

    def run(device: torch.device) -> list[Tensor]:
        x = {name: rows.to(device).requires_grad_() for name, rows in rows_of(batch).items()}
        network = make(variant).to(device)
        out = network(x, TypedBlock.of(batch).mapped(lambda tensor: tensor.to(device)))
        wanted = [*x.values(), *network.parameters()]
        grads = torch.autograd.grad(out.square().sum(), wanted, allow_unused=True)
        return [each.detach().cpu() for each in (out, *grads) if each is not None]

    with reproducible(1, DEVICE):
        expected, found, again = run(torch.device("cpu")), run(DEVICE), run(DEVICE)
    for ours, theirs, repeated in zip(found, expected, again, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
        assert torch.equal(ours, repeated)


def test_typed_models_and_links_train_as_on_the_cpu(tmp_path: Path) -> None:
    _, typed = typed_dataset(tmp_path / "typed")
    graph = small_graph(tmp_path / "g", num_nodes=300, num_edges=1500, dim=8)
    common: dict[str, Any] = {"epochs": 2, "hidden": 16, "fanout": (4, 4), "memory": "100MB", "dropout": 0.0}
    for dataset, more in ((typed, {"model": "rgcn"}), (typed, {"model": "hgt", "heads": 2}), (graph, {"task": "link"})):
        runs = [diskhop.train(dataset, device=device, **common, **more) for device in ("cpu", "cuda")]
        expected, found = ([epoch["loss"] for epoch in each.result["epochs"]] for each in runs)
        assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("store", ["direct", "static", "memory"])
def test_batches_with_types_have_the_bytes_of_those_in_memory(tmp_path: Path, store: str) -> None:
    _, typed = typed_dataset(tmp_path / "typed")
    arguments: dict[str, Any] = {"num_neighbors": [5, 3], "batch_size": 20, "memory": "80MB", "store": store}
    with diskhop.NeighborLoader(typed, input_nodes="paper", **arguments) as loader:
        expected = list(loader)
    with diskhop.NeighborLoader(typed, input_nodes="paper", **arguments, device=DEVICE, device_memory=1000) as loader:
        assert loader.plan.row_places is not None
        found = []
        for batch in loader:
            assert all(x.device.type == DEVICE.type for x in batch.x_dict.values())
            found.append(batch.cpu())
    assert_same_batches(found, expected)


def test_batches_of_links_have_the_bytes_of_those_in_memory(tmp_path: Path) -> None:
    graph = small_graph(tmp_path / "g", num_nodes=3000, num_edges=40_000, dim=32)
    arguments: dict[str, Any] = {"num_neighbors": [10, 5], "batch_size": 4000, "memory": "60MB", "store": "static"}
    with diskhop.LinkNeighborLoader(graph, neg_sampling="binary", **arguments) as loader:
        expected = list(loader)
    with diskhop.LinkNeighborLoader(
        graph, neg_sampling="binary", **arguments, device=DEVICE, device_memory=64_000
    ) as loader:
        found = []
        for batch in loader:
            assert batch.x.device.type == batch.edge_label_index.device.type == DEVICE.type
            found.append(batch.cpu())
    assert_same_batches(found, expected)

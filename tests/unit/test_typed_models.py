"""Typed models on sampled blocks: each layer computes what the next needs, and nothing depends on threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from diskhop.batches.typed import TypedBatch, split_types
from diskhop.dataset.type_map import MergedEdges, TypeMap
from diskhop.errors import ConfigError
from diskhop.nn.matmul.placed import PlacedRows
from diskhop.nn.matmul.products import DEFAULT_PRODUCTS, Products
from diskhop.nn.reproducible import torch_threads
from diskhop.nn.typed.block import RelationLists, TypedBlock
from diskhop.nn.typed.models import TYPED_MODELS, TypedOptions, build_typed_model
from diskhop.nn.typed.network import TypedNetwork, TypeRows
from diskhop.nn.typed.schema import TypedSchema
from diskhop.protocols import SampledBatch
from tests.unit.typed_blocks import RELATIONS

COUNTS = {"paper": 60, "author": 40, "venue": 5}
DIMS = {"paper": 7, "author": 0, "venue": 3}
SCHEMA = TypedSchema(DIMS, RELATIONS)
OPTIONS = TypedOptions(hidden=16, heads=4, dropout=0.0, edge_dim=8)
HOPS, SEEDS = 2, 6
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in TYPED_MODELS},
    "hetero-sage attended": ("hetero-sage", {"relations": "attend"}),
    "rgcn bases": ("rgcn", {"num_bases": 3}),
    "rgcn blocks": ("rgcn", {"num_blocks": 4}),
}


def sample(
    seed: int = 0, degree: int = 4, counts: dict[str, int] = COUNTS, num_seeds: int = SEEDS
) -> tuple[TypedBatch, TypeMap]:
    """All neighbours of the first papers, hop by hop, in the order of a merged batch."""
    random = np.random.default_rng(seed)
    type_map = TypeMap(counts, tuple(MergedEdges(ends[1], ends, counts[ends[2]] * degree) for ends in RELATIONS))
    lists = {ends: random.integers(0, counts[ends[0]], (counts[ends[2]], degree)) for ends in RELATIONS}
    nodes, place = list(range(num_seeds)), {node: node for node in range(num_seeds)}
    indptr, sources, positions = [0], [], []
    new_nodes, first = [num_seeds], 0
    new_edges: list[int] = []
    for _ in range(HOPS):
        last = len(nodes)
        for node in nodes[first:last]:
            kind = type_map.node_types[int(type_map.node_type_of(np.array([node]))[0])]
            row = node - type_map.first_row(kind)
            for number, ends in enumerate(RELATIONS):
                for draw, source in enumerate(lists[ends][row].tolist() if ends[2] == kind else []):
                    merged = type_map.first_row(ends[0]) + source
                    if merged not in place:
                        place[merged] = len(nodes)
                        nodes.append(merged)
                    sources.append(place[merged])
                    positions.append(int(type_map.edge_starts[number]) + row * degree + draw)
            indptr.append(len(sources))
        new_nodes.append(len(nodes) - last)
        new_edges.append(len(sources) - sum(new_edges))
        first = last
    sampled = SampledBatch(
        number=0,
        num_seeds=num_seeds,
        node_ids=np.array(nodes, np.int64),
        indptr=np.array(indptr, np.int64),
        sources=np.array(sources, np.int32),
        edge_positions=np.array(positions, np.int64),
        num_sampled_nodes=tuple(new_nodes),
        num_sampled_edges=tuple(new_edges),
    )
    return split_types(sampled, type_map), type_map


def rows_of(batch: TypedBatch, options: TypedOptions = OPTIONS) -> dict[str, Tensor]:
    torch.manual_seed(1)
    return {name: torch.randn(len(part.node_ids), DIMS[name] or options.hidden) for name, part in batch.parts.items()}


def make(variant: str, options: TypedOptions = OPTIONS, products: Products = DEFAULT_PRODUCTS) -> TypedNetwork:
    name, more = VARIANTS[variant]
    torch.manual_seed(0)
    return build_typed_model(name, SCHEMA, "paper", 3, replace(options, **more), products)


def all_nodes(block: TypedBlock) -> TypedBlock:
    """The same edges, for layers that compute every node."""
    num_nodes = {name: sum(counts) for name, counts in block.num_sampled_nodes.items()}
    lists = {}
    for ends, each in block.lists.items():
        missing = num_nodes[ends[2]] - each.num_targets
        lists[ends] = RelationLists(torch.cat([each.indptr, each.indptr[-1:].expand(missing)]), each.sources)
    return TypedBlock(
        {name: (*counts, 0) for name, counts in block.num_sampled_nodes.items()},
        {ends: (*counts, 0) for ends, counts in block.num_sampled_edges.items()},
        lists,
        by_hop=False,
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_layers_that_compute_fewer_nodes_give_the_same(variant: str) -> None:
    batch, _ = sample()
    block, x = TypedBlock.of(batch), rows_of(batch)
    model = make(variant, replace(OPTIONS, norm="layer"))
    whole = all_nodes(block)
    assert whole.num_layers == block.num_layers == HOPS
    out, expected = model(x, block), model(x, whole)
    assert out.shape == (SEEDS, 3)
    torch.testing.assert_close(out, expected[:SEEDS], atol=1e-5, rtol=1e-5)


@pytest.mark.fast("hetero-sage", "rgcn", "hgt")
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_model_learns_and_its_gradients_reach_every_type(variant: str) -> None:
    batch, _ = sample()
    block, x = TypedBlock.of(batch), rows_of(batch)
    x = {name: rows.requires_grad_() for name, rows in x.items()}
    model = make(variant)
    labels = torch.arange(SEEDS) % 3
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x, block), labels)
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    assert all(rows.grad is not None and bool(rows.grad.any()) for rows in x.values())
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_threads_change_no_more_than_rounding(variant: str) -> None:
    batch, _ = sample(degree=30, counts={"paper": 900, "author": 700, "venue": 50})
    block, options = TypedBlock.of(batch), replace(OPTIONS, hidden=64, dropout=0.3)
    x, model = rows_of(batch, options), make(variant, options)
    results = []
    for num_threads in (1, 3):
        with torch_threads(num_threads):
            torch.manual_seed(5)
            model.zero_grad()
            out = model(x, block)
            torch.autograd.backward(out.sum())
            results.append([out, *(each.grad for each in model.parameters() if each.grad is not None)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_products_of_bfloat16_give_about_the_same(variant: str) -> None:
    batch, _ = sample()
    block, x = TypedBlock.of(batch), rows_of(batch)
    results = []
    for precision in ("float32", "bfloat16"):
        model = make(variant, products=Products(precision=precision))
        out = model(x, block)
        assert out.dtype == torch.float32
        torch.autograd.backward(torch.nn.functional.cross_entropy(out, torch.arange(SEEDS) % 3))
        grads = [each.grad for each in model.parameters() if each.grad is not None]
        results.append([out.detach(), torch.cat([each.flatten() for each in grads])])
    for exact, rounded in zip(*results, strict=True):
        assert 0 < float((exact - rounded).norm()) < 0.03 * float(exact.norm())


@pytest.mark.parametrize("input_dropout", [0.0, 0.5])
def test_features_may_lie_in_a_larger_matrix(input_dropout: float) -> None:
    batch, _ = sample()
    x = rows_of(batch)
    model = make("hetero-sage", replace(OPTIONS, input_dropout=input_dropout))
    placed: dict[str, TypeRows] = dict(x)
    # Of a type without a map of features, and of one that the batch has no nodes of, too.
    x["venue"] = x["venue"][:0]
    for name, rows in x.items():
        places = torch.randperm(len(rows) + 10)[: len(rows)]
        matrix = torch.full((len(rows) + 10, rows.shape[1]), torch.nan)
        matrix[places] = rows
        placed[name] = PlacedRows(matrix, places)
    results = []
    for given in (x, placed):
        torch.manual_seed(5)
        results.append(model.project(given))
    for name, rows in results[0].items():
        assert torch.equal(results[1][name], rows)


def test_attention_over_relations_weighs_those_that_a_target_has() -> None:
    batch, _ = sample()
    lists = dict(TypedBlock.of(batch).layer(HOPS - 1).lists)
    ends = RELATIONS[1]
    lists[ends] = RelationLists(torch.zeros_like(lists[ends].indptr), lists[ends].sources[:0])
    layer = replace(TypedBlock.of(batch).layer(HOPS - 1), lists=lists)
    conv: Any = make("hetero-sage attended").convs[0]
    x = {name: torch.randn(count, OPTIONS.hidden) for name, count in layer.num_sources.items()}
    before = conv(x, layer)["paper"]
    with torch.no_grad():
        conv.convs[ends].lin_r.weight.mul_(100)
    torch.testing.assert_close(conv(x, layer)["paper"], before)


@pytest.mark.parametrize(
    ("name", "target", "more", "message"),
    [
        ("gcn2", "paper", {}, "hetero-sage, rgcn, rgat, hgt, simple-hgn"),
        ("rgcn", "book", {}, "paper, author, venue"),
        ("rgcn", "venue", {}, "no edge type leads to node type 'venue'"),
        ("hgt", "paper", {"hidden": 10}, "multiple of 4 heads, got 10; for example --hidden 8"),
        ("rgcn", "paper", {"num_bases": 2, "num_blocks": 2}, "remove --num-bases or --num-blocks"),
        ("rgcn", "paper", {"num_blocks": 5}, "multiple of 5 blocks"),
    ],
)
def test_options_that_do_not_fit_are_refused(name: str, target: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_typed_model(name, SCHEMA, target, 3, replace(OPTIONS, **more))

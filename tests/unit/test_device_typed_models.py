"""Typed models on a device, by torch and by Triton's kernels, give the values and gradients of the core."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from diskhop.nn.kernels.sums import sums_reference
from diskhop.nn.typed.attention import add_scores, slot_products, slot_softmax, sum_slots
from diskhop.nn.typed.block import RelationLists, TypedBlock
from diskhop.nn.typed.embeddings import LearnedRows
from diskhop.nn.typed.groups import group_means
from tests.devices import BY_INTERPRETER, as_on_a_device
from tests.unit.test_typed_models import HOPS, OPTIONS, SEEDS, VARIANTS, make, rows_of, sample
from tests.unit.typed_blocks import RELATIONS

ROADS = [pytest.param(False, id="torch"), pytest.param(True, id="triton", marks=BY_INTERPRETER)]
SMALL = {"paper": 20, "author": 15, "venue": 4}


def run(variant: str, *, dropout: float = 0.0) -> list[Tensor]:
    """Outputs of a batch, and the gradients of features and parameters."""
    batch, _ = sample(degree=2, counts=SMALL, num_seeds=3)  # the interpreter takes 20 ms a list and head
    options = replace(OPTIONS, heads=2, norm="layer", dropout=dropout)
    x = {name: rows.requires_grad_() for name, rows in rows_of(batch, options).items()}
    model = make(variant, options)
    torch.manual_seed(2)
    out = model(x, TypedBlock.of(batch))
    wanted = [*x.values(), *model.parameters()]
    grads = torch.autograd.grad(out.square().sum(), wanted, allow_unused=True)
    return [out, *(grad for grad in grads if grad is not None)]


@pytest.mark.fast("torch", "rgcn-triton")
@pytest.mark.parametrize("kernels", ROADS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_model_on_a_device_is_the_one_on_the_cpu(variant: str, kernels: bool) -> None:
    expected = run(variant)
    with as_on_a_device(kernels=kernels):
        found = run(variant)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("variant", ["rgat", "simple-hgn"])
def test_dropout_on_a_device_is_repeatable(variant: str) -> None:
    with as_on_a_device(kernels=False):
        first, again, kept = run(variant, dropout=0.5), run(variant, dropout=0.5), run(variant)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(first, again, strict=True))
    assert not torch.equal(first[0], kept[0])


@pytest.mark.parametrize("kernels", ROADS)
def test_attention_over_lists_is_that_of_the_core(kernels: bool) -> None:
    """Each function and its gradients, with an empty list, a source that is read twice, and one that is not read."""
    indptr, sources = torch.tensor([0, 3, 3, 5], dtype=torch.int32), torch.tensor([0, 2, 0, 1, 2], dtype=torch.int32)
    generator = torch.Generator().manual_seed(0)

    def values() -> list[Tensor]:
        generator.manual_seed(0)
        shapes = ((5, 2), (4, 6), (3, 6), (4, 2), (3, 2))
        scores, rows, targets, of_sources, of_targets = given = [
            torch.randn(shape, generator=generator).requires_grad_() for shape in shapes
        ]
        results = [
            slot_softmax(scores, indptr),
            slot_products(rows, targets, indptr, sources, 2),
            sum_slots(scores, rows, indptr, sources),
            sum_slots(scores, rows, indptr, sources, shared=True),
            add_scores(of_sources, of_targets, indptr, sources),
        ]
        total = sum((each.square().sum() for each in results), torch.zeros(()))
        return [*results, *torch.autograd.grad(total, given)]

    expected = values()
    with as_on_a_device(kernels=kernels):
        found = values()
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_lists_are_merged_and_grouped_on_a_device_as_in_memory() -> None:
    batch, _ = sample()
    layer = TypedBlock.of(batch).layer(HOPS - 1)
    relations = [ends for ends in RELATIONS if ends[2] == "paper"]
    assert len(relations) > 1
    lists = [layer.lists[ends] for ends in relations]
    expected = layer.merged(relations, "paper"), layer.merged(relations)
    with as_on_a_device(kernels=False):
        found = layer.merged(relations, "paper"), layer.merged(relations)
    for ours, theirs in zip(found, expected, strict=True):
        for name in ("indptr", "by_relation", "sources"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name))
            assert getattr(ours, name).dtype == torch.int32
    x = torch.randn(int(max(each.sources.max() for each in lists)) + 1, 3)
    (group,) = group_means("author", list(enumerate(lists)), 1 << 20)
    means = sums_reference(x, group.lists().with_means(), torch.float32)
    by_target = [torch.stack([x[each.sources[a:b].long()].mean(0) for a, b in bounds(each)]) for each in lists]
    torch.testing.assert_close(means, torch.cat(by_target))


def bounds(lists: RelationLists) -> list[tuple[int, int]]:
    """Begin and end of the lists that have edges."""
    starts = lists.indptr.tolist()
    return [(begin, end) for begin, end in pairwise(starts) if begin < end]


def test_learned_rows_stay_in_memory_wherever_the_model_computes() -> None:
    rows = LearnedRows(5, 4, seed=0)
    model = torch.nn.ModuleDict({"rows": rows, "map": torch.nn.Linear(4, 2)}).to("meta")
    assert model["map"].weight.device.type == "meta"
    assert {each.device.type for each in rows.buffers()} == {"cpu"}
    before = rows(torch.arange(5).numpy()).detach().clone()
    found = rows(torch.arange(5).numpy())
    torch.autograd.backward(found.sum())
    rows.step()
    assert not torch.equal(rows.state_dict()["values"], before)


def test_a_block_is_mapped_whole() -> None:
    batch, _ = sample(degree=2, counts=SMALL)
    block, seen = TypedBlock.of(batch), []
    mapped = block.mapped(lambda tensor: seen.append(tensor) or tensor.to("meta"))  # type: ignore[func-returns-value]
    assert len(seen) == 2 * len(block.lists)
    assert mapped.device.type == "meta"
    assert block.device.type == "cpu"
    assert mapped.num_sampled_nodes["paper"][0] == SEEDS

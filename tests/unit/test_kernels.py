"""Every kernel equals its reference in torch: Triton's interpreter runs it here.

Tolerances, in units of float32's epsilon. Sums: none, both add in one order (one unit of bfloat16 where the result has
that type: the interpreter cuts what a GPU rounds). Products of rows: 16 of the sum of the terms' absolute values, which
the two add in different orders. Softmax: 32, relative; its gradient: 64.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from diskhop.nn.kernels import triton_softmax, triton_sums
from diskhop.nn.kernels.lists import NeighborLists, starts_of
from diskhop.nn.kernels.softmax import gradient_reference, list_softmax, softmax_reference
from diskhop.nn.kernels.sums import neighbor_sums, products_reference, sums_reference
from tests.devices import BY_INTERPRETER
from tests.examples import examples

pytestmark = BY_INTERPRETER

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
EPSILON = torch.finfo(torch.float32).eps


@dataclass
class Case:
    """Lists over rows, some of them empty, one perhaps a hub."""

    x: Tensor
    lists: NeighborLists
    num_heads: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    num_rows, num_lists = draw(st.integers(1, 8)), draw(st.integers(0, 6))
    lengths = torch.randint(0, 3, (num_lists,), generator=generator)
    if num_lists and draw(st.booleans()):
        lengths[draw(st.integers(0, num_lists - 1))] = 20
    num_edges = int(lengths.sum())
    num_heads = draw(st.sampled_from([1, 2, 3]))
    num_columns = num_heads * draw(st.sampled_from([1, 3, 16, 37]))
    shape = (num_edges,) if num_heads == 1 and draw(st.booleans()) else (num_edges, num_heads)
    has_weights = num_heads > 1 or draw(st.booleans())
    num_own = draw(st.sampled_from([0, min(num_rows, num_lists)]))
    lists = NeighborLists(
        starts_of(lengths),
        torch.randint(0, num_rows, (num_edges,), generator=generator, dtype=torch.int32),
        torch.randn(shape, generator=generator) if has_weights else None,
        torch.randn(num_own, generator=generator) if num_own else None,
    )
    x = torch.randn(num_rows, num_columns, generator=generator).to(draw(st.sampled_from(DTYPES)))
    return Case(x, lists, num_heads)


def by_head(rows: Tensor, case: Case) -> Tensor:
    return rows.view(len(rows), case.num_heads, rows.shape[1] // case.num_heads)


def test_rows_wider_than_a_program_are_summed_in_parts() -> None:
    generator = torch.Generator().manual_seed(0)
    lists = NeighborLists(starts_of(torch.tensor([2, 0, 3])), torch.tensor([0, 1, 1, 0, 1], dtype=torch.int32))
    x = torch.randn(2, 700, generator=generator)
    assert torch.equal(triton_sums.sums_by_triton(x, lists, x.dtype), sums_reference(x, lists, x.dtype))
    grad = torch.randn(3, 700, generator=generator)
    found = triton_sums.products_by_triton(x, grad, lists, 2)
    torch.testing.assert_close(found, products_reference(x, grad, lists, 2), atol=1e-4, rtol=1e-5)


@examples(12)
@given(case=cases(), dtype=st.sampled_from(DTYPES))
def test_sums_have_the_bits_of_the_reference(case: Case, dtype: torch.dtype) -> None:
    found = triton_sums.sums_by_triton(case.x, case.lists, dtype)
    expected = sums_reference(case.x, case.lists, dtype)
    if dtype == torch.bfloat16:
        torch.testing.assert_close(found, expected, rtol=torch.finfo(dtype).eps, atol=0)
    else:
        assert torch.equal(found, expected)


@examples(8)
@given(case=cases())
def test_the_gradient_of_a_sum_is_autograds(case: Case) -> None:
    x, lists = case.x.float(), case.lists
    if lists.num_lists == 0:
        return
    grad = torch.randn(lists.num_lists, x.shape[1], generator=torch.Generator().manual_seed(0))
    transposed = lists.transposed(len(x))
    assert torch.equal(
        triton_sums.sums_by_triton(grad, transposed, torch.float32), sums_reference(grad, transposed, torch.float32)
    )
    leaves = [x.double().requires_grad_()]
    if lists.weights is not None:
        leaves.append(lists.weights.double().requires_grad_())
    rows = leaves[0][lists.sources.long()]
    if lists.weights is not None:
        rows = (by_head(rows, case) * leaves[1].view(len(rows), case.num_heads, 1)).flatten(1)
    expected = torch.zeros(grad.shape, dtype=torch.float64).index_add(0, lists.list_of_edge(), rows)
    if lists.own_weights is not None:
        own = lists.own_weights[:, None] * leaves[0][: len(lists.own_weights)]
        expected = expected + torch.cat([own, torch.zeros(len(grad) - len(own), x.shape[1])])
    ours = [leaf.detach().float().requires_grad_() for leaf in leaves]
    found = neighbor_sums(ours[0], replace(lists, weights=ours[1] if len(ours) > 1 else None))
    for mine, theirs in zip(
        torch.autograd.grad(found, ours, grad), torch.autograd.grad(expected, leaves, grad.double()), strict=True
    ):
        torch.testing.assert_close(mine.double(), theirs, atol=1e-4, rtol=1e-4)


@examples(12)
@given(case=cases())
def test_products_of_rows_are_the_references(case: Case) -> None:
    grad = torch.randn(case.lists.num_lists, case.x.shape[1], generator=torch.Generator().manual_seed(0))
    found = triton_sums.products_by_triton(case.x, grad, case.lists, case.num_heads)
    rows = case.x[case.lists.sources.long()].float() * grad[case.lists.list_of_edge()]
    magnitude = by_head(rows.abs(), case).sum(2)
    difference = (found - products_reference(case.x, grad, case.lists, case.num_heads)).abs()
    assert bool((difference <= 16 * EPSILON * magnitude).all())


@examples(12)
@given(case=cases(), excludes=st.booleans())
def test_softmax_and_its_gradient_are_the_references(case: Case, excludes: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = 10 * torch.randn(len(case.lists.sources), case.num_heads, generator=generator)
    if excludes:
        # Not the first of a list, which then has a finite score.
        is_first = torch.zeros(len(scores), dtype=torch.bool)
        is_first[case.lists.indptr[:-1][case.lists.indptr.diff() > 0].long()] = True
        scores[~is_first & (torch.rand(len(scores), generator=generator) < 0.3)] = -torch.inf
    expected = softmax_reference(scores, case.lists)
    found = triton_softmax.softmax_by_triton(scores, case.lists)
    torch.testing.assert_close(found, expected, rtol=32 * EPSILON, atol=EPSILON)
    grad = torch.randn(scores.shape, generator=generator)
    torch.testing.assert_close(
        triton_softmax.gradient_by_triton(expected, grad, case.lists),
        gradient_reference(expected, grad, case.lists),
        rtol=64 * EPSILON,
        atol=64 * EPSILON,
    )


def test_softmax_is_torchs_in_every_list() -> None:
    lists = NeighborLists(starts_of(torch.tensor([3, 0, 2])), torch.zeros(5, dtype=torch.int32))
    scores = torch.randn(5, 2, generator=torch.Generator().manual_seed(1)).requires_grad_()
    found = list_softmax(scores, lists)
    expected = torch.cat([scores[:3].softmax(0), scores[3:].softmax(0)])
    torch.testing.assert_close(found, expected)
    weight = torch.arange(10.0).view(5, 2)
    ours, theirs = (torch.autograd.grad((each * weight).sum(), scores)[0] for each in (found, expected))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


def test_rows_with_columns_apart_are_refused() -> None:
    lists = NeighborLists(starts_of(torch.tensor([1])), torch.zeros(1, dtype=torch.int32))
    with pytest.raises(ValueError, match="contiguous"):
        triton_sums.sums_by_triton(torch.zeros(4, 4).t(), lists, torch.float32)

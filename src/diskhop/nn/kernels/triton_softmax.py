"""The kernels of softmax over neighbour lists; softmax.py has their references.

A program takes all edges of one list, for every head at once, three times: the largest score, the sum of powers, the
results. The scores of a list are few, so that they stay in the cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from diskhop.nn.kernels.choice import on_device_of
from diskhop.nn.kernels.lists import NeighborLists


def softmax_by_triton(scores: Tensor, lists: NeighborLists) -> Tensor:
    """Compute list_softmax() without gradients."""
    out = torch.empty_like(scores)
    if out.numel():
        num_heads = scores.shape[1]
        block = triton.next_power_of_2(num_heads)
        with on_device_of(lists.indptr):
            _softmax_lists[(lists.num_lists,)](lists.indptr, scores, out, num_heads, BLOCK=block, num_warps=1)
    return out


def gradient_by_triton(out: Tensor, grad: Tensor, lists: NeighborLists) -> Tensor:
    """Compute gradient_reference()."""
    of_scores = torch.empty_like(out)
    if out.numel():
        num_heads = out.shape[1]
        block = triton.next_power_of_2(num_heads)
        with on_device_of(lists.indptr):
            _gradient_of_lists[(lists.num_lists,)](
                lists.indptr, out, grad, of_scores, num_heads, BLOCK=block, num_warps=1
            )
    return of_scores


@triton.jit  # type: ignore[untyped-decorator]
def _softmax_lists(
    indptr: tl.tensor,
    scores: tl.tensor,
    out: tl.tensor,
    num_heads: tl.tensor,
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    row = tl.program_id(0)
    heads = tl.arange(0, BLOCK)
    is_head = heads < num_heads
    begin = tl.load(indptr + row)
    end = tl.load(indptr + row + 1)
    most = tl.full((BLOCK,), float("-inf"), tl.float32)
    edge = begin
    while edge < end:
        found = tl.load(scores + edge.to(tl.int64) * num_heads + heads, mask=is_head, other=0.0)
        most = tl.maximum(most, found)
        edge += 1
    total = tl.zeros((BLOCK,), tl.float32)
    edge = begin
    while edge < end:
        found = tl.load(scores + edge.to(tl.int64) * num_heads + heads, mask=is_head, other=0.0)
        total += tl.exp(found - most)
        edge += 1
    edge = begin
    while edge < end:
        places = edge.to(tl.int64) * num_heads + heads
        found = tl.load(scores + places, mask=is_head, other=0.0)
        tl.store(out + places, tl.exp(found - most) / total, mask=is_head)
        edge += 1


@triton.jit  # type: ignore[untyped-decorator]
def _gradient_of_lists(
    indptr: tl.tensor,
    out: tl.tensor,
    grad: tl.tensor,
    of_scores: tl.tensor,
    num_heads: tl.tensor,
    BLOCK: tl.constexpr,  # noqa: N803
) -> None:
    row = tl.program_id(0)
    heads = tl.arange(0, BLOCK)
    is_head = heads < num_heads
    begin = tl.load(indptr + row)
    end = tl.load(indptr + row + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    edge = begin
    while edge < end:
        places = edge.to(tl.int64) * num_heads + heads
        total += tl.load(out + places, mask=is_head, other=0.0) * tl.load(grad + places, mask=is_head, other=0.0)
        edge += 1
    edge = begin
    while edge < end:
        places = edge.to(tl.int64) * num_heads + heads
        weight = tl.load(out + places, mask=is_head, other=0.0)
        given = tl.load(grad + places, mask=is_head, other=0.0)
        tl.store(of_scores + places, weight * (given - total), mask=is_head)
        edge += 1

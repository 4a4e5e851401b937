"""Sums over neighbour lists on a device, and their gradients: references, and the choice of the kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from diskhop.nn.kernels.choice import runs_kernels
from diskhop.nn.kernels.lists import NeighborLists


def neighbor_sums(x: Tensor, lists: NeighborLists, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the sum of each list, (lists, columns) of a dtype, differentiable by x and by the lists' weights.

    x: (rows, columns), float32, float16 or bfloat16. Adds in float32, in the order of the edges, the own row last.
    """
    out: Tensor = _Sums.apply(x, lists.weights, lists, dtype)  # type: ignore[no-untyped-call]
    return out


def sums_reference(x: Tensor, lists: NeighborLists, dtype: torch.dtype) -> Tensor:
    """Compute neighbor_sums() by torch alone, without gradients: what the kernel is compared with."""
    rows = x.index_select(0, lists.sources).float()
    if lists.weights is not None:
        num_heads = lists.num_heads
        by_head = rows.view(len(rows), num_heads, x.shape[1] // num_heads) * lists.weights.view(len(rows), num_heads, 1)
        rows = by_head.flatten(1)
    out = torch.zeros(lists.num_lists, x.shape[1], device=x.device)
    out.index_add_(0, lists.list_of_edge(), rows)
    if lists.own_weights is not None:
        num_own = len(lists.own_weights)
        out[:num_own] += lists.own_weights[:, None] * x[:num_own].float()
    return out.to(dtype)


def products_reference(x: Tensor, grad: Tensor, lists: NeighborLists, num_heads: int) -> Tensor:
    """Return the gradient of weights (edges, heads): the product of each edge's row with its list's gradient."""
    rows = x.index_select(0, lists.sources).float() * grad.index_select(0, lists.list_of_edge()).float()
    return rows.view(len(rows), num_heads, x.shape[1] // num_heads).sum(2)


def run_sums(x: Tensor, lists: NeighborLists, dtype: torch.dtype) -> Tensor:
    """Compute neighbor_sums() without gradients, by the kernel where there is a GPU and Triton."""
    if runs_kernels(x):
        from diskhop.nn.kernels.triton_sums import sums_by_triton

        return sums_by_triton(x, lists, dtype)
    return sums_reference(x, lists, dtype)


def run_products(x: Tensor, grad: Tensor, lists: NeighborLists, num_heads: int) -> Tensor:
    """Compute products_reference(), by the kernel where there is a GPU and Triton."""
    if runs_kernels(x):
        from diskhop.nn.kernels.triton_sums import products_by_triton

        return products_by_triton(x, grad, lists, num_heads)
    return products_reference(x, grad, lists, num_heads)


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor | None, lists: NeighborLists, dtype: torch.dtype) -> Tensor:
        ctx.lists, ctx.dtype = replace(lists, weights=None if weights is None else weights.detach()), x.dtype
        ctx.num_rows = len(x)
        # Rows are needed again for the gradient of weights alone.
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None)
        return run_sums(x.detach(), ctx.lists, dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad, lists = grad.contiguous(), ctx.lists
        of_x = run_sums(grad, lists.transposed(ctx.num_rows), ctx.dtype) if ctx.needs_input_grad[0] else None
        of_weights = None
        if ctx.needs_input_grad[1]:
            (x,) = ctx.saved_tensors
            of_weights = run_products(x, grad, lists, lists.num_heads).view(lists.weights.shape)
        return of_x, of_weights, None, None

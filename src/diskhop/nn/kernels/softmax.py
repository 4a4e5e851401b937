"""The softmax of every list's edges, per head, on a device; the reference, and the choice between it and the kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from diskhop.nn.kernels.choice import runs_kernels
from diskhop.nn.kernels.lists import NeighborLists


def list_softmax(scores: Tensor, lists: NeighborLists) -> Tensor:
    """Return the softmax of each list's scores, float32 (edges, heads). A score of -inf gives 0.

    scores: float32 (edges, heads); a list has a finite one, or none at all.
    """
    out: Tensor = _Softmax.apply(scores, lists)  # type: ignore[no-untyped-call]
    return out


def softmax_reference(scores: Tensor, lists: NeighborLists) -> Tensor:
    """Compute list_softmax() by torch alone."""
    of_edge = lists.list_of_edge()
    shape = lists.num_lists, scores.shape[1]
    places = of_edge[:, None].expand_as(scores)
    most = torch.full(shape, -torch.inf, device=scores.device).scatter_reduce(0, places, scores, "amax")
    powers = (scores - most[of_edge]).exp()
    return powers / torch.zeros(shape, device=scores.device).index_add_(0, of_edge, powers)[of_edge]


def gradient_reference(out: Tensor, grad: Tensor, lists: NeighborLists) -> Tensor:
    """Return the gradient of the scores from that of list_softmax()'s result."""
    of_edge = lists.list_of_edge()
    sums = torch.zeros(lists.num_lists, out.shape[1], device=out.device).index_add_(0, of_edge, out * grad)
    return out * (grad - sums[of_edge])


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, lists: NeighborLists) -> Tensor:
        if runs_kernels(scores):
            from diskhop.nn.kernels.triton_softmax import softmax_by_triton as run
        else:
            run = softmax_reference
        out = run(scores.detach().contiguous(), lists)
        ctx.lists = lists
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = ctx.saved_tensors
        if runs_kernels(out):
            from diskhop.nn.kernels.triton_softmax import gradient_by_triton as run
        else:
            run = gradient_reference
        return run(out.detach(), grad.contiguous(), ctx.lists), None

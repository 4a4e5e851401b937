"""Attention over lists of edges without self-loops, computed by the core, or by a device's kernels.

No array of size (edges, columns) is built: scores and weights are (edges, heads).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from diskhop._native import attend, attend_backward_attention, attend_backward_rows, slot_softmax_backward
from diskhop._native import slot_products as native_slot_products
from diskhop._native import slot_softmax as native_slot_softmax
from diskhop.nn.kernels.choice import runs_core
from diskhop.nn.kernels.lists import NeighborLists
from diskhop.nn.kernels.softmax import list_softmax
from diskhop.nn.kernels.sums import neighbor_sums, run_products, run_sums
from diskhop.nn.layers.attention import Dropout

NO_DROPOUT = Dropout()


def slot_softmax(scores: Tensor, indptr: Tensor, dropout: Dropout = NO_DROPOUT) -> Tensor:
    """Return the softmax of scores over each target's edges, float32 (edges, heads). Dropped edges get 0.

    scores: float32 (edges, heads).
    indptr: int32 (targets + 1).
    """
    if not runs_core(scores):
        edges = torch.arange(len(scores), dtype=torch.int32, device=scores.device)
        return dropout.dropped(list_softmax(scores, NeighborLists(indptr, edges))) * dropout.scale
    weights: Tensor = _SlotSoftmax.apply(scores, indptr, dropout)  # type: ignore[no-untyped-call]
    return weights if dropout.probability == 0 else weights.clamp(min=0) * dropout.scale


def slot_products(rows: Tensor, targets: Tensor, indptr: Tensor, sources: Tensor, num_heads: int) -> Tensor:
    """Return the inner products of each edge's source and target, by head: float32 (edges, heads).

    rows: float32 (sources, columns). targets: float32 (targets, columns). Columns are a multiple of the heads.
    """
    out: Tensor = _SlotProducts.apply(rows, targets, indptr, sources, num_heads)  # type: ignore[no-untyped-call]
    return out


def sum_slots(weights: Tensor, rows: Tensor, indptr: Tensor, sources: Tensor, *, shared: bool = False) -> Tensor:
    """Return the sums of each target's neighbours' rows times the edges' weights, which may be negative.

    weights: float32 (edges, heads).
    rows: float32 (sources, columns).
    shared: whether every head weighs all columns, for float32 (targets, heads * columns); otherwise each weighs its
        share of them, for float32 (targets, columns).
    """
    if shared and not runs_core(rows):
        by_head = [neighbor_sums(rows, NeighborLists(indptr, sources, each.contiguous())) for each in weights.unbind(1)]
        return torch.cat(by_head, dim=1)
    num_columns = rows.shape[1] * (weights.shape[1] if shared else 1)
    out: Tensor = _SumSlots.apply(weights, rows, indptr, sources, num_columns)  # type: ignore[no-untyped-call]
    return out


def add_scores(of_sources: Tensor, of_targets: Tensor, indptr: Tensor, sources: Tensor) -> Tensor:
    """Return the source's and the target's score of each edge, added up: float32 (edges, heads).

    of_sources: float32 (sources, heads). of_targets: float32 (targets, heads).
    """
    out: Tensor = _AddScores.apply(of_sources, of_targets, indptr, sources)  # type: ignore[no-untyped-call]
    return out


class _SlotSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, indptr: Tensor, dropout: Dropout) -> Tensor:
        out = torch.empty(scores.shape)
        given = scores.detach().contiguous()
        native_slot_softmax(indptr, given, dropout.probability, dropout.seed, out, torch.get_num_threads())
        ctx.save_for_backward(out)
        ctx.indptr = indptr
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = ctx.saved_tensors
        of_scores = torch.empty(out.shape)
        slot_softmax_backward(ctx.indptr, out.detach(), grad.contiguous(), of_scores, torch.get_num_threads())
        return of_scores, None, None


class _SlotProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, targets: Tensor, indptr: Tensor, sources: Tensor, num_heads: int) -> Tensor:
        rows, targets = rows.contiguous(), targets.contiguous()
        ctx.save_for_backward(rows, targets)
        ctx.lists = indptr, sources
        return _multiply(ctx.lists, rows.detach(), targets.detach(), num_heads)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, targets = (each.detach() for each in ctx.saved_tensors)
        grad = grad.contiguous()
        of_targets = _sum(ctx.lists, grad, rows, targets.shape[1])
        return _spread(ctx.lists, grad, targets, rows.shape), of_targets, None, None, None


class _SumSlots(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, rows: Tensor, indptr: Tensor, sources: Tensor, num_columns: int) -> Tensor:
        weights, rows = weights.contiguous(), rows.contiguous()
        ctx.lists = indptr, sources
        ctx.save_for_backward(weights, rows)
        return _sum(ctx.lists, weights.detach(), rows.detach(), num_columns)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, rows = (each.detach() for each in ctx.saved_tensors)
        grad = grad.contiguous()
        of_weights = None
        if ctx.needs_input_grad[0]:
            of_weights = _weigh(ctx.lists, weights, rows, grad)
        of_rows = _spread(ctx.lists, weights, grad, rows.shape) if ctx.needs_input_grad[1] else None
        return of_weights, of_rows, None, None, None


class _AddScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, of_sources: Tensor, of_targets: Tensor, indptr: Tensor, sources: Tensor) -> Tensor:
        ctx.lists, ctx.num_sources = (indptr, sources), len(of_sources)
        by_edge = of_targets.repeat_interleave(indptr.diff().long(), dim=0, output_size=len(sources))
        return by_edge.add_(of_sources.index_select(0, sources))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad = grad.contiguous()
        num_targets, num_heads = len(ctx.lists[0]) - 1, grad.shape[1]
        # Sums of the gradients alone: each is the weight of a 1.
        of_targets = _sum(ctx.lists, grad, grad.new_ones(ctx.num_sources, num_heads), num_heads)
        of_sources = _spread(ctx.lists, grad, grad.new_ones(num_targets, num_heads), (ctx.num_sources, num_heads))
        return of_sources, of_targets, None, None


_Lists = tuple[Tensor, Tensor]


def _all_targets(lists: _Lists) -> tuple[Tensor, Tensor, int, int]:
    return *lists, 0, len(lists[0]) - 1


def _threads_and_kind() -> tuple[int, bool, bool]:
    """Return the last arguments of the kernels: lists have no loops, and negative weights count."""
    return torch.get_num_threads(), False, False


def _multiply(lists: _Lists, rows: Tensor, targets: Tensor, num_heads: int) -> Tensor:
    """Return the inner products of each edge's source and target, by head."""
    if not runs_core(rows):
        return run_products(rows, targets, NeighborLists(*lists), num_heads)
    out = torch.empty(len(lists[1]), num_heads)
    native_slot_products(*lists, rows, targets, out, torch.get_num_threads())
    return out


def _sum(lists: _Lists, weights: Tensor, rows: Tensor, num_columns: int) -> Tensor:
    """Return the sum of each target's rows times the edges' weights."""
    if not runs_core(rows):
        return run_sums(rows, NeighborLists(*lists, weights), torch.float32)
    out = torch.empty(len(lists[0]) - 1, num_columns)
    attend(*_all_targets(lists), weights, 1.0, rows, out, *_threads_and_kind())
    return out


def _weigh(lists: _Lists, weights: Tensor, rows: Tensor, grad: Tensor) -> Tensor:
    """Return the gradient of the weights from that of the sums."""
    if not runs_core(rows):
        return run_products(rows, grad, NeighborLists(*lists), weights.shape[1])
    out = torch.empty(weights.shape)
    attend_backward_attention(*_all_targets(lists), weights, 1.0, rows, grad, out, *_threads_and_kind())
    return out


def _spread(lists: _Lists, weights: Tensor, of_targets: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return each source's sum over its edges of the target's row times the edge's weight."""
    if not runs_core(of_targets):
        return run_sums(of_targets, NeighborLists(*lists, weights).transposed(shape[0]), torch.float32)
    out = torch.zeros(shape)
    attend_backward_rows(*_all_targets(lists), weights, 1.0, of_targets, out, *_threads_and_kind())
    return out

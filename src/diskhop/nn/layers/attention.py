"""Attention over a layer block in the core: softmax over each target's in-edges, and weighted sums of rows.

A *slot* is an edge or the self-loop that every target gets; a target's slots are its edges in order, then the loop. No
array of size (edges, columns) is built: attention is (slots, heads), sums are (targets, heads * dim).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from diskhop._native import attend as native_attend
from diskhop._native import attend_backward_attention, attend_backward_rows, attention_backward
from diskhop._native import attention as native_attention
from diskhop.nn.kernels.choice import runs_core
from diskhop.nn.kernels.lists import NeighborLists
from diskhop.nn.kernels.softmax import list_softmax
from diskhop.nn.kernels.sums import neighbor_sums
from diskhop.nn.layers.aggregate import LayerBlock

# Targets per chunk whose sums wait for the product: few enough to stay in the cache.
_CHUNK_TARGETS = 2048
# Cost of a multiplication in a sum over edges, relative to a matrix product: measured, between 4 and 8.
_EDGE_COST = 4


@dataclass(frozen=True, slots=True)
class Dropout:
    """Dropout of attention.

    probability: from 0 to 1.
    seed: determines which slots are dropped.
    """

    probability: float = 0.0
    seed: int = 0

    @classmethod
    def draw(cls, probability: float) -> Dropout:
        """Take a seed from torch's generator, unless nothing is dropped."""
        return cls(probability, int(torch.randint(2**62, ()))) if probability > 0 else cls()

    def dropped(self, weights: Tensor) -> Tensor:
        """Return weights with those of some slots set to 0, drawn on the device of the weights."""
        if self.probability == 0:
            return weights
        generator = torch.Generator(weights.device).manual_seed(self.seed)
        return weights * (torch.rand(weights.shape, generator=generator, device=weights.device) >= self.probability)

    @property
    def scale(self) -> float:
        """Factor of the attention that is not dropped."""
        return 1 / (1 - self.probability) if self.probability < 1 else 0.0


def attention(scores: Tensor, layer: LayerBlock, negative_slope: float, dropout: Dropout) -> Tensor:
    """Return softmax(leaky_relu(source's score + target's score)) over each target's slots, float32 (slots, heads).

    scores: float32 (sources, 2 * heads), each row's as a source, then as a target. Dropped slots have the sign bit set,
    which `attend` and `attend_then_map` read.
    """
    if not runs_core(scores):
        return _attention_on_device(scores, layer, negative_slope, dropout)
    out: Tensor = _Attention.apply(scores, layer, negative_slope, dropout)  # type: ignore[no-untyped-call]
    return out


def saves_to_attend_first(layer: LayerBlock, num_heads: int, out_dim: int) -> bool:
    """Return whether summing before the linear map is cheaper: it maps targets only, but each head sums all inputs."""
    if not runs_core(layer.indptr):
        return False
    saved = (layer.num_sources - layer.num_targets) * out_dim
    num_slots = len(layer.sources) + layer.num_targets
    return saved > _EDGE_COST * num_slots * num_heads


def attend(weights: Tensor, rows: Tensor, layer: LayerBlock, scale: float) -> Tensor:
    """Return sums of rows weighted by attention times scale, each head in its columns: float32 (targets, columns).

    rows: float32 or bfloat16 (sources, columns); columns are a multiple of the heads.
    """
    if not runs_core(rows):
        return neighbor_sums(rows, replace(slots_of(layer), weights=weights * scale))
    out: Tensor = _Attend.apply(weights, rows, layer, scale)  # type: ignore[no-untyped-call]
    return out


def attend_then_map(weights: Tensor, x: Tensor, weight: Tensor, layer: LayerBlock, scale: float) -> Tensor:
    """Compute `attend(weights, x @ weight.T)` with the product after the sum: on targets instead of sources.

    x: float32 (sources, in_dim). weight: float32 (out_dim, in_dim), one head after the other.
    """
    assert runs_core(x), "on a device, rows are mapped before the sum"
    out: Tensor = _AttendThenMap.apply(weights, x, weight, layer, scale)  # type: ignore[no-untyped-call]
    return out


def slots_of(layer: LayerBlock) -> NeighborLists:
    """Return the slots of each target, as lists of sources for kernels."""
    lists = layer.lists()
    ends = torch.arange(layer.num_targets, dtype=torch.int32, device=layer.indptr.device)
    indptr = layer.indptr.clone()
    indptr[1:] += ends + 1
    sources = layer.sources.new_empty(len(layer.sources) + layer.num_targets)
    edges = torch.arange(len(layer.sources), device=layer.indptr.device)
    sources[edges + lists.list_of_edge()] = layer.sources
    sources[indptr[1:].long() - 1] = ends
    return NeighborLists(indptr, sources)


def _attention_on_device(scores: Tensor, layer: LayerBlock, negative_slope: float, dropout: Dropout) -> Tensor:
    """Compute attention() by kernels; dropped slots are 0."""
    slots = slots_of(layer)
    targets = slots.list_of_edge()
    of_sources, of_targets = scores.chunk(2, dim=1)
    found = functional.leaky_relu(of_sources[slots.sources.long()] + of_targets[targets], negative_slope)
    # The loop takes the place of edges from a target to itself: it is the last of the target's slots.
    is_loop = torch.zeros(len(targets), dtype=torch.bool, device=scores.device)
    is_loop[slots.indptr[1:].long() - 1] = True
    is_replaced = (slots.sources == targets) & ~is_loop
    return dropout.dropped(list_softmax(found.masked_fill(is_replaced[:, None], -torch.inf), slots))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, layer: LayerBlock, negative_slope: float, dropout: Dropout) -> Tensor:
        out = scores.new_empty(len(layer.sources) + layer.num_targets, scores.shape[1] // 2)
        native_attention(
            *_lists(layer),
            *_by_role(scores, layer),
            negative_slope,
            dropout.probability,
            dropout.seed,
            out,
            torch.get_num_threads(),
        )
        ctx.save_for_backward(scores, out)
        ctx.layer, ctx.negative_slope = layer, negative_slope
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, out = ctx.saved_tensors
        layer: LayerBlock = ctx.layer
        grad_scores = torch.empty_like(scores)
        grad_scores[layer.num_targets :, out.shape[1] :] = 0
        attention_backward(
            *_lists(layer),
            *_by_role(scores, layer),
            ctx.negative_slope,
            out.detach(),
            grad.contiguous(),
            *_by_role(grad_scores, layer),
            torch.get_num_threads(),
        )
        return grad_scores, None, None, None


def _by_role(scores: Tensor, layer: LayerBlock) -> tuple[Tensor, Tensor]:
    """Return views: (sources, heads) and (targets, heads)."""
    of_sources, of_targets = scores.detach().chunk(2, dim=1)
    return of_sources, of_targets[: layer.num_targets]


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, rows: Tensor, layer: LayerBlock, scale: float) -> Tensor:
        rows = rows.contiguous()
        ctx.save_for_backward(weights, rows)
        ctx.layer, ctx.scale = layer, scale
        out = weights.new_empty(layer.num_targets, rows.shape[1])
        _Sums(layer, weights, scale).attend(0, layer.num_targets, rows, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, rows = ctx.saved_tensors
        grad = grad.contiguous()
        sums = _Sums(ctx.layer, weights, ctx.scale)
        grad_weights = torch.empty_like(weights)
        sums.grad_weights(0, ctx.layer.num_targets, rows, grad, grad_weights)
        grad_rows = None
        if ctx.needs_input_grad[1]:
            grad_rows = torch.zeros(rows.shape)
            sums.add_grad_rows(0, ctx.layer.num_targets, grad, grad_rows)
            grad_rows = grad_rows.to(rows.dtype)
        return grad_weights, grad_rows, None, None


class _AttendThenMap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, x: Tensor, weight: Tensor, layer: LayerBlock, scale: float) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(weights, x, weight)
        ctx.layer, ctx.scale = layer, scale
        num_heads = weights.shape[1]
        head_weights = weight.view(num_heads, -1, x.shape[1])
        sums = _Sums(layer, weights, scale)
        out = x.new_empty(layer.num_targets, len(weight))
        buffer = x.new_empty(min(_CHUNK_TARGETS, layer.num_targets), num_heads * x.shape[1])
        for begin in range(0, layer.num_targets, _CHUNK_TARGETS):
            chunk = out[begin : begin + _CHUNK_TARGETS]
            summed = buffer[: len(chunk)]
            sums.attend(begin, begin + len(chunk), x, summed)
            torch.bmm(_by_head(summed, num_heads), head_weights.mT, out=_by_head(chunk, num_heads))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, x, weight = ctx.saved_tensors
        layer = ctx.layer
        num_heads = weights.shape[1]
        head_weights = weight.view(num_heads, -1, x.shape[1])
        sums = _Sums(layer, weights, ctx.scale)
        grad_weights, grad_weight = torch.empty_like(weights), torch.zeros_like(head_weights)
        grad_x = torch.zeros_like(x) if ctx.needs_input_grad[1] else None
        buffer = x.new_empty(2, min(_CHUNK_TARGETS, layer.num_targets), num_heads * x.shape[1])
        for begin in range(0, layer.num_targets, _CHUNK_TARGETS):
            chunk = _by_head(grad[begin : begin + _CHUNK_TARGETS], num_heads)
            end = begin + chunk.shape[1]
            summed, grad_summed = buffer[:, : chunk.shape[1]]
            # Sums are recomputed, not stored: they are `heads` times as large as x.
            sums.attend(begin, end, x, summed)
            grad_weight.baddbmm_(chunk.mT, _by_head(summed, num_heads))
            torch.bmm(chunk, head_weights, out=_by_head(grad_summed, num_heads))
            sums.grad_weights(begin, end, x, grad_summed, grad_weights)
            if grad_x is not None:
                sums.add_grad_rows(begin, end, grad_summed, grad_x)
        return grad_weights, grad_x, grad_weight.flatten(0, 1), None, None


def _by_head(rows: Tensor, num_heads: int) -> Tensor:
    """View (rows, heads * dim) as (heads, rows, dim)."""
    return rows.view(len(rows), num_heads, -1).transpose(0, 1)


class _Sums:
    """Sums of the core over a block, for ranges of targets."""

    def __init__(self, layer: LayerBlock, weights: Tensor, scale: float) -> None:
        self._lists = _lists(layer)
        self._weights = weights.detach()
        self._scale = scale

    def attend(self, begin: int, end: int, rows: Tensor, out: Tensor) -> None:
        native_attend(*self._lists, begin, end, self._weights, self._scale, rows.detach(), out, torch.get_num_threads())

    def grad_weights(self, begin: int, end: int, rows: Tensor, grad: Tensor, out: Tensor) -> None:
        attend_backward_attention(
            *self._lists, begin, end, self._weights, self._scale, rows.detach(), grad, out, torch.get_num_threads()
        )

    def add_grad_rows(self, begin: int, end: int, grad: Tensor, out: Tensor) -> None:
        attend_backward_rows(*self._lists, begin, end, self._weights, self._scale, grad, out, torch.get_num_threads())


def _lists(layer: LayerBlock) -> tuple[Tensor, Tensor]:
    return layer.indptr, layer.sources

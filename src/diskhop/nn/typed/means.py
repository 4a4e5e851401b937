"""Means over each relation's neighbours, mapped by a matrix per relation, and added up.

The core writes the means of a relation's targets next to each other, and one product maps them. No array of size
(edges, columns) is built, and targets without edges of a relation cost nothing. Where a relation has few edges per
target, its means are computed again in the backward pass instead of being kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diskhop._native import aggregate, aggregate_backward
from diskhop.nn.matmul.products import Products
from diskhop.nn.typed.block import RelationLists

# Means are kept for the backward pass if they are at most this share of the rows that were added up.
_KEPT_SHARE = 0.25


class RelationMap(ABC):
    """A linear map of means, by a weight of the relation."""

    @abstractmethod
    def out_dim(self, weight: Tensor) -> int:
        """Return the columns of the result."""

    @abstractmethod
    def forward(self, means: Tensor, weight: Tensor) -> Tensor:
        """Map (targets, in_dim) to (targets, out_dim)."""

    @abstractmethod
    def backward(self, grad: Tensor, means: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the means and of the weight."""


@dataclass(frozen=True, slots=True)
class DenseMap(RelationMap):
    """A product by a weight of (out_dim, in_dim)."""

    products: Products

    def out_dim(self, weight: Tensor) -> int:
        """See RelationMap."""
        return len(weight)

    def forward(self, means: Tensor, weight: Tensor) -> Tensor:
        """See RelationMap."""
        return self.products.multiply(means, weight.contiguous(), None)

    def backward(self, grad: Tensor, means: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """See RelationMap."""
        of_means, of_weight, _ = self.products.gradients(grad, means, weight.contiguous(), None, None)
        assert of_means is not None
        return of_means, of_weight


class BlockMap(RelationMap):
    """A product by a block-diagonal matrix, (blocks, rows of a block, columns of a block)."""

    def out_dim(self, weight: Tensor) -> int:
        """See RelationMap."""
        return len(weight) * weight.shape[2]

    def forward(self, means: Tensor, weight: Tensor) -> Tensor:
        """See RelationMap."""
        return torch.bmm(_by_block(means, weight), weight).transpose(0, 1).flatten(1)

    def backward(self, grad: Tensor, means: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """See RelationMap."""
        by_block = _by_block(grad, weight)
        of_means = torch.bmm(by_block, weight.mT).transpose(0, 1).flatten(1)
        return of_means, torch.bmm(_by_block(means, weight).mT, by_block)


def _by_block(rows: Tensor, weight: Tensor) -> Tensor:
    """View (rows, blocks * dim) as (blocks, rows, dim)."""
    return rows.view(len(rows), len(weight), -1).transpose(0, 1)


class Relation(NamedTuple):
    """A relation into the targets.

    source: number of its source type among the inputs.
    lists: its edges.
    weight: weight of its map.
    """

    source: int
    lists: RelationLists
    weight: Tensor


def mapped_means(
    xs: Sequence[Tensor], relations: Sequence[Relation], relation_map: RelationMap, products: Products
) -> Tensor:
    """Return the sum over relations of their mapped means, float32 (targets, out_dim).

    xs: float32 (sources, in_dim) of each source type.
    relations: relations into the same targets, at least one.
    products: memory of the means.
    """
    call = _Call([each.source for each in relations], [each.lists for each in relations], relation_map, products)
    out: Tensor = _MappedMeans.apply(  # type: ignore[no-untyped-call]
        call, *xs, *[each.weight for each in relations]
    )
    return out


@dataclass(frozen=True, slots=True)
class _Call:
    sources: Sequence[int]
    lists: Sequence[RelationLists]
    relation_map: RelationMap
    products: Products

    def means(self, x: Tensor, indptr: Tensor, sources: Tensor) -> Tensor:
        out = self.products.empty(len(indptr) - 1, x.shape[1], torch.float32)
        aggregate(indptr, sources, None, None, True, None, x, out, torch.get_num_threads())
        return out

    def keeps(self, indptr: Tensor, sources: Tensor) -> bool:
        return len(indptr) - 1 <= _KEPT_SHARE * len(sources)

    def split(self, operands: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Split operands without their history into inputs and weights."""
        values = [each.detach() for each in operands]
        return values[: -len(self.lists)], values[-len(self.lists) :]


class _MappedMeans(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, *operands: Tensor) -> Tensor:
        xs, weights = call.split(operands)
        out = torch.zeros(call.lists[0].num_targets, call.relation_map.out_dim(weights[0]))
        kept: list[Tensor | None] = []
        for source, lists, weight in zip(call.sources, call.lists, weights, strict=True):
            kept.append(None)
            if len(lists.sources) == 0:
                continue
            targets, indptr = lists.nonempty()
            means = call.means(xs[source], indptr, lists.sources)
            mapped = call.relation_map.forward(means, weight)
            if targets is None:
                out.add_(mapped)
            else:
                out.index_add_(0, targets, mapped)
            if call.keeps(indptr, lists.sources):
                kept[-1] = means
        ctx.save_for_backward(*operands)
        ctx.call, ctx.kept = call, kept
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        call: _Call = ctx.call
        xs, weights = call.split(ctx.saved_tensors)
        grad = grad.contiguous()
        of_xs: list[Tensor | None] = [None] * len(xs)
        of_weights: list[Tensor | None] = [None] * len(weights)
        for number, (source, lists, weight) in enumerate(zip(call.sources, call.lists, weights, strict=True)):
            if len(lists.sources) == 0:
                continue
            targets, indptr = lists.nonempty()
            means = ctx.kept[number]
            if means is None:
                means = call.means(xs[source], indptr, lists.sources)
            mapped = grad if targets is None else grad.index_select(0, targets)
            of_means, of_weights[number] = call.relation_map.backward(mapped, means, weight)
            if ctx.needs_input_grad[1 + source]:
                of_xs[source] = _add_grad(call, lists.sources, indptr, of_means, of_xs[source], xs[source])
        return None, *of_xs, *of_weights


def _add_grad(call: _Call, sources: Tensor, indptr: Tensor, of_means: Tensor, of_x: Tensor | None, x: Tensor) -> Tensor:
    """Add the gradient of the means' input to that of earlier relations, if there is one."""
    adds = of_x is not None
    out = call.products.empty(len(x), x.shape[1], torch.float32) if of_x is None else of_x
    threads, scratch = torch.get_num_threads(), call.products.scratch
    aggregate_backward(indptr, sources, None, None, True, of_means, out, threads, scratch, adds)
    return out

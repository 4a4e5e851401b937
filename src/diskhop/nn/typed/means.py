"""Means over each relation's neighbours, mapped by a matrix per relation, and added up with the mapped own row.

The core computes the means of some targets of a relation, and one product maps them while they are in the caches. No
array of size (edges, columns) is built, and targets without edges of a relation cost nothing. Means are computed again
in the backward pass instead of being kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diskhop._native import aggregate, aggregate_backward
from diskhop.nn.matmul.products import Products
from diskhop.nn.typed.block import RelationLists

# Targets whose means wait for the product: few enough to stay in the cache.
_CHUNK_TARGETS = 4096


class RelationMap(ABC):
    """A linear map of means, by a weight of the relation."""

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
    """A relation into targets.

    source: its source type.
    lists: its edges.
    weight: weight of its map.
    """

    source: str
    lists: RelationLists
    weight: Tensor


class MappedSum(NamedTuple):
    """A sum of mapped rows per target: of the target's own row, and of the means of its relations.

    destination: node type of the targets, its first rows.
    num_targets: number of targets.
    weight: float32 (out_dim, in_dim) of the target's own row.
    bias: float32 (out_dim).
    relations: relations into the targets.
    """

    destination: str
    num_targets: int
    weight: Tensor
    bias: Tensor
    relations: Sequence[Relation]


def mapped_means(
    x: Mapping[str, Tensor], sums: Sequence[MappedSum], relation_map: RelationMap, products: Products
) -> list[Tensor]:
    """Return the sums, float32 (targets, out_dim) each.

    x: float32 (sources, in_dim) of each node type.
    relation_map: map of the relations' means.
    products: of the own rows; memory of means.
    """
    call = _Call(list(x), [_without_tensors(each) for each in sums], relation_map, products)
    tensors = [
        tensor for each in sums for tensor in (each.weight, each.bias, *[part.weight for part in each.relations])
    ]
    outs: tuple[Tensor, ...] = _MappedMeans.apply(call, *x.values(), *tensors)  # type: ignore[no-untyped-call]
    return list(outs)


class _Parts(NamedTuple):
    """A MappedSum without weights: sources and lists of its relations."""

    destination: str
    num_targets: int
    relations: Sequence[tuple[str, RelationLists]]


def _without_tensors(each: MappedSum) -> _Parts:
    return _Parts(each.destination, each.num_targets, [(part.source, part.lists) for part in each.relations])


@dataclass(frozen=True, slots=True)
class _Call:
    """node_types: of the rows. parts: what is summed."""

    node_types: Sequence[str]
    parts: Sequence[_Parts]
    relation_map: RelationMap
    products: Products

    def empty(self, num_rows: int, like: Tensor) -> Tensor:
        return self.products.empty(num_rows, like.shape[1], torch.float32)

    def chunks(self, x: Tensor, indptr: Tensor, sources: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield ranges of targets with their means, which are overwritten by the next."""
        num_targets = len(indptr) - 1
        memory = self.empty(min(_CHUNK_TARGETS, num_targets), x)
        for begin in range(0, num_targets, _CHUNK_TARGETS):
            rows = slice(begin, min(begin + _CHUNK_TARGETS, num_targets))
            first, last = int(indptr[rows.start]), int(indptr[rows.stop])
            lists, means = indptr[rows.start : rows.stop + 1] - first, memory[: rows.stop - rows.start]
            aggregate(lists, sources[first:last], None, None, True, None, x, means, torch.get_num_threads())
            yield rows, means

    def split(self, operands: Sequence[Tensor]) -> tuple[dict[str, Tensor], Iterator[Tensor]]:
        """Split operands without their history into rows by type and the weights, in order."""
        values = [each.detach() for each in operands]
        return dict(zip(self.node_types, values, strict=False)), iter(values[len(self.node_types) :])


class _MappedMeans(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, *operands: Tensor) -> tuple[Tensor, ...]:
        x, weights = call.split(operands)
        outs: list[Tensor] = []
        for destination, num_targets, relations in call.parts:
            weight, bias = next(weights), next(weights)
            out = call.products.multiply(x[destination][:num_targets], weight.contiguous(), bias)
            for source, lists in relations:
                weight = next(weights)
                if len(lists.sources) == 0:
                    continue
                targets, indptr = lists.nonempty()
                for rows, means in call.chunks(x[source], indptr, lists.sources):
                    mapped = call.relation_map.forward(means, weight)
                    if targets is None:
                        out[rows].add_(mapped)
                    else:
                        out.index_add_(0, targets[rows], mapped)
            outs.append(out)
        ctx.save_for_backward(*operands)
        ctx.call = call
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        call: _Call = ctx.call
        x, weights = call.split(ctx.saved_tensors)
        of_x = _InputGrads(call, x, dict(zip(call.node_types, ctx.needs_input_grad[1:], strict=False)))
        of_weights: list[Tensor | None] = []
        for grad, (destination, num_targets, relations) in zip(grads, call.parts, strict=True):
            grad = grad.contiguous()
            of_weights += of_x.add_own(destination, x[destination][:num_targets], next(weights), grad)
            next(weights)
            for source, lists in relations:
                weight = next(weights)
                has_edges = len(lists.sources) > 0
                of_weights.append(of_x.add_relation(source, lists, weight, grad) if has_edges else None)
        return None, *[of_x.found.get(name) for name in call.node_types], *of_weights


class _InputGrads:
    """Gradients of the rows, one array per node type for all sums."""

    def __init__(self, call: _Call, x: Mapping[str, Tensor], needs: Mapping[str, bool]) -> None:
        self.found: dict[str, Tensor] = {}
        self._call = call
        self._x = x
        self._needs = needs

    def add_own(self, node_type: str, own: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Add the gradient of the targets' own rows; return those of weight and bias."""
        weights = weight.contiguous() if self._needs[node_type] else None
        of_own, of_weight, of_bias = self._call.products.gradients(grad, own, weights, None, None)
        if of_own is not None:
            if node_type in self.found:
                self.found[node_type][: len(own)] += of_own
            elif len(own) == len(self._x[node_type]):
                self.found[node_type] = of_own
            else:
                self.found[node_type] = self._call.empty(len(self._x[node_type]), own)
                self.found[node_type][: len(own)] = of_own
                self.found[node_type][len(own) :] = 0
        return of_weight, of_bias

    def add_relation(self, node_type: str, lists: RelationLists, weight: Tensor, grad: Tensor) -> Tensor:
        """Add the gradient of a relation's sources; return that of its weight."""
        call, x = self._call, self._x[node_type]
        targets, indptr = lists.nonempty()
        of_weight, of_means = torch.zeros_like(weight), call.empty(len(indptr) - 1, x)
        for rows, means in call.chunks(x, indptr, lists.sources):
            part = grad[rows] if targets is None else grad.index_select(0, targets[rows])
            of_means[rows], of_part = call.relation_map.backward(part, means, weight)
            of_weight += of_part
        if self._needs[node_type]:
            adds = node_type in self.found
            out = self.found[node_type] if adds else call.empty(len(x), x)
            threads, scratch = torch.get_num_threads(), call.products.scratch
            aggregate_backward(indptr, lists.sources, None, None, True, of_means, out, threads, scratch, adds)
            self.found[node_type] = out
        return of_weight

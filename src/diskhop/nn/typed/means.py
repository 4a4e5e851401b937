"""Means over each relation's neighbours, mapped by a matrix per relation, and added up with the mapped own row.

The core computes some means at a time, of one relation or of several, and a product per relation maps them while they
are in the caches; on a device, kernels compute those of a group at once. No array of size (edges, columns) is built,
and targets without edges of a relation cost nothing. Means are computed again in the backward pass instead of being
kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diskhop._native import aggregate, aggregate_backward
from diskhop.dataset.type_map import EdgeEnds
from diskhop.nn.kernels.choice import runs_core
from diskhop.nn.kernels.sums import run_sums
from diskhop.nn.matmul.products import Products
from diskhop.nn.typed.block import RelationLists
from diskhop.nn.typed.groups import MeanGroup, group_means, shifted

# Means that wait for the product: few enough to stay in the cache.
_CHUNK_MEANS = 4096
# Means of relations that are taken together, in the gradient too: enough that a call costs little next to its work.
_GROUP_MEANS = 1 << 15


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
        dtype = self.products.dtype
        return self.products.multiply(means.to(dtype), weight.to(dtype).contiguous(), None).float()

    def backward(self, grad: Tensor, means: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """See RelationMap."""
        dtype = self.products.dtype
        of_means, of_weight, _ = self.products.gradients(
            grad.to(dtype), means.to(dtype), weight.to(dtype).contiguous(), None, None
        )
        assert of_means is not None
        return of_means.float(), of_weight


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


class RelationMaps(NamedTuple):
    """The weights of a sum for one node type, as matrices.

    own: float32 (out_dim, in_dim) of the target's own row.
    bias: float32 (out_dim).
    of_means: float32 (out_dim, in_dim) of the mean of each relation's neighbours.
    """

    own: Tensor
    bias: Tensor
    of_means: Mapping[EdgeEnds, Tensor]


def mapped_means(
    x: Mapping[str, Tensor], sums: Sequence[MappedSum], relation_map: RelationMap, products: Products
) -> list[Tensor]:
    """Return the sums, float32 (targets, out_dim) each.

    x: float32 (sources, in_dim) of each node type.
    relation_map: map of the relations' means.
    products: of the own rows; memory of means.
    """
    num_relations = [len(each.relations) for each in sums]
    call = _Call(list(x), [_without_tensors(each) for each in sums], num_relations, relation_map, products)
    tensors = [
        tensor for each in sums for tensor in (each.weight, each.bias, *[part.weight for part in each.relations])
    ]
    outs: tuple[Tensor, ...] = _MappedMeans.apply(call, *x.values(), *tensors)  # type: ignore[no-untyped-call]
    return list(outs)


class _Parts(NamedTuple):
    """A MappedSum without weights: groups of its relations."""

    destination: str
    num_targets: int
    groups: Sequence[MeanGroup]


def _without_tensors(each: MappedSum) -> _Parts:
    by_source: dict[str, list[tuple[int, RelationLists]]] = {}
    for number, part in enumerate(each.relations):
        by_source.setdefault(part.source, []).append((number, part.lists))
    groups = [group for source, lists in by_source.items() for group in group_means(source, lists, _GROUP_MEANS)]
    return _Parts(each.destination, each.num_targets, groups)


@dataclass(frozen=True, slots=True)
class _Call:
    """node_types: of the rows. parts: what is summed."""

    node_types: Sequence[str]
    parts: Sequence[_Parts]
    num_relations: Sequence[int]
    relation_map: RelationMap
    products: Products

    def empty(self, num_rows: int, like: Tensor) -> Tensor:
        return self.products.empty(num_rows, like.shape[1], torch.float32, like.device)

    def chunks(self, x: Tensor, group: MeanGroup) -> Iterator[tuple[slice, Tensor]]:
        """Yield ranges of a group's means with their values, which are overwritten by the next."""
        if not runs_core(x):
            yield slice(0, len(group)), run_sums(x, group.lists().with_means(), torch.float32)
            return
        memory = self.empty(min(_CHUNK_MEANS, len(group)), x)
        for begin in range(0, len(group), _CHUNK_MEANS):
            rows = slice(begin, min(begin + _CHUNK_MEANS, len(group)))
            first, last = int(group.indptr[rows.start]), int(group.indptr[rows.stop])
            lists, means = group.indptr[rows.start : rows.stop + 1] - first, memory[: rows.stop - rows.start]
            aggregate(lists, group.sources[first:last], None, None, True, None, x, means, torch.get_num_threads())
            yield rows, means

    def split(self, operands: Sequence[Tensor]) -> tuple[dict[str, Tensor], Iterator[tuple[Tensor, ...]]]:
        """Split operands without their history into rows by type, and the weights of each part."""
        values = [each.detach() for each in operands]
        x, rest = dict(zip(self.node_types, values, strict=False)), iter(values[len(self.node_types) :])
        return x, (tuple(islice(rest, 2 + number)) for number in self.num_relations)


class _MappedMeans(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, *operands: Tensor) -> tuple[Tensor, ...]:
        x, weights = call.split(operands)
        outs: list[Tensor] = []
        for (destination, num_targets, groups), (own, bias, *others) in zip(call.parts, weights, strict=True):
            dtype = call.products.dtype
            out = call.products.multiply(
                x[destination][:num_targets].to(dtype), own.to(dtype).contiguous(), bias.to(dtype)
            ).float()
            for group in groups:
                for rows, means in call.chunks(x[group.source], group):
                    for number, part in group.relations_in(rows):
                        group.add_to(out, part, call.relation_map.forward(means[shifted(part, rows)], others[number]))
            outs.append(out)
        ctx.save_for_backward(*operands)
        ctx.call = call
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        call: _Call = ctx.call
        x, weights = call.split(ctx.saved_tensors)
        of_x = _InputGrads(call, x, dict(zip(call.node_types, ctx.needs_input_grad[1:], strict=False)))
        of_weights: list[Tensor] = []
        for given, (destination, num_targets, groups), (own, _, *others) in zip(
            grads, call.parts, weights, strict=True
        ):
            grad = given.contiguous()
            of_weights += of_x.add_own(destination, x[destination][:num_targets], own, grad)
            of_others = [torch.zeros_like(weight) for weight in others]
            for group in groups:
                of_x.add_group(group, others, grad, of_others)
            of_weights += of_others
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
        dtype = self._call.products.dtype
        weights = weight.to(dtype).contiguous() if self._needs[node_type] else None
        of_own, of_weight, of_bias = self._call.products.gradients(grad.to(dtype), own.to(dtype), weights, None, None)
        if of_own is not None:
            of_own = of_own.float()
            if node_type in self.found:
                self.found[node_type][: len(own)] += of_own
            elif len(own) == len(self._x[node_type]):
                self.found[node_type] = of_own
            else:
                self.found[node_type] = self._call.empty(len(self._x[node_type]), own)
                self.found[node_type][: len(own)] = of_own
                self.found[node_type][len(own) :] = 0
        return of_weight, of_bias

    def add_group(self, group: MeanGroup, weights: Sequence[Tensor], grad: Tensor, of_weights: list[Tensor]) -> None:
        """Add the gradient of a group's sources, and those of its relations' weights."""
        call, x = self._call, self._x[group.source]
        of_means = call.empty(len(group), x)
        for rows, means in call.chunks(x, group):
            for number, part in group.relations_in(rows):
                values = means[shifted(part, rows)]
                of_means[part], of_weight = call.relation_map.backward(group.of(grad, part), values, weights[number])
                of_weights[number] += of_weight
        if self._needs[group.source] and not runs_core(x):
            found = run_sums(of_means, group.lists().with_means().transposed(len(x)), torch.float32)
            self.found[group.source] = self.found[group.source] + found if group.source in self.found else found
        elif self._needs[group.source]:
            adds = group.source in self.found
            out = self.found[group.source] if adds else call.empty(len(x), x)
            threads, scratch = torch.get_num_threads(), call.products.scratch
            aggregate_backward(group.indptr, group.sources, None, None, True, of_means, out, threads, scratch, adds)
            self.found[group.source] = out

"""Neighbour aggregation: the one place where a model uses edges. The core computes the sums, or a device's kernels.

A *block* is the sampled edges of a whole mini-batch; a *layer block* is the part that one layer needs. Because every
node is expanded once, hop by hop, layer i of L needs the edges of the first L - i hops and nothing else: its
*targets* (rows it computes) are a prefix of its *sources* (rows it reads), which are a prefix of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from diskhop._native import aggregate, aggregate_backward
from diskhop.nn.kernels.choice import runs_core
from diskhop.nn.kernels.lists import NeighborLists
from diskhop.nn.kernels.sums import neighbor_sums
from diskhop.nn.matmul.products import DEFAULT_PRODUCTS, Products
from diskhop.protocols import SampledBatch


class BlockWeights(NamedTuple):
    """Weights of a block's edges, and sums of them in the whole graph.

    edges: float32 (edges).
    strengths: float32 (nodes), sum of the absolute weights of each node's in-edges from other nodes; None: sum those of
        the block.
    loops: float32 (nodes), weight of each node's edge to itself, 1 without one; None with strengths.
    """

    edges: Tensor
    strengths: Tensor | None = None
    loops: Tensor | None = None

    def first(self, num_edges: int, num_nodes: int) -> BlockWeights:
        """Return the weights of the first edges and nodes."""
        strengths, loops = (None if each is None else each[:num_nodes] for each in self[1:])
        return BlockWeights(self.edges[:num_edges], strengths, loops)

    def mapped(self, function: Callable[[Tensor], Tensor]) -> BlockWeights:
        """Return the weights with a function applied to each tensor."""
        strengths, loops = (None if each is None else function(each) for each in self[1:])
        return BlockWeights(function(self.edges), strengths, loops)


@dataclass(frozen=True, slots=True, eq=False)
class LayerBlock:
    """The edges of one layer, grouped by target: target i's neighbours are sources[indptr[i] : indptr[i + 1]].

    indptr: int32 (targets + 1).
    sources: int32 (edges), below num_sources.
    degrees: int64 (num_sources), in-degrees in the whole graph; None: count the edges of the block.
    rows: int32 (num_sources), rows of x of the sources; None: 0, 1, 2 ...
    weights: weights of the edges; None: all 1.
    importance: float32 (edges), how many of its target's edges in the whole graph each stands for; needs degrees.
        None: as many as all others of the target.
    """

    indptr: Tensor
    sources: Tensor
    num_sources: int
    degrees: Tensor | None = None
    rows: Tensor | None = None
    weights: BlockWeights | None = None
    importance: Tensor | None = None

    @property
    def num_targets(self) -> int:
        """Number of rows that the layer computes: a prefix of its sources."""
        return len(self.indptr) - 1

    def target_of_edge(self) -> Tensor:
        """Return the target of each edge, int64 (edges)."""
        if runs_core(self.indptr):
            return torch.from_numpy(np.repeat(np.arange(self.num_targets), np.diff(self.indptr.numpy())))
        return self.lists().list_of_edge()

    def lists(self) -> NeighborLists:
        """Return the targets' lists, for kernels."""
        return NeighborLists(self.indptr, self.sources)

    def sum_by_target(self, values: Tensor) -> Tensor:
        """Return the sum of the values of each target's edges, float64 (num_sources); other sources have 0."""
        targets = self.target_of_edge()
        if runs_core(values):
            # Without edges, NumPy counts in integers.
            sums = np.bincount(targets.numpy(), values.numpy(), minlength=self.num_sources).astype(np.float64)
            return torch.from_numpy(sums)
        zeros = torch.zeros(self.num_sources, dtype=torch.float64, device=values.device)
        return zeros.index_add_(0, targets, values.double())

    def edge_index(self) -> Tensor:
        """Return the edges as PyG's layers take them: int64 (2, edges), source then target."""
        return torch.stack([self.sources.long(), self.target_of_edge()])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Block:
    """The edges of a mini-batch; see SampledBatch.

    degrees: int64 (nodes), in-degrees in the whole graph, or None.
    rows: int32 (nodes), rows of x that hold the nodes' features; None: 0, 1, 2 ...
    by_hop: False if the block has edges of all nodes; every layer then needs them all, and computes every node.
    weights: weights of the edges; None: all 1.
    importance: see LayerBlock.
    """

    indptr: Tensor
    sources: Tensor
    num_sampled_nodes: tuple[int, ...]
    num_sampled_edges: tuple[int, ...]
    degrees: Tensor | None = None
    rows: Tensor | None = None
    by_hop: bool = True
    weights: BlockWeights | None = None
    importance: Tensor | None = None

    @classmethod
    def of(
        cls,
        sampled: SampledBatch,
        degrees: Tensor | None = None,
        rows: Tensor | None = None,
        weights: BlockWeights | None = None,
        importance: Tensor | None = None,
    ) -> Block:
        """Wrap a sampled batch; its edges are not copied.

        weights: of its edges; None: those of the graph are all 1. A sampler's own weights are importance where degrees
            are given, and otherwise weights of edges, which these include.
        """
        if sampled.edge_weights is not None and importance is None:
            own = torch.from_numpy(sampled.edge_weights)
            if degrees is not None:
                importance = own
            elif weights is None:
                weights = BlockWeights(own)
        return cls(
            torch.from_numpy(sampled.indptr.astype(np.int32)),
            torch.from_numpy(sampled.sources),
            sampled.num_sampled_nodes,
            sampled.num_sampled_edges,
            degrees,
            rows,
            sampled.by_hop,
            weights,
            importance,
        )

    def mapped(self, function: Callable[[Tensor], Tensor]) -> Block:
        """Return the block with a function applied to each tensor, such as one that copies it to a device."""
        degrees, rows, importance = (
            None if each is None else function(each) for each in (self.degrees, self.rows, self.importance)
        )
        return replace(
            self,
            indptr=function(self.indptr),
            sources=function(self.sources),
            degrees=degrees,
            rows=rows,
            weights=None if self.weights is None else self.weights.mapped(function),
            importance=importance,
        )

    def __repr__(self) -> str:
        return f"Block(hops={self.num_layers}, edges={len(self.sources)})"

    @property
    def num_layers(self) -> int:
        """Number of sampled hops: of the layers that the block serves, unless it has edges of all nodes."""
        return len(self.num_sampled_edges) - (not self.by_hop)

    def layer(self, index: int) -> LayerBlock:
        """Return the part that layer `index` needs (0: the first, which reads features)."""
        num_hops = self.num_layers - index if self.by_hop else len(self.num_sampled_edges)
        num_targets = sum(self.num_sampled_nodes[:num_hops])
        num_sources = sum(self.num_sampled_nodes[: num_hops + 1])
        num_edges = sum(self.num_sampled_edges[:num_hops])
        return LayerBlock(
            self.indptr[: num_targets + 1],
            self.sources[:num_edges],
            num_sources,
            None if self.degrees is None else self.degrees[:num_sources],
            None if self.rows is None or index > 0 else self.rows[:num_sources],
            None if self.weights is None else self.weights.first(num_edges, num_sources),
            None if self.importance is None else self.importance[:num_edges],
        )


def mean_and_self(x: Tensor, layer: LayerBlock, products: Products = DEFAULT_PRODUCTS) -> Tensor:
    """Return (targets, 2 * columns): the mean of each target's neighbours (0 without any), then its own row.

    With weights, a neighbour's row counts by its edge's weight over the sum of their absolute values (0 if that is 0).
    With importance, it counts by that over the target's degree in the graph: the expected sum is the graph's mean.

    x: float32, bfloat16 or float16 (sources, columns), or more rows if the layer block has `rows`.
    products: dtype and memory of the result.
    Sums are float32, in the order of the edges, for any number of threads. An x with more rows gets no gradient.
    """
    return _aggregated(x, layer, _mean_of(layer), 2 * x.shape[1], products)


def weighted_sum(
    x: Tensor, layer: LayerBlock, edge_weights: Tensor, self_weights: Tensor, products: Products = DEFAULT_PRODUCTS
) -> Tensor:
    """Return (targets, columns): the weighted sum of each target's neighbours and of its own row.

    edge_weights: float32 (edges); self_weights: float32 (targets); neither gets a gradient.
    x, products: as for mean_and_self().
    """
    return _aggregated(x, layer, _Sums(edge_weights, self_weights), x.shape[1], products)


def _mean_of(layer: LayerBlock) -> _Sums:
    """Return the sum that is the mean of each target's neighbours."""
    if layer.weights is not None:
        weights = layer.weights.edges
        return _Sums(_shares(layer, weights if layer.importance is None else weights * layer.importance))
    if layer.importance is None:
        return _Sums(is_mean=True)
    assert layer.degrees is not None, "importance is of the graph's edges"
    return _Sums(layer.importance / layer.degrees[layer.target_of_edge()].clamp(min=1))


def _shares(layer: LayerBlock, weights: Tensor) -> Tensor:
    """Divide the weights of each target's edges by the sum of their absolute values."""
    totals = layer.sum_by_target(weights.abs())
    totals[totals == 0] = 1
    return (weights / totals[layer.target_of_edge()]).float()


class _Sums(NamedTuple):
    """Kind of sum; see the core's NeighborSums."""

    edge_weights: Tensor | None = None
    self_weights: Tensor | None = None
    is_mean: bool = False


def _aggregated(x: Tensor, layer: LayerBlock, sums: _Sums, num_columns: int, products: Products) -> Tensor:
    """Return sums of rows, followed by the targets' own rows if twice as many columns are wanted."""
    if runs_core(x):
        out: Tensor = _Aggregate.apply(x, layer, sums, num_columns, products)  # type: ignore[no-untyped-call]
        return out
    if layer.rows is not None:
        x = x.index_select(0, layer.rows)
    lists = NeighborLists(layer.indptr, layer.sources, sums.edge_weights, sums.self_weights)
    out = neighbor_sums(x, lists.with_means() if sums.is_mean else lists, products.dtype)
    is_wide = num_columns > x.shape[1]
    return torch.cat([out, x[: layer.num_targets].to(out.dtype)], dim=1) if is_wide else out


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: LayerBlock, sums: _Sums, num_columns: int, products: Products) -> Tensor:
        out = products.empty(layer.num_targets, num_columns, products.dtype)
        sources, own_rows = layer.sources, None
        if layer.rows is not None:
            sources, own_rows = layer.rows.index_select(0, sources), layer.rows[: layer.num_targets]
        aggregate(layer.indptr, sources, *sums, own_rows, _whole_rows(x.detach()), out, torch.get_num_threads())
        ctx.layer, ctx.sums, ctx.products, ctx.shape, ctx.dtype = layer, sums, products, x.shape, x.dtype
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        dtype = torch.bfloat16 if ctx.dtype == torch.bfloat16 else torch.float32
        grad_x: Tensor = ctx.products.empty(*ctx.shape, dtype)
        layer: LayerBlock = ctx.layer
        sums: _Sums = ctx.sums
        threads, scratch = torch.get_num_threads(), ctx.products.scratch
        aggregate_backward(layer.indptr, layer.sources, *sums, _whole_rows(grad.to(dtype)), grad_x, threads, scratch)
        return grad_x.to(ctx.dtype), None, None, None, None


def _whole_rows(x: Tensor) -> Tensor:
    """Make the columns contiguous: the core reads rows with any stride between them."""
    return x if x.stride(1) == 1 else x.contiguous()

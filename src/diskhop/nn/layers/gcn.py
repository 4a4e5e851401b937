"""GCN (Kipf and Welling, 2017) on sampled neighbours.

Normalised by sampled degrees (`LayerBlock.degrees` is None), values are PyG's GCNConv's on the same sampled edges: a
node that was not expanded counts as degree 1. Normalised by the whole graph's degrees, a batch with all neighbours
gives exactly what the whole graph would; where only k of d neighbours were sampled, each is weighted by d / k, so that
the sum is unbiased. Edges with importance (LayerBlock) stand for that many instead: LADIES and FastGCN sample the
normalised graph. Training uses sampled degrees unless it samples all neighbours or layer by layer, inference the whole
graph's.

With edge weights, values are GCNConv's with `edge_weight`: a node's degree is its strength, and a self-loop of the
graph keeps its weight. Negative weights count in a strength by their absolute value (Kunegis et al., 2010), where PyG
has NaN or the square root of a difference.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from diskhop.nn.layers.aggregate import BlockWeights, LayerBlock, weighted_sum
from diskhop.nn.matmul.products import DEFAULT_PRODUCTS, Products
from diskhop.nn.matmul.rectifier import Rectifier


class GcnLayer(nn.Module):
    """PyG's GCNConv, with its parameters, on a layer block."""

    uses_degrees = True
    takes_stored_rows = True
    rectifies = True

    def __init__(self, in_dim: int, out_dim: int, products: Products = DEFAULT_PRODUCTS) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_dim, out_dim
        self.lin = nn.Linear(in_dim, out_dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_dim))
        nn.init.xavier_uniform_(self.lin.weight)
        self._products = products

    def forward(self, x: Tensor, layer: LayerBlock, rectifier: Rectifier | None = None) -> Tensor:
        """Map (sources, in_dim) to (targets, out_dim), followed by the rectifier if there is one."""
        # Sum first, then multiply: there are fewer targets than sources.
        rows = weighted_sum(x, layer, *gcn_weights(layer), self._products)
        return self._products.linear(rows, self.lin.weight, self.bias, rectifier)


def gcn_weights(layer: LayerBlock) -> tuple[Tensor, Tensor]:
    """Return float32 weights of the edges, and of the self-loop that every target gets.

    As in PyG, that loop replaces a self-loop of the graph, whose edge gets weight 0. (Whole-graph degrees count it.)
    """
    if layer.weights is not None:
        return _of_weighted(layer, layer.weights)
    targets = layer.target_of_edge()
    is_proper = targets != layer.sources
    drawn = torch.bincount(targets[is_proper], minlength=layer.num_sources)
    degrees = drawn if layer.degrees is None else layer.degrees
    scale = (degrees + 1).float().rsqrt()
    weights = scale[targets] * scale[layer.sources] * is_proper
    if layer.importance is not None:
        weights = weights * layer.importance
    elif layer.degrees is not None:
        neighbors_each_stands_for = degrees[: layer.num_targets] / layer.indptr.diff().clamp(min=1)
        weights = weights * neighbors_each_stands_for[targets]
    return weights, scale[: layer.num_targets].square()


def _of_weighted(layer: LayerBlock, weights: BlockWeights) -> tuple[Tensor, Tensor]:
    """Return what gcn_weights() returns for weighted edges."""
    sources, given = layer.sources, weights.edges
    targets = layer.target_of_edge()
    is_proper = targets != sources
    if weights.strengths is None or weights.loops is None:
        strengths = layer.sum_by_target(given.abs() * is_proper)
        loops = torch.ones_like(strengths)
        # Of several the last counts, as in PyG. Edges are grouped by target.
        of_loops, values = targets[~is_proper], given[~is_proper].double()
        is_last = torch.ones_like(of_loops, dtype=torch.bool)
        is_last[:-1] = of_loops[1:] != of_loops[:-1]
        loops[of_loops[is_last]] = values[is_last]
    else:
        strengths, loops = weights.strengths.double(), weights.loops.double()
    totals = strengths + loops.abs()
    scale = torch.where(totals > 0, 1 / totals.sqrt(), 0.0)
    normalised = given * scale[targets] * scale[sources] * is_proper
    if layer.importance is not None:
        normalised *= layer.importance
    elif layer.degrees is not None and weights.strengths is not None:
        normalised *= (layer.degrees[: layer.num_targets].double() / layer.indptr.diff().clamp(min=1))[targets]
    own = (loops * scale.square())[: layer.num_targets]
    return normalised.float(), own.float()

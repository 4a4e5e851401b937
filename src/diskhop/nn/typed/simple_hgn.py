"""Simple-HGN (Lv et al., 2021): graph attention with an embedding per edge type, and residual connections.

Formulas and initial values are those of the published code: edges in both directions have types of their own, every
node has an edge to itself of one more type, attention is mixed with that of the layer before, and outputs have norm 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from diskhop.nn.layers.attention import Dropout
from diskhop.nn.matmul.products import Products
from diskhop.nn.typed.attention import add_scores, slot_softmax, sum_slots
from diskhop.nn.typed.block import MergedLists, TypedLayerBlock, rows_of_all
from diskhop.nn.typed.schema import TypedSchema

NEGATIVE_SLOPE = 0.05
# Share of the attention of the layer before.
ATTENTION_RESIDUAL = 0.05
# Least norm by which outputs are divided.
EPSILON = 1e-12


class SimpleHgnLayer(nn.Module):
    """One layer; heads are concatenated.

    edge_dim: width of the edge types' embeddings.
    residual: whether a linear map of the target's own row is added.
    dropout: rate of the attention.
    """

    def __init__(
        self,
        schema: TypedSchema,
        in_dim: int,
        out_dim: int,
        products: Products,
        *,
        heads: int,
        edge_dim: int,
        residual: bool,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        dim = out_dim // heads
        self.edge_emb = nn.Embedding(len(schema.relations) + 1, edge_dim)
        self.fc = nn.Linear(in_dim, out_dim, bias=False)
        self.fc_e = nn.Linear(edge_dim, edge_dim * heads, bias=False)
        self.attn_l = nn.Parameter(torch.empty(1, heads, dim))
        self.attn_r = nn.Parameter(torch.empty(1, heads, dim))
        self.attn_e = nn.Parameter(torch.empty(1, heads, edge_dim))
        self.res_fc = nn.Linear(in_dim, out_dim, bias=False) if residual else None
        self.bias_param = nn.Parameter(torch.zeros(1, heads, dim))
        weights = [self.fc.weight, self.fc_e.weight, self.attn_l, self.attn_r, self.attn_e]
        for weight in weights if self.res_fc is None else [*weights, self.res_fc.weight]:
            nn.init.xavier_normal_(weight, gain=nn.init.calculate_gain("relu"))
        self._schema = schema
        self._products = products
        self._heads = heads
        self.num_scores = 2 * heads
        self._dropout = dropout

    def forward(
        self, x: Mapping[str, Tensor], layer: TypedLayerBlock, earlier: Mapping[str, Tensor] | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Map (sources, in_dim) of each type to (targets, out_dim) of each type with targets.

        earlier: attention of the layer before, as the second result. By type, (edges, heads), in the order of merged
            lists with loops; edges of this layer come first.
        """
        mapped = self._products.linear(rows_of_all(x, layer), self.fc.weight)
        scores = self._scores_of(mapped)
        outs, attentions = {}, {}
        for name, merged in self._lists(layer):
            attention = self._attention(name, merged, scores, layer, earlier)
            out = sum_slots(attention, mapped, merged.indptr, merged.sources)
            if self.res_fc is not None:
                out = out + self._products.linear(x[name][: layer.num_targets[name]], self.res_fc.weight)
            outs[name] = out + self.bias_param.flatten()
            attentions[name] = attention.detach()
        return outs, attentions

    def scores(self, rows: Tensor) -> Tensor:
        """Return what attention knows of rows: their scores as sources, then as targets, float32 (rows, 2 * heads)."""
        return self._scores_of(self._products.linear(rows, self.fc.weight)).flatten(1)

    def attention(
        self, scores: Mapping[str, Tensor], layer: TypedLayerBlock, earlier: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Return the second result of forward() from the scores of the sources of each type."""
        of_all = rows_of_all(scores, layer)
        by_head = of_all.reshape(len(of_all), 2, self._heads)
        return {name: self._attention(name, merged, by_head, layer, earlier) for name, merged in self._lists(layer)}

    def _lists(self, layer: TypedLayerBlock) -> Iterator[tuple[str, MergedLists]]:
        """Yield each type with targets, and the edges into it with loops."""
        for name, num_targets in layer.num_targets.items():
            if num_targets > 0:
                yield name, layer.merged(self._schema.into(name), loops_of=name)

    def _scores_of(self, mapped: Tensor) -> Tensor:
        """Return the scores of mapped rows as sources and as targets, (rows, 2, heads)."""
        by_head = mapped.view(len(mapped), self._heads, -1)
        return torch.stack([(by_head * each).sum(dim=2) for each in (self.attn_l, self.attn_r)], dim=1)

    def _attention(
        self,
        name: str,
        merged: MergedLists,
        scores: Tensor,
        layer: TypedLayerBlock,
        earlier: Mapping[str, Tensor] | None,
    ) -> Tensor:
        """Return the attention of the edges into a type, (edges, heads). scores: of all sources."""
        of_types = self.fc_e(self.edge_emb.weight).view(-1, self._heads, self.attn_e.shape[2])
        of_types = (of_types * self.attn_e).sum(dim=2)
        start, relations = layer.row_starts()[name], self._schema.into(name)
        of_targets = scores[start : start + layer.num_targets[name], 1]
        numbers = [*(self._schema.relations.index(ends) for ends in relations), len(self._schema.relations)]
        by_relation = of_targets[:, None] + of_types[torch.tensor(numbers, device=of_types.device)]
        summed = add_scores(scores[:, 0], by_relation.flatten(0, 1), merged.by_relation, merged.sources)
        attention = slot_softmax(
            functional.leaky_relu(summed, NEGATIVE_SLOPE),
            merged.indptr,
            Dropout.draw(self._dropout if self.training else 0.0),
        )
        if earlier is None:
            return attention
        return (1 - ATTENTION_RESIDUAL) * attention + ATTENTION_RESIDUAL * earlier[name][: len(attention)]

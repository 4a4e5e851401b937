"""Simple-HGN (Lv et al., 2021): graph attention with an embedding per edge type, and residual connections.

Formulas and initial values are those of the published code: edges in both directions have types of their own, every
node has an edge to itself of one more type, attention is mixed with that of the layer before, and outputs have norm 1.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from diskhop.nn.layers.attention import Dropout
from diskhop.nn.matmul.products import Products
from diskhop.nn.typed.attention import add_scores, slot_softmax, sum_slots
from diskhop.nn.typed.block import TypedLayerBlock, rows_of_all
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
        self._dropout = dropout

    def forward(
        self, x: Mapping[str, Tensor], layer: TypedLayerBlock, earlier: Mapping[str, Tensor] | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Map (sources, in_dim) of each type to (targets, out_dim) of each type with targets.

        earlier: attention of the layer before, as the second result. By type, (edges, heads), in the order of merged
            lists with loops; edges of this layer come first.
        """
        mapped = self._products.linear(rows_of_all(x, layer), self.fc.weight)
        by_head = mapped.view(len(mapped), self._heads, -1)
        as_sources, as_targets = ((by_head * each).sum(dim=2) for each in (self.attn_l, self.attn_r))
        of_types = self.fc_e(self.edge_emb.weight).view(-1, self._heads, self.attn_e.shape[2])
        of_types = (of_types * self.attn_e).sum(dim=2)
        starts = layer.row_starts()
        outs, attentions = {}, {}
        for name, num_targets in layer.num_targets.items():
            if num_targets == 0:
                continue
            of_targets = as_targets[starts[name] : starts[name] + num_targets]
            relations = self._schema.into(name)
            merged = layer.merged(relations, loops_of=name)
            numbers = [*(self._schema.relations.index(ends) for ends in relations), len(self._schema.relations)]
            by_relation = of_targets[:, None] + of_types[torch.tensor(numbers)]
            scores = add_scores(as_sources, by_relation.flatten(0, 1), merged.by_relation, merged.sources)
            attention = slot_softmax(
                functional.leaky_relu(scores, NEGATIVE_SLOPE),
                merged.indptr,
                Dropout.draw(self._dropout if self.training else 0.0),
            )
            if earlier is not None:
                before = earlier[name][: len(attention)]
                attention = (1 - ATTENTION_RESIDUAL) * attention + ATTENTION_RESIDUAL * before
            out = sum_slots(attention, mapped, merged.indptr, merged.sources)
            if self.res_fc is not None:
                out = out + self._products.linear(x[name][:num_targets], self.res_fc.weight)
            outs[name] = out + self.bias_param.flatten()
            attentions[name] = attention.detach()
        return outs, attentions

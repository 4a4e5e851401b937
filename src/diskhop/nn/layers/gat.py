"""Graph attention (Velickovic et al., 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from diskhop.nn.layers.aggregate import LayerBlock
from diskhop.nn.layers.attention import Dropout, attend, attend_then_map, attention, saves_to_attend_first
from diskhop.nn.matmul.products import DEFAULT_PRODUCTS, Products


class GatLayer(nn.Module):
    """PyG's GATConv on a layer block, with its parameters and values. Heads are concatenated: out_dim is all of them.

    dropout: rate of the attention.
    products: of the linear map, if it comes before the sum; after the sum it is float32.
    """

    negative_slope = 0.2

    def __init__(
        self, in_dim: int, out_dim: int, *, heads: int, dropout: float, products: Products = DEFAULT_PRODUCTS
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.heads, self.dropout = in_dim, out_dim // heads, heads, dropout
        self.lin = nn.Linear(in_dim, out_dim, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, self.out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, self.out_channels))
        self.bias = nn.Parameter(torch.zeros(out_dim))
        nn.init.xavier_uniform_(self.lin.weight)
        for vectors in (self.att_src, self.att_dst):
            nn.init.xavier_uniform_(vectors[0])
        self._products = products

    def forward(self, x: Tensor, layer: LayerBlock) -> Tensor:
        """Map (sources, in_dim) to float32 (targets, out_dim)."""
        x = x.float()
        dropout = Dropout.draw(self.dropout if self.training else 0.0)
        # A row's scores are linear in it, before the map as after.
        by_head = self.heads, self.out_channels, -1
        vectors = torch.stack([self.att_src.view(by_head), self.att_dst.view(by_head)])
        scores = functional.linear(x, (vectors * self.lin.weight.view(by_head)).sum(dim=2).flatten(0, 1))
        weights = attention(scores, layer, self.negative_slope, dropout)
        weight = self.lin.weight
        if saves_to_attend_first(layer, self.heads, len(weight)):
            out = attend_then_map(weights, x, weight, layer, dropout.scale)
        else:
            out = attend(weights, self._products.linear(x, weight), layer, dropout.scale)
        return out.add_(self.bias)

"""HOGA (Deng et al., 2024): a node's hops are tokens that attend to one another, gated, then read out by attention.

With Q, K, V, U linear maps of the embedded hops X: H = dropout(relu(norm(U * (softmax(Q K^T / sqrt(d)) V)))) over the
hops of one node, and y = perceptron(H_0 + sum_k c_k H_k), c = softmax over k >= 1 of a . H_k. (The paper's score is
a . [H_0, H_k]; what H_0 adds is the same for all k, and softmax leaves it out.)

Each hop has its own hidden layer, as in SIGN: with one linear map for all hops a token does not identify its hop, and
oewn loses 8 points. The paper has one map, which `shared_map` asks for.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from diskhop.nn.hop.layers import HiddenLayer, Mlp
from diskhop.nn.matmul.products import DEFAULT_PRODUCTS, Linear, Products
from diskhop.nn.matmul.rectifier import Rectifier
from diskhop.nn.norms import LayerNorm


class Hoga(nn.Module):
    """HOGA on rows of hop tables.

    num_layers: layers of the perceptron.
    heads: attention heads, each hidden_dim / heads wide.
    norm: norm of hidden layers; gated hops use LayerNorm, as in the paper.
    dropout: rate in all hidden layers.
    shared_map: True for one hidden layer that embeds all hops, as in the paper.
    """

    def __init__(
        self,
        in_dim: int,
        num_tables: int,
        hidden_dim: int,
        out_dim: int,
        num_layers: int,
        *,
        heads: int = 1,
        norm: str = "none",
        dropout: float = 0.0,
        shared_map: bool = False,
        products: Products = DEFAULT_PRODUCTS,
    ) -> None:
        super().__init__()
        num_maps = 1 if shared_map else num_tables
        self.hops = nn.ModuleList(HiddenLayer(in_dim, hidden_dim, norm, dropout, products) for _ in range(num_maps))
        # Queries, keys, values and gates, in one product.
        self.projections = Linear(hidden_dim, 4 * hidden_dim, products)
        self.norm = LayerNorm(hidden_dim, products)
        self.readout = nn.Parameter(torch.empty(hidden_dim).uniform_(-(hidden_dim**-0.5), hidden_dim**-0.5))
        self.mlp = Mlp(hidden_dim, hidden_dim, out_dim, num_layers, norm, dropout, products)
        self._heads = heads
        self._shared_map = shared_map
        self._dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """(tables, batch, in_dim) -> (batch, out_dim)."""
        num_tables, num_rows, _ = x.shape
        if self._shared_map:
            embedded = self.hops[0](x.flatten(0, 1))
        else:
            embedded = torch.cat([hop(rows) for hop, rows in zip(self.hops, x, strict=True)])
        *projected, gates = self.projections(embedded).view(num_tables, num_rows, 4, -1).unbind(2)
        queries, keys, values = map(self._tokens, projected)
        # Products of small matrices: torch's fused kernels are slower for this few tokens.
        attention = (queries @ keys.mT * queries.shape[-1] ** -0.5).softmax(dim=-1)
        gated = gates * (attention @ values).permute(2, 0, 1, 3).flatten(2)
        rectifier = Rectifier.draw(self._dropout if self.training else 0.0)
        hops = self.norm(gated.flatten(0, 1), rectifier).view(num_tables, num_rows, -1)
        weights = (hops[1:] @ self.readout.to(hops.dtype)).softmax(dim=0)
        out: Tensor = self.mlp(hops[0] + (weights.unsqueeze(2) * hops[1:]).sum(dim=0))
        return out

    def _tokens(self, columns: Tensor) -> Tensor:
        """A view of (tables, batch, hidden) as (batch, heads, tables, hidden / heads)."""
        return columns.view(*columns.shape[:2], self._heads, -1).permute(1, 2, 0, 3)

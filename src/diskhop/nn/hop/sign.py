"""SIGN (Frasca et al., 2020): a hidden layer per hop, then a perceptron over their concatenation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from diskhop.nn.hop.layers import HiddenLayer, Mlp
from diskhop.nn.matmul.products import DEFAULT_PRODUCTS, Products


class Sign(nn.Module):
    """SIGN on rows of hop tables.

    num_layers: layers of the perceptron; 1 is a linear map.
    norm, dropout: of every hidden layer.
    """

    def __init__(
        self,
        in_dim: int,
        num_tables: int,
        hidden_dim: int,
        out_dim: int,
        num_layers: int,
        *,
        norm: str = "none",
        dropout: float = 0.0,
        products: Products = DEFAULT_PRODUCTS,
    ) -> None:
        super().__init__()
        self.hops = nn.ModuleList(HiddenLayer(in_dim, hidden_dim, norm, dropout, products) for _ in range(num_tables))
        self.mlp = Mlp(num_tables * hidden_dim, hidden_dim, out_dim, num_layers, norm, dropout, products)

    def forward(self, x: Tensor) -> Tensor:
        """(tables, batch, in_dim) -> (batch, out_dim)."""
        hidden = torch.cat([hop(rows) for hop, rows in zip(self.hops, x, strict=True)], dim=1)
        out: Tensor = self.mlp(hidden)
        return out

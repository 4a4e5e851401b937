"""Simple graph convolution (Wu et al., 2019): logistic regression on the farthest hop."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from diskhop.nn.matmul.products import DEFAULT_PRODUCTS, Linear, Products


class Sgc(nn.Module):
    """Linear map of the last table, after dropout. The other tables are not used."""

    def __init__(
        self, in_dim: int, out_dim: int, *, dropout: float = 0.0, products: Products = DEFAULT_PRODUCTS
    ) -> None:
        super().__init__()
        self.linear = Linear(in_dim, out_dim, products)
        self._dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """(tables, batch, in_dim) -> (batch, out_dim)."""
        out: Tensor = self.linear(functional.dropout(x[-1], self._dropout, self.training))
        return out

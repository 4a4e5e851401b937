"""Simple graph convolution (Wu et al., 2019): logistic regression on the farthest hop."""

from __future__ import annotations

from torch import Tensor, nn

from diskhop.models.products import DEFAULT_PRODUCTS, Linear, Products


class Sgc(nn.Module):
    """One linear map of the last table; the others only led to it."""

    def __init__(self, in_dim: int, out_dim: int, products: Products = DEFAULT_PRODUCTS) -> None:
        super().__init__()
        self.linear = Linear(in_dim, out_dim, products)

    def forward(self, x: Tensor) -> Tensor:
        """(tables, batch, in_dim) -> (batch, out_dim)."""
        out: Tensor = self.linear(x[-1])
        return out

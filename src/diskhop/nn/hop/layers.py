"""Building blocks of hop models: linear layers with norm, ReLU and dropout, and the preparation of input rows.

A *hop model* has no edges: its input is rows of *hop tables*, (tables, batch, dim), hop 0 first, then every operator's
hops in order (PP-GNN, section 2.2).
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from diskhop.nn.activation import relu
from diskhop.nn.matmul.products import Linear, Products
from diskhop.nn.matmul.rectifier import Rectifier
from diskhop.nn.norms import NORMS, LayerNorm


class HiddenLayer(nn.Module):
    """dropout(relu(norm(linear(x)))), in as few passes over the rows as the norm allows."""

    def __init__(self, in_dim: int, out_dim: int, norm: str, dropout: float, products: Products) -> None:
        super().__init__()
        self.linear = Linear(in_dim, out_dim, products)
        self.norm = NORMS[norm](out_dim, products)
        self._dropout = dropout
        self._products = products

    def forward(self, x: Tensor) -> Tensor:
        """(rows, in_dim) -> (rows, out_dim)."""
        dropout = self._dropout if self.training else 0.0
        if isinstance(self.norm, nn.Identity):
            rectified: Tensor = self.linear(x, Rectifier.draw(dropout))
        elif isinstance(self.norm, LayerNorm):
            rectified = self.norm(self.linear(x), Rectifier.draw(dropout))
        else:
            rectified = relu(self.norm(self.linear(x)), dropout, self._products)
        return rectified


class Mlp(nn.Sequential):
    """Perceptron: hidden layers of one width and a linear one, num_layers in total."""

    def __init__(
        self, in_dim: int, hidden_dim: int, out_dim: int, num_layers: int, norm: str, dropout: float, products: Products
    ) -> None:
        dims = [in_dim, *[hidden_dim] * (num_layers - 1)]
        super().__init__(
            *(HiddenLayer(dims[i], dims[i + 1], norm, dropout, products) for i in range(num_layers - 1)),
            Linear(dims[-1], out_dim, products),
        )


class HopNetwork(nn.Module):
    """Hop model with prepared input.

    input_dropout: dropout rate of features.
    normalize_input: divide each row by its sum.
    """

    def __init__(self, model: nn.Module, *, input_dropout: float = 0.0, normalize_input: bool = False) -> None:
        super().__init__()
        self.model = model
        self._input_dropout = input_dropout
        self._normalize_input = normalize_input

    def forward(self, x: Tensor) -> Tensor:
        """Map rows of the tables (tables, batch, in_dim), of any dtype, to float32 (batch, out_dim)."""
        if self._normalize_input:
            x = x.float()
            x = x / x.sum(dim=2, keepdim=True).clamp(min=1.0)
        x = functional.dropout(x, self._input_dropout, self.training)
        out: Tensor = self.model(x)
        return out.float()

"""GraphSAGE with mean aggregation (Hamilton et al., 2017); with edge weights, a weighted mean."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from diskhop.nn.layers.aggregate import LayerBlock, mean_and_self
from diskhop.nn.matmul.products import DEFAULT_PRODUCTS, Products
from diskhop.nn.matmul.rectifier import Rectifier


class SageLayer(nn.Module):
    """PyG's SAGEConv on a layer block, with its parameters and values, as one matrix product instead of two.

    (No layer here derives from PyG's: a command that needs PyG for nothing else starts seconds earlier without it.)
    """

    takes_stored_rows = True
    rectifies = True

    def __init__(self, in_dim: int, out_dim: int, products: Products = DEFAULT_PRODUCTS) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_dim, out_dim
        self.lin_l = nn.Linear(in_dim, out_dim)
        self.lin_r = nn.Linear(in_dim, out_dim, bias=False)
        self._products = products

    def forward(self, x: Tensor, layer: LayerBlock, rectifier: Rectifier | None = None) -> Tensor:
        """Map (sources, in_dim) to (targets, out_dim), followed by the rectifier if there is one."""
        rows = mean_and_self(x, layer, self._products)
        weight = torch.cat([self.lin_l.weight, self.lin_r.weight], dim=1)
        return self._products.linear(rows, weight, self.lin_l.bias, rectifier)

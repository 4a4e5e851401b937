"""Graph attention (Velickovic et al., 2018)."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn import GATConv

from diskhop.models.aggregate import LayerBlock


class GatLayer(GATConv):  # type: ignore[misc]  # PyG has no types
    """PyG's GATConv on a layer block, heads side by side: out_dim is all of them. dropout: of the attention."""

    def __init__(self, in_dim: int, out_dim: int, *, heads: int, dropout: float) -> None:
        super().__init__(in_dim, out_dim // heads, heads=heads, dropout=dropout)

    def forward(self, x: Tensor, layer: LayerBlock) -> Tensor:
        """(sources, in_dim) -> (targets, out_dim)."""
        size = (layer.num_sources, layer.num_targets)
        out: Tensor = super().forward((x, x[: layer.num_targets]), layer.edge_index(), size=size)
        return out

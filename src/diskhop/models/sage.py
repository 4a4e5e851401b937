"""GraphSAGE with mean aggregation (Hamilton et al., 2017)."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn import SAGEConv

from diskhop.models.aggregate import LayerBlock, aggregate_mean


class SageLayer(SAGEConv):  # type: ignore[misc]  # PyG has no types
    """PyG's SAGEConv, with its parameters and values, on a layer block."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__(in_dim, out_dim, aggr="mean")

    def forward(self, x: Tensor, layer: LayerBlock) -> Tensor:
        """(sources, in_dim) -> (targets, out_dim)."""
        out: Tensor = self.lin_l(aggregate_mean(x, layer)) + self.lin_r(x[: layer.num_targets])
        return out

"""R-GCN (Schlichtkrull et al., 2018): a matrix per relation, of bases or of diagonal blocks if wanted."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch_geometric.nn import RGCNConv

from diskhop.nn.matmul.products import Products
from diskhop.nn.typed.attention import sum_slots
from diskhop.nn.typed.block import RelationLists, TypedLayerBlock, rows_of_all
from diskhop.nn.typed.means import BlockMap, DenseMap, Relation, mapped_means
from diskhop.nn.typed.schema import TypedSchema

# Cost of a multiplication in a weighted sum over edges, relative to a matrix product (see layers/attention.py).
_EDGE_COST = 4


class RgcnLayer(RGCNConv):  # type: ignore[misc]  # PyG has no types
    """PyG's RGCNConv with its parameters and values; relations have the order of the schema.

    num_bases: number of matrices that those of the relations combine; 0: none.
    num_blocks: number of diagonal blocks of each matrix; 0: whole matrices.
    """

    def __init__(
        self,
        schema: TypedSchema,
        in_dim: int,
        out_dim: int,
        products: Products,
        *,
        num_bases: int = 0,
        num_blocks: int = 0,
    ) -> None:
        super().__init__(
            in_dim, out_dim, len(schema.relations), num_bases=num_bases or None, num_blocks=num_blocks or None
        )
        self._schema = schema
        self._products = products

    def forward(self, x: Mapping[str, Tensor], layer: TypedLayerBlock) -> dict[str, Tensor]:
        """Map (sources, in_dim) of each type to (targets, out_dim) of each type with targets and relations."""
        outs = {}
        for name in self._schema.destinations:
            num_targets = layer.num_targets[name]
            if num_targets == 0:
                continue
            own = self._products.linear(x[name][:num_targets], self.root.t(), self.bias)
            outs[name] = self._neighbors(name, x, layer).add_(own)
        return outs

    def _neighbors(self, destination: str, x: Mapping[str, Tensor], layer: TypedLayerBlock) -> Tensor:
        relations = self._schema.into(destination)
        numbers = torch.tensor([self._schema.relations.index(ends) for ends in relations])
        lists = [layer.lists[ends] for ends in relations]
        if self.comp is not None and self._saves_to_sum_by_basis(lists):
            return self._by_basis(numbers, destination, x, layer)
        if self.comp is None:
            weights = [self.weight[number] for number in numbers]
        else:
            combined = self.comp.index_select(0, numbers) @ self.weight.flatten(1)
            weights = list(combined.view(-1, self.in_channels_l, self.out_channels))
        sources = list(dict.fromkeys(source for source, _, _ in relations))
        is_dense = self.num_blocks is None
        parts = [
            Relation(sources.index(ends[0]), each, weight.t() if is_dense else weight)
            for ends, each, weight in zip(relations, lists, weights, strict=True)
        ]
        relation_map = DenseMap(self._products) if is_dense else BlockMap()
        return mapped_means([x[name] for name in sources], parts, relation_map, self._products)

    def _saves_to_sum_by_basis(self, lists: list[RelationLists]) -> bool:
        """Return whether a weighted sum per basis and one product cost less than a mean and a product per relation."""
        num_bases, _, out_dim = self.weight.shape
        num_edges = sum(len(each.sources) for each in lists)
        num_means = sum(int((each.indptr.diff() > 0).sum()) for each in lists)
        by_basis = num_bases * (_EDGE_COST * num_edges + out_dim * lists[0].num_targets)
        by_relation = _EDGE_COST * num_edges + out_dim * (num_means + len(lists) * num_bases)
        return bool(by_basis < by_relation)

    def _by_basis(self, numbers: Tensor, destination: str, x: Mapping[str, Tensor], layer: TypedLayerBlock) -> Tensor:
        """Sum neighbours once per basis, each times its relation's coefficient over its relation's degree."""
        merged = layer.merged(self._schema.into(destination))
        degrees = merged.by_relation.diff()
        coefficients = self.comp.index_select(0, numbers).repeat(layer.num_targets[destination], 1)
        shares = coefficients / degrees.clamp(min=1)[:, None]
        weights = shares.repeat_interleave(degrees.long(), dim=0)
        sums = sum_slots(weights, rows_of_all(x, layer), merged.indptr, merged.sources, shared=True)
        return self._products.linear(sums, self.weight.flatten(0, 1).t())

"""R-GCN (Schlichtkrull et al., 2018): a matrix per relation, of bases or of diagonal blocks if wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch_geometric.nn import RGCNConv

from diskhop.dataset.type_map import EdgeEnds
from diskhop.nn.matmul.products import Products
from diskhop.nn.typed.attention import sum_slots
from diskhop.nn.typed.block import RelationLists, TypedLayerBlock, rows_of_all
from diskhop.nn.typed.means import BlockMap, DenseMap, MappedSum, Relation, RelationMaps, mapped_means
from diskhop.nn.typed.schema import TypedSchema

# Cost of a multiplication in a weighted sum over edges, relative to a matrix product (see layers/attention.py).
_EDGE_COST = 4


class RgcnLayer(RGCNConv):  # type: ignore[misc]  # PyG has no types
    """PyG's RGCNConv with its parameters and values; relations have the order of the schema.

    num_bases: number of matrices that those of the relations combine; 0: none.
    num_blocks: number of diagonal blocks of each matrix; 0: whole matrices.
    """

    # Means of whole relations give its outputs (predictions layer by layer).
    adds_means = True

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
        sums, by_basis = [], {}
        for name in self._schema.destinations:
            if layer.num_targets[name] == 0:
                continue
            relations = self._schema.into(name)
            if self.comp is not None and self._saves_to_sum_by_basis([layer.lists[ends] for ends in relations]):
                by_basis[name] = self._by_basis(name, x, layer)
                relations = []
            parts = [
                Relation(ends[0], layer.lists[ends], weight)
                for ends, weight in zip(relations, self._weights(relations), strict=True)
            ]
            sums.append(MappedSum(name, layer.num_targets[name], self.root.t(), self.bias, parts))
        relation_map = DenseMap(self._products) if self.num_blocks is None else BlockMap()
        found = mapped_means(x, sums, relation_map, self._products)
        outs = {each.destination: out for each, out in zip(sums, found, strict=True)}
        return {name: out + by_basis[name] if name in by_basis else out for name, out in outs.items()}

    def maps_of(self, relations: Sequence[EdgeEnds]) -> RelationMaps:
        """Return the weights of some relations into one node type as whole matrices."""
        weights = self._weights(relations)
        if self.num_blocks is not None:
            weights = [torch.block_diag(*blocks).t() for blocks in weights]  # type: ignore[no-untyped-call]
        return RelationMaps(self.root.t(), self.bias, dict(zip(relations, weights, strict=True)))

    def _weights(self, relations: Sequence[EdgeEnds]) -> list[Tensor]:
        """Return the weights of relations: (out_dim, in_dim), or the diagonal blocks."""
        if not relations:
            return []
        if self.num_blocks is not None:
            return list(self.weight.index_select(0, self._numbers(relations)))
        if self.comp is None:
            matrices = self.weight.index_select(0, self._numbers(relations))
        else:
            combined = self.comp.index_select(0, self._numbers(relations)) @ self.weight.flatten(1)
            matrices = combined.view(-1, self.in_channels_l, self.out_channels)
        return list(matrices.mT)

    def _numbers(self, relations: Sequence[EdgeEnds]) -> Tensor:
        numbers = [self._schema.relations.index(ends) for ends in relations]
        return torch.tensor(numbers, device=self.weight.device)

    def _saves_to_sum_by_basis(self, lists: list[RelationLists]) -> bool:
        """Return whether a weighted sum per basis and one product cost less than a mean and a product per relation."""
        num_bases, _, out_dim = self.weight.shape
        num_edges = sum(len(each.sources) for each in lists)
        num_means = sum(int((each.indptr.diff() > 0).sum()) for each in lists)
        by_basis = num_bases * (_EDGE_COST * num_edges + out_dim * lists[0].num_targets)
        by_relation = _EDGE_COST * num_edges + out_dim * (num_means + len(lists) * num_bases)
        return bool(by_basis < by_relation)

    def _by_basis(self, destination: str, x: Mapping[str, Tensor], layer: TypedLayerBlock) -> Tensor:
        """Sum neighbours once per basis, each times its relation's coefficient over its relation's degree."""
        relations = self._schema.into(destination)
        merged = layer.merged(relations)
        degrees = merged.by_relation.diff()
        coefficients = self.comp.index_select(0, self._numbers(relations)).repeat(layer.num_targets[destination], 1)
        shares = coefficients / degrees.clamp(min=1)[:, None]
        weights = shares.repeat_interleave(degrees.long(), dim=0)
        sums = sum_slots(weights, rows_of_all(x, layer), merged.indptr, merged.sources, shared=True)
        return self._products.linear(sums, self.weight.flatten(0, 1).t())

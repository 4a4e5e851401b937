"""GraphSAGE with parameters per relation, summed or attended over relations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv
from torch_geometric.nn.module_dict import ModuleDict

from diskhop.dataset.type_map import EdgeEnds
from diskhop.nn.matmul.products import Products
from diskhop.nn.typed.block import TypedLayerBlock
from diskhop.nn.typed.means import DenseMap, MappedSum, Relation, RelationMaps, mapped_means
from diskhop.nn.typed.schema import TypedSchema


class HeteroSageLayer(nn.Module):
    """PyG's HeteroConv of a SAGEConv per relation: its parameters and, without attention, its values.

    attends: weigh a target's relations by a softmax of query * tanh(key * output) over those that it has edges of,
        instead of adding up their outputs. (HAN, Wang et al., 2019, averages the scores over all nodes instead.)
    """

    def __init__(
        self, schema: TypedSchema, in_dim: int, out_dim: int, products: Products, *, attends: bool = False
    ) -> None:
        super().__init__()
        # Means of whole relations give its outputs (predictions layer by layer).
        self.adds_means = not attends
        convs = {ends: SAGEConv((in_dim, in_dim), out_dim, aggr="mean") for ends in schema.relations}
        self.convs = ModuleDict(convs)
        self._schema = schema
        self._products = products
        self.key = nn.Linear(out_dim, out_dim) if attends else None
        self.query = nn.Parameter(torch.empty(out_dim)) if attends else None
        if self.query is not None:
            nn.init.uniform_(self.query, -1 / math.sqrt(out_dim), 1 / math.sqrt(out_dim))

    def forward(self, x: Mapping[str, Tensor], layer: TypedLayerBlock) -> dict[str, Tensor]:
        """Map (sources, in_dim) of each type to (targets, out_dim) of each type with targets and relations."""
        destinations = [name for name in self._schema.destinations if layer.num_targets[name] > 0]
        compute = self._summed if self.query is None else self._attended
        return compute(destinations, x, layer)

    def maps_of(self, relations: Sequence[EdgeEnds]) -> RelationMaps:
        """Return the weights of some relations into one node type, whose outputs are summed."""
        convs = [self.convs[ends] for ends in relations]
        # The sum of maps of a target's own row is one map.
        weight, bias = sum_of([conv.lin_r.weight for conv in convs]), sum_of([conv.lin_l.bias for conv in convs])
        of_means = {ends: conv.lin_l.weight for ends, conv in zip(relations, convs, strict=True)}
        return RelationMaps(weight, bias, of_means)

    def _summed(
        self, destinations: Sequence[str], x: Mapping[str, Tensor], layer: TypedLayerBlock
    ) -> dict[str, Tensor]:
        outs = self._means([(name, self._schema.into(name)) for name in destinations], x, layer)
        return dict(zip(destinations, outs, strict=True))

    def _attended(
        self, destinations: Sequence[str], x: Mapping[str, Tensor], layer: TypedLayerBlock
    ) -> dict[str, Tensor]:
        assert self.key is not None
        assert self.query is not None
        outs = {}
        for name in destinations:
            relations = self._schema.into(name)
            by_relation = self._means([(name, [ends]) for ends in relations], x, layer)
            scores = torch.stack([torch.tanh(self.key(out)) @ self.query for out in by_relation], dim=1)
            has = torch.stack([layer.lists[ends].indptr.diff() > 0 for ends in relations], dim=1)
            # A target without any edge weighs all relations, which then map its own row.
            has = has | ~has.any(dim=1, keepdim=True)
            shares = scores.masked_fill(~has, -math.inf).softmax(dim=1)
            outs[name] = sum_of([out * shares[:, i : i + 1] for i, out in enumerate(by_relation)])
        return outs

    def _means(
        self, wanted: Sequence[tuple[str, Sequence[EdgeEnds]]], x: Mapping[str, Tensor], layer: TypedLayerBlock
    ) -> list[Tensor]:
        """Return a sum for each destination and relations into it."""
        sums = []
        for destination, relations in wanted:
            maps = self.maps_of(relations)
            parts = [Relation(ends[0], layer.lists[ends], weight) for ends, weight in maps.of_means.items()]
            sums.append(MappedSum(destination, layer.num_targets[destination], maps.own, maps.bias, parts))
        return mapped_means(x, sums, DenseMap(self._products), self._products)


def sum_of(tensors: Sequence[Tensor]) -> Tensor:
    """Add up tensors of one shape."""
    return tensors[0] if len(tensors) == 1 else torch.stack(list(tensors)).sum(dim=0)

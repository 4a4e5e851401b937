"""GraphSAGE with parameters per relation, summed or attended over relations."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv
from torch_geometric.nn.module_dict import ModuleDict

from diskhop.nn.matmul.products import Products
from diskhop.nn.typed.block import TypedLayerBlock
from diskhop.nn.typed.means import DenseMap, Relation, mapped_means
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
        compute = self._summed if self.query is None else self._attended
        return {name: compute(name, x, layer) for name in self._schema.destinations if layer.num_targets[name] > 0}

    def _summed(self, destination: str, x: Mapping[str, Tensor], layer: TypedLayerBlock) -> Tensor:
        relations = self._schema.into(destination)
        convs = [self.convs[ends] for ends in relations]
        sources = list(dict.fromkeys(source for source, _, _ in relations))
        parts = [
            Relation(sources.index(ends[0]), layer.lists[ends], conv.lin_l.weight)
            for ends, conv in zip(relations, convs, strict=True)
        ]
        out = mapped_means([x[name] for name in sources], parts, DenseMap(self._products), self._products)
        # The sum of maps of a target's own row is one map.
        weight = sum_of([conv.lin_r.weight for conv in convs])
        bias = sum_of([conv.lin_l.bias for conv in convs])
        own = x[destination][: layer.num_targets[destination]]
        return out.add_(self._products.linear(own, weight, bias))

    def _attended(self, destination: str, x: Mapping[str, Tensor], layer: TypedLayerBlock) -> Tensor:
        assert self.key is not None
        assert self.query is not None
        own = x[destination][: layer.num_targets[destination]]
        outs, has_edges = [], []
        for ends in self._schema.into(destination):
            conv, lists = self.convs[ends], layer.lists[ends]
            part = Relation(0, lists, conv.lin_l.weight)
            out = mapped_means([x[ends[0]]], [part], DenseMap(self._products), self._products)
            outs.append(out.add_(self._products.linear(own, conv.lin_r.weight, conv.lin_l.bias)))
            has_edges.append(lists.indptr.diff() > 0)
        scores = torch.stack([torch.tanh(self.key(out)) @ self.query for out in outs], dim=1)
        has = torch.stack(has_edges, dim=1)
        # A target without any edge weighs all relations, which then map its own row.
        has = has | ~has.any(dim=1, keepdim=True)
        shares = scores.masked_fill(~has, -math.inf).softmax(dim=1)
        return sum_of([out * shares[:, i : i + 1] for i, out in enumerate(outs)])


def sum_of(tensors: list[Tensor]) -> Tensor:
    """Add up tensors of one shape."""
    return tensors[0] if len(tensors) == 1 else torch.stack(tensors).sum(dim=0)

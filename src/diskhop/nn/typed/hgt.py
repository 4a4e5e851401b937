"""Heterogeneous Graph Transformer (Hu et al., 2020): keys, queries and values by node type, mapped by relation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import HGTConv

from diskhop.dataset.type_map import EdgeEnds
from diskhop.nn.matmul.products import Products
from diskhop.nn.typed.attention import slot_products, slot_softmax, sum_slots
from diskhop.nn.typed.block import TypedLayerBlock
from diskhop.nn.typed.schema import TypedSchema


class HgtLayer(HGTConv):  # type: ignore[misc]  # PyG has no types
    """PyG's HGTConv with its parameters and values.

    Relations map queries and sums of values, which targets have, instead of keys and values, which sources have: a
    batch has fewer targets.
    """

    def __init__(self, schema: TypedSchema, in_dim: int, out_dim: int, products: Products, *, heads: int) -> None:
        super().__init__(in_dim, out_dim, (list(schema.node_types), list(schema.relations)), heads=heads)
        self._schema = schema
        self._products = products

    def forward(self, x: Mapping[str, Tensor], layer: TypedLayerBlock) -> dict[str, Tensor]:
        """Map (sources, in_dim) of each type to (targets, out_dim) of each type with targets and relations."""
        destinations = [name for name in self._schema.destinations if layer.num_targets[name] > 0]
        keys, values = (self._rows(part, destinations, x, layer) for part in (0, 2))
        outs = {}
        for name in destinations:
            own = x[name][: layer.num_targets[name]]
            summed = self._attended(self._schema.into(name), self._map(1, name, own), keys, values, layer)
            lin = self.out_lin.lins[name]
            out = self._products.linear(functional.gelu(summed), lin.weight, lin.bias).float()
            share = self.skip[name].sigmoid()
            outs[name] = share * out + (1 - share) * own if out.shape[1] == own.shape[1] else out
        return outs

    def _map(self, part: int, node_type: str, x: Tensor) -> Tensor:
        """Return keys (part 0), queries (1) or values (2) of rows."""
        lin, rows = self.kqv_lin.lins[node_type], slice(part * self.out_channels, (part + 1) * self.out_channels)
        return self._products.linear(x, lin.weight[rows], lin.bias[rows]).float()

    def _rows(self, part: int, destinations: Sequence[str], x: Mapping[str, Tensor], layer: TypedLayerBlock) -> Tensor:
        """Return keys or values of all types, one type after the other; of types that nothing reads, zeros."""
        read = {source for source, _, destination in self._schema.relations if destination in destinations}
        rows = [
            self._map(part, name, x[name])
            if name in read
            else torch.zeros(count, self.out_channels, device=layer.device)
            for name, count in layer.num_sources.items()
            if count > 0
        ]
        return rows[0] if len(rows) == 1 else torch.cat(rows)

    def _attended(
        self, relations: Sequence[EdgeEnds], queries: Tensor, keys: Tensor, values: Tensor, layer: TypedLayerBlock
    ) -> Tensor:
        """Return the targets' sums of values by attention, (targets, out_dim)."""
        merged = layer.merged(relations)
        num_heads, dim = self.heads, self.out_channels // self.heads
        numbers = torch.tensor([self._schema.relations.index(ends) for ends in relations], device=queries.device)
        priors = torch.cat([self.p_rel["__".join(ends)] for ends in relations])
        of_keys = self._maps(self.k_rel.weight, numbers) * (priors / math.sqrt(dim))[:, :, None, None]
        by_relation = torch.einsum("thd,rhed->trhe", queries.view(-1, num_heads, dim), of_keys)
        asked = by_relation.reshape(-1, self.out_channels)
        scores = slot_products(keys, asked, merged.by_relation, merged.sources, num_heads)
        attention = slot_softmax(scores, merged.indptr)
        sums = sum_slots(attention, values, merged.by_relation, merged.sources)
        of_values = self._maps(self.v_rel.weight, numbers)
        by_head = sums.view(-1, len(relations), num_heads, dim)
        return torch.einsum("trhd,rhde->the", by_head, of_values).flatten(1)

    def _maps(self, weight: Tensor, numbers: Tensor) -> Tensor:
        """Return the matrices of relations, (relations, heads, dim, dim); PyG numbers them by head, then relation."""
        by_head = weight.view(self.heads, len(self._schema.relations), *weight.shape[1:])
        return by_head.index_select(1, numbers).transpose(0, 1)

"""Layers of typed networks that map means over relations, taken apart: what is summed, and what is computed of a row.

A layer *aggregates first* if it takes means of its input, which a weight per relation then maps, and *transforms first*
if it takes means of products, whichever is narrower. Its tables, one per node type, have *groups* of columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from diskhop.dataset.type_map import EdgeEnds, TypeMap
from diskhop.nn.typed.means import RelationMaps
from diskhop.nn.typed.network import TypedNetwork
from diskhop.predicting.streamed.layers import HIDDEN
from diskhop.predicting.streamed.row_products import Operand, RowProduct
from diskhop.predicting.streamed.split_columns import SplitColumns, fill_groups

_OWN = "own part"


def sums_relations(network: TypedNetwork, types: TypeMap) -> bool:
    """Return whether a network is computed by sums over whole relations, rather than in batches, if nothing is drawn.

    Sums are written for every list of a relation, so that graphs whose lists are mostly empty are left to batches. The
    answer depends on the model and the graph alone, as rounding does.
    """
    return types.num_lists <= types.num_edges and all(getattr(conv, "adds_means", False) for conv in network.convs)


@dataclass(frozen=True)
class RelationLayer:
    """A layer of a network.

    network: the network, in evaluation mode.
    number: number of the layer, from 1.
    types: types of the graph.
    destinations: node types that are computed.
    """

    network: TypedNetwork
    number: int
    types: TypeMap
    destinations: tuple[str, ...]

    @cached_property
    def relations(self) -> tuple[EdgeEnds, ...]:
        """Relations into the destinations that have edges; means over others are zero."""
        return tuple(each.ends for each in self.types.edges if each.num_edges and each.destination in self.destinations)

    @property
    def sources(self) -> list[str]:
        """Node types whose rows are read."""
        read = {*self.destinations, *(source for source, _, _ in self.relations)}
        return [name for name in self.types.node_types if name in read]

    @property
    def in_dim(self) -> int:
        """Columns of the input."""
        return self.network.output_dim(self.number - 1)

    @property
    def out_dim(self) -> int:
        """Columns of the output."""
        return self.network.output_dim(self.number)

    @property
    def aggregates_first(self) -> bool:
        """See above."""
        return self.in_dim <= self.out_dim

    def into(self, node_type: str) -> list[EdgeEnds]:
        """Return the relations into a node type."""
        return [ends for ends in self.relations if ends[2] == node_type]

    def summed(self, node_type: str) -> dict[str, list[EdgeEnds]]:
        """Return the groups of a node type's table that are summed, with the relations that sum them."""
        relations = [ends for ends in self.relations if ends[0] == node_type]
        if self.aggregates_first:
            return {HIDDEN: relations} if relations else {}
        return {f"product {self.relations.index(ends)}": [ends] for ends in relations}

    def group_of(self, ends: EdgeEnds) -> str:
        """Return the group that a relation sums."""
        return next(name for name, relations in self.summed(ends[0]).items() if ends in relations)

    def groups(self, node_type: str) -> dict[str, int]:
        """Return the columns of a node type's table, by group: summed ones first."""
        groups = dict.fromkeys(self.summed(node_type), self.in_dim if self.aggregates_first else self.out_dim)
        if node_type in self.destinations:
            own = self.own_group(node_type)
            groups.setdefault(own, self.in_dim if own == HIDDEN else self.out_dim)
        return groups

    def own_group(self, node_type: str) -> str:
        """Return the group that is read again for the nodes' own rows."""
        return HIDDEN if self.aggregates_first or node_type not in self._maps else _OWN

    def before(self, node_type: str, hidden: Tensor) -> Mapping[str, Tensor]:
        """Return the groups of rows from the layer's input, float32 (rows, in_dim)."""
        products = self._products_before.get(node_type)
        if products is None:
            return {HIDDEN: hidden}
        product, names = products
        parts = product.of_rows(hidden).float().chunk(len(names), dim=1)
        return {HIDDEN: hidden, **dict(zip(names, parts, strict=True))}

    def put_before(self, node_type: str, out: Mapping[str, SplitColumns], hidden: Tensor) -> bool:
        """Fill the columns of each group; see StreamedLayer.put_before()."""
        return fill_groups(out, self.before(node_type, hidden))

    def after(self, node_type: str, means: Sequence[SplitColumns], own: SplitColumns) -> Tensor:
        """Return the layer's output, float32 (rows, out_dim).

        means: of each relation into the node type, in order. own: see own_group().
        """
        if node_type not in self._maps:  # no relation leads to it
            return own.joined()
        product = self._products_after.get(node_type)
        if product is not None:
            out = product.of(*map(Operand, means), Operand(own))
        else:
            out = own.joined().clone()
            for each in means:
                out += each.joined()
        if self.number == len(self.network.convs):
            return self.network.finish(out)
        return self.network.activated(self.number - 1, node_type, out).float()

    @property
    def flops(self) -> float:
        """Floating-point operations of a product of a row."""
        return 2.0 * self.in_dim * self.out_dim

    @cached_property
    def _maps(self) -> dict[str, RelationMaps]:
        """Weights by destination that some relation of the model leads to, with edges or without."""
        conv: Any = self.network.convs[self.number - 1]
        into = {
            name: [each.ends for each in self.types.edges if each.destination == name] for name in self.destinations
        }
        with torch.no_grad():
            return {name: conv.maps_of(relations) for name, relations in into.items() if relations}

    @cached_property
    def _products_before(self) -> dict[str, tuple[RowProduct, list[str]]]:
        """Products of a layer that transforms first, by node type, with the groups that they give."""
        found = {}
        for node_type in () if self.aggregates_first else self.sources:
            weights = {name: self._maps[ends[2]].of_means[ends] for name, (ends,) in self.summed(node_type).items()}
            bias = torch.zeros(len(weights) * self.out_dim)
            if node_type in self._maps:
                weights[_OWN] = self._maps[node_type].own
                bias = torch.cat([bias, self._maps[node_type].bias.detach()])
            if weights:
                found[node_type] = RowProduct(self.network.products, torch.cat([*weights.values()]), bias), [*weights]
        return found

    @cached_property
    def _products_after(self) -> dict[str, RowProduct]:
        """Products of a layer that aggregates first, by destination."""
        if not self.aggregates_first:
            return {}
        found = {}
        for node_type, maps in self._maps.items():
            weights = [maps.of_means[ends] for ends in self.into(node_type)]
            found[node_type] = RowProduct(self.network.products, torch.cat([*weights, maps.own], dim=1), maps.bias)
        return found

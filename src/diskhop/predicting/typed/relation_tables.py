"""The tables of a network over relations: their columns, the order in which they are made, and the work to plan.

Table (i, type) has the rows of layer i of a node type, with the groups of columns that layer i + 1 reads; table 0 is
made of features. Table (i, type, group) has the means that layer i takes of a group of a source type's rows: a file per
relation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.type_map import EdgeEnds, MergedEdges, TypeMap
from diskhop.nn.typed.network import TypedNetwork
from diskhop.planning.predict_sizes import GraphCounts, table_bytes
from diskhop.planning.predict_typed import RowsStep, SumsStep, TypedWork
from diskhop.predicting.shared_network import SharedNetwork
from diskhop.predicting.streamed.layers import HIDDEN, num_tiles
from diskhop.predicting.streamed.row_step import KEPT
from diskhop.predicting.table_order import TableOrder
from diskhop.predicting.typed.first_rows import FirstTable, GivenRows
from diskhop.predicting.typed.relations import RelationLayer

# Number of a layer, and node type.
RowsKey = tuple[int, str]
# Number of a layer, source type, and group of its rows.
MeansKey = tuple[int, str, str]
TableKey = RowsKey | MeansKey


@dataclass(frozen=True, eq=False)
class RelationTables:
    """The tables of some layers.

    dataset: the graph, with its types merged.
    shared: the network, in evaluation mode.
    given: rows of types without features.
    wanted: numbers of the layers whose rows of the target type are wanted.
    """

    dataset: Dataset
    shared: SharedNetwork[TypedNetwork]
    given: GivenRows
    wanted: frozenset[int]

    @property
    def network(self) -> TypedNetwork:
        """The network."""
        return self.shared.network

    @property
    def types(self) -> TypeMap:
        """Types of the graph."""
        assert self.dataset.types is not None, "the types of the graph are merged"
        return self.dataset.types

    @cached_property
    def layers(self) -> Sequence[RelationLayer]:
        """The layers, each with the node types that later ones read."""
        found: list[RelationLayer] = []
        needed = [self.network.target]
        for number in range(max(self.wanted), 0, -1):
            found.append(RelationLayer(self.network, number, self.types, tuple(needed)))
            needed = found[-1].sources
        return found[::-1]

    @cached_property
    def order(self) -> TableOrder[TableKey]:
        """Tables that each table is made of, in the order in which they are made."""
        inputs: dict[TableKey, Collection[TableKey]] = {(0, name): [] for name in self.layers[0].sources}
        for layer in self.layers:
            below = layer.number - 1
            for name in layer.sources:
                inputs |= {(layer.number, name, group): [(below, name)] for group in layer.summed(name)}
            for name in layer.destinations:
                means = {(layer.number, ends[0], layer.group_of(ends)) for ends in layer.into(name)}
                inputs[layer.number, name] = [*means, (below, name)]
        return TableOrder(inputs, {(number, self.network.target) for number in self.wanted})

    def first(self, node_type: str) -> FirstTable:
        """Return what table 0 of a node type is made of."""
        return FirstTable(self.dataset, node_type, self.given, self.shared)

    def groups(self, key: RowsKey) -> dict[str, int]:
        """Return the columns of a table by name, with those that are kept for other uses."""
        number, node_type = key
        groups = self.layers[number].groups(node_type) if number < len(self.layers) else {}
        if key in self.order.wanted and HIDDEN not in groups:
            groups[KEPT] = self.network.output_dim(number)
        return groups

    def means_of(self, key: MeansKey) -> list[EdgeEnds]:
        """Return the relations of a table of means."""
        number, source, group = key
        return self.layers[number - 1].summed(source)[group]

    def means_into(self, key: RowsKey) -> list[tuple[MeansKey, EdgeEnds]]:
        """Return the means that a table of rows is made of."""
        number, node_type = key
        layer = self.layers[number - 1]
        return [((number, ends[0], layer.group_of(ends)), ends) for ends in layer.into(node_type)]

    def edges_of(self, ends: EdgeEnds) -> MergedEdges:
        """Return the edge type of a relation."""
        return next(each for each in self.types.edges if each.ends == ends)

    @property
    def wanted_tiles(self) -> int:
        """Tiles of the outputs that are wanted."""
        return sum(num_tiles(self.network.output_dim(number)) for number in self.wanted)

    def work(self) -> TypedWork:
        """Describe the work for the planner."""
        bytes_of = {key: self._bytes(key) for key in self.order.inputs}
        return TypedWork(
            steps=tuple(self._rows_step(key) if len(key) == 2 else self._sums_step(key) for key in self.order.inputs),
            wanted_tiles=self.wanted_tiles,
            work_bytes=self.order.most_bytes(bytes_of),
            result_bytes=sum(bytes_of[key] for key in self.order.wanted),
        )

    def means_dim(self, key: MeansKey) -> int:
        """Return the columns of means."""
        number, source, group = key
        return self.groups((number - 1, source))[group]

    def _bytes(self, key: TableKey) -> int:
        num_nodes = self.types.num_nodes
        if len(key) == 2:
            return table_bytes(num_nodes[key[1]], _tiles(self.groups(key)))
        tiles = num_tiles(self.means_dim(key))
        return sum(table_bytes(num_nodes[ends[2]], tiles) for ends in self.means_of(key))

    def _sums_step(self, key: MeansKey) -> SumsStep:
        number, source, group = key
        relations = self.means_of(key)
        of_group = "" if group == HIDDEN else f", {'-'.join(relations[0])}"
        return SumsStep(
            name=f"layer {number}: means over {source}{of_group}",
            num_sources=self.types.num_nodes[source],
            num_tiles=num_tiles(self.means_dim(key)),
            relations=tuple(map(self._counts, relations)),
        )

    def _counts(self, ends: EdgeEnds) -> GraphCounts:
        num_nodes = self.types.num_nodes
        return GraphCounts(
            num_nodes=num_nodes[ends[2]],
            num_edges=self.edges_of(ends).num_edges,
            index_bytes=self.dataset.topology.index_dtype.itemsize,
            num_sources=num_nodes[ends[0]],
            feature_row_bytes=0,
            feature_dim=0,
        )

    def _rows_step(self, key: RowsKey) -> RowsStep:
        number, node_type = key
        groups, hidden = self.groups(key), self.network.output_dim(0)
        flops, read_tiles, row_bytes, dim = 0.0, 0, 0, 0
        if number == 0:
            first = self.first(node_type)
            table, dim = self.dataset.nodes[node_type].feature_table(), first.dim
            row_bytes = 0 if table is None else table.row_stride
            flops += 2.0 * dim * hidden * (node_type in self.network.inputs)
            widest = max(dim, hidden)
        else:
            layer, means = self.layers[number - 1], self.means_into(key)
            read_tiles = sum(num_tiles(self.means_dim(each)) for each, _ in means)
            read_tiles += num_tiles(self.groups((number - 1, node_type))[layer.own_group(node_type)])
            flops += layer.flops * (len(means) + 1) * layer.aggregates_first
            widest = max((len(means) + 1) * layer.in_dim, layer.out_dim)
        if number < len(self.layers) and not self.layers[number].aggregates_first:
            flops += self.layers[number].flops * len(groups)
        return RowsStep(
            name=f"features ({node_type})" if number == 0 else f"layer {number} ({node_type})",
            num_rows=self.types.num_nodes[node_type],
            feature_row_bytes=row_bytes,
            feature_dim=dim,
            read_tiles=read_tiles,
            out_tiles=_tiles(groups),
            widest=max(widest, sum(groups.values())),
            flops=flops,
        )


def _tiles(groups: dict[str, int]) -> int:
    return sum(map(num_tiles, groups.values()))

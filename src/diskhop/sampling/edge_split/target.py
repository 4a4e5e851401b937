"""The edge type that is split, in a graph with several types, and the edge types that would give its edges away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_lists import EdgeLists, rows_of
from diskhop.dataset.id_map import IdMap
from diskhop.dataset.type_map import EdgeEnds, MergedEdges, TypeMap, reverse_ends
from diskhop.protocols import NodeIds, NodeRows, SourceIds
from diskhop.sampling.edge_split.rules import pair_sum


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitTarget:
    """An edge type whose edges are split.

    types: the types that messages use, merged.
    number: number of the edge type.
    copies: numbers of the edge types that have the same edges, in either direction, which are held out with them.
    lists: its edges, in the files of the dataset.
    """

    types: TypeMap
    number: int
    copies: tuple[int, ...]
    lists: EdgeLists

    @property
    def ends(self) -> EdgeEnds:
        """Source type, relation and destination type."""
        return self.types.edges[self.number].ends

    @property
    def is_between_types(self) -> bool:
        """Whether the two ends are nodes of different types."""
        return self.ends[0] != self.ends[-1]

    @property
    def split_types(self) -> tuple[int, ...]:
        """Numbers of the edge types that messages have only some edges of."""
        return (self.number, *self.copies)

    def nodes_of(self, side: int) -> tuple[int, int]:
        """Return the number of nodes at an end, and the merged row of the first. side: 0 for sources, -1 for others."""
        name = self.ends[side]
        return self.types.num_nodes[name], self.types.first_row(name)


def split_target(dataset: Dataset, types: TypeMap, number: int) -> SplitTarget:
    """Return an edge type as the target of a split. Reads its edges, if another type may have their opposites."""
    lists = EdgeLists.of_type(dataset, types, number)
    copies = tuple(_find_copies(dataset, types, number, lists))
    return SplitTarget(types=types, number=number, copies=copies, lists=lists)


def _find_copies(dataset: Dataset, types: TypeMap, number: int, lists: EdgeLists) -> Iterator[int]:
    """Yield the edge types that have a type's edges, or their opposites, by their names or by their edges.

    Opposites by name: 'rev_' and its relation, and between two node types also the only one that leads back. By edges:
    as many that join the same pairs of nodes. A type that was made by reversing the type itself or such a copy has the
    same edges again.
    """
    own, own_sum = types.edges[number], None
    leading_back = [
        place
        for place, edges in enumerate(types.edges)
        if place != number
        and not edges.is_reverse
        and (edges.source, edges.destination) == (own.destination, own.source)
    ]
    names = {own.name}
    for place in leading_back:
        edges = types.edges[place]
        is_only = own.source != own.destination and len(leading_back) == 1
        is_copy = is_only or _is_reverse_of(edges, own)
        if not is_copy and edges.num_edges == own.num_edges:
            own_sum = pair_sum(lists) if own_sum is None else own_sum
            is_copy = pair_sum(EdgeLists.of_type(dataset, types, place)) == own_sum
        if is_copy:
            names.add(edges.name)
    for place, edges in enumerate(types.edges):
        if place != number and edges.name in names:
            yield place


def _is_reverse_of(edges: MergedEdges, own: MergedEdges) -> bool:
    return edges.ends == reverse_ends(own.ends) or own.ends == reverse_ends(edges.ends)


@dataclass(frozen=True, slots=True, eq=False)
class EndIds:
    """Ids of the nodes at the two ends of edges. rows: of the graph that is sampled."""

    sources: IdMap
    destinations: IdMap
    source_rows: range
    destination_rows: range

    @classmethod
    def of(cls, dataset: Dataset, target: SplitTarget | None) -> EndIds:
        """Read the ids of a graph, or of the nodes that an edge type joins."""
        if target is None:
            id_map, rows = dataset.id_map(), range(dataset.num_nodes)
            return cls(id_map, id_map, rows, rows)
        names = target.ends[0], target.ends[-1]
        sources = dataset.nodes[names[0]].id_map()
        destinations = sources if names[0] == names[1] else dataset.nodes[names[1]].id_map()
        return cls(sources, destinations, *(rows_of(target.types, name) for name in names))

    @property
    def num_bytes(self) -> int:
        """Bytes of memory of the ids."""
        return sum(each.num_bytes for each in {id(each): each for each in (self.sources, self.destinations)}.values())

    def rows(self, ids: NDArray[np.int64], what: str) -> NodeIds:
        """Return the rows of both ends, int64 (2, edges). what: where the ids are from, for errors."""
        sides = (self.sources, self.source_rows), (self.destinations, self.destination_rows)
        found = [
            np.asarray(id_map.rows(SourceIds(np.ascontiguousarray(own)), what)) + rows.start
            for (id_map, rows), own in zip(sides, ids, strict=True)
        ]
        return np.stack(found)

    def ids_of(self, rows: NodeIds) -> NDArray[np.int64]:
        """Return the ids of some rows at either end."""
        found = []
        for row in rows.tolist():
            is_source = row in self.source_rows
            id_map, own = (self.sources, self.source_rows) if is_source else (self.destinations, self.destination_rows)
            found.append(int(id_map.ids(NodeRows(np.array([row - own.start])))[0]))
        return np.array(found, np.int64)

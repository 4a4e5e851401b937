"""One numbering of all nodes, lists and edges of a graph with types, so that it is sampled as one graph.

A *merged row* numbers the nodes of all types: those of the first type, then those of the second, and so on. The
in-neighbour lists of an edge type come one after the other, a list for every node of its destination type, and so do
its edges. With one type of nodes and of edges, merged numbers are those of the type itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from diskhop._native import GraphTypes
from diskhop.protocols import NodeIds

EdgeEnds = tuple[str, str, str]
# Begins the relation of an edge type that has the opposites of another's edges, as PyG's ToUndirected() names it.
REVERSE = "rev_"


def reverse_ends(ends: EdgeEnds) -> EdgeEnds:
    """Return the name of the edge type of the opposites of a type's edges."""
    source, relation, destination = ends
    return destination, REVERSE + relation, source


@dataclass(frozen=True, slots=True)
class MergedEdges:
    """One edge type of a merged graph.

    name: name of the edges in the dataset.
    ends: source type, relation and destination type, as PyG names an edge type.
    num_edges: number of edges.
    is_reverse: whether source and destination are swapped from those that the dataset has.
    """

    name: str
    ends: EdgeEnds
    num_edges: int
    is_reverse: bool = False

    @property
    def source(self) -> str:
        """Type of the source nodes."""
        return self.ends[0]

    @property
    def destination(self) -> str:
        """Type of the destination nodes, which have the lists."""
        return self.ends[2]


def _starts(counts: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


@dataclass(frozen=True)
class TypeMap:
    """The types of a graph, in the order of their numbers.

    num_nodes: number of nodes of each node type, by name.
    edges: the edge types.
    """

    num_nodes: Mapping[str, int]
    edges: tuple[MergedEdges, ...]

    @cached_property
    def node_types(self) -> tuple[str, ...]:
        """Names of the node types."""
        return tuple(self.num_nodes)

    @cached_property
    def node_starts(self) -> NDArray[np.int64]:
        """The first merged row of each node type, int64 (node types + 1)."""
        return _starts(list(self.num_nodes.values()))

    @cached_property
    def list_starts(self) -> NDArray[np.int64]:
        """The first list of each edge type, int64 (edge types + 1)."""
        return _starts([self.num_nodes[each.destination] for each in self.edges])

    @cached_property
    def edge_starts(self) -> NDArray[np.int64]:
        """The first merged edge position of each edge type, int64 (edge types + 1)."""
        return _starts([each.num_edges for each in self.edges])

    @cached_property
    def sources(self) -> NDArray[np.int64]:
        """Number of the source type of each edge type, int64 (edge types)."""
        return np.array([self.node_types.index(each.source) for each in self.edges], np.int64)

    @cached_property
    def destinations(self) -> NDArray[np.int64]:
        """Number of the destination type of each edge type, int64 (edge types)."""
        return np.array([self.node_types.index(each.destination) for each in self.edges], np.int64)

    @property
    def total_nodes(self) -> int:
        """Number of nodes of all types."""
        return int(self.node_starts[-1])

    @property
    def num_lists(self) -> int:
        """Number of lists of all edge types."""
        return int(self.list_starts[-1])

    @property
    def num_edges(self) -> int:
        """Number of edges of all types."""
        return int(self.edge_starts[-1])

    @property
    def is_single(self) -> bool:
        """Whether there is one type of nodes and one of edges."""
        return len(self.num_nodes) == len(self.edges) == 1

    def native(self) -> GraphTypes:
        """Return the types as the core takes them."""
        return GraphTypes(self.node_starts.tolist(), self.list_starts.tolist(), self.destinations.tolist())

    def first_row(self, node_type: str) -> int:
        """Return the first merged row of a node type."""
        return int(self.node_starts[self.node_types.index(node_type)])

    def node_type_of(self, rows: NodeIds) -> NDArray[np.int64]:
        """Return the number of the node type of each merged row, int64 (rows)."""
        return _type_of(self.node_starts, rows)

    def edge_type_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the edge type of each merged edge position, int64 (edges)."""
        return _type_of(self.edge_starts, positions)


def _type_of(starts: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    # Types without members have the same start as the next one, which side="right" gives.
    return np.searchsorted(starts[1:], numbers, side="right")

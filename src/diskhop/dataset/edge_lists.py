"""The neighbour lists of one edge type, by the rows of the graph that is sampled.

A graph with one type has them in its own files. With several types, an edge type has them in the dataset's files of
that type, by rows of its two node types, and in merged lists (dataset/type_map.py), by merged rows. Either way, edges
have the same numbers and the same merged rows here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.dataset.files import map_array
from diskhop.dataset.type_map import TypeMap
from diskhop.protocols import NodeIds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EdgeLists:
    """Lists of one edge type.

    files: where they are.
    num_edges: number of edges.
    num_lists: number of destinations.
    rows: rows of the sources, from the first to before the last.
    first_edge, first_list: place of the first edge and of the first list in the files.
    first_destination: row of the first destination.
    offset: what is added to the sources in the files.
    """

    files: TopologyFiles
    num_edges: int
    num_lists: int
    rows: range
    first_edge: int = 0
    first_list: int = 0
    first_destination: int = 0
    offset: int = 0

    @classmethod
    def of(cls, files: TopologyFiles) -> EdgeLists:
        """Return the lists of a graph with one type."""
        return cls(files=files, num_edges=files.num_edges, num_lists=files.num_nodes, rows=range(files.num_nodes))

    @classmethod
    def of_type(cls, dataset: Dataset, types: TypeMap, number: int) -> EdgeLists:
        """Return the lists of an edge type in the files of the dataset. number: of the edge type."""
        edges = types.edges[number]
        files, rows = dataset.edges[edges.name].topology, rows_of(types, edges.source)
        first = types.first_row(edges.destination)
        return cls(
            files=files,
            num_edges=edges.num_edges,
            num_lists=files.num_nodes,
            rows=rows,
            first_destination=first,
            offset=rows.start,
        )

    @classmethod
    def of_merged(cls, files: TopologyFiles, number: int) -> EdgeLists:
        """Return the lists of an edge type in merged lists. number: of the edge type."""
        types = files.types
        assert types is not None
        edges = types.edges[number]
        return cls(
            files=files,
            num_edges=edges.num_edges,
            num_lists=types.num_nodes[edges.destination],
            rows=rows_of(types, edges.source),
            first_edge=int(types.edge_starts[number]),
            first_list=int(types.list_starts[number]),
            first_destination=types.first_row(edges.destination),
        )

    def map_starts(self) -> NDArray[np.int64]:
        """Map where each list begins in the files, int64 (lists + 1)."""
        starts = map_array(self.files.indptr_path, np.int64, self.files.num_lists + 1)
        return starts[self.first_list : self.first_list + self.num_lists + 1]

    def map_sources(self) -> NDArray[Any]:
        """Map the sources of the edges as they are in the files (edges)."""
        indices = map_array(self.files.indices_path, self.files.index_dtype, self.files.num_edges)
        return indices[self.first_edge : self.first_edge + self.num_edges]


def rows_of(types: TypeMap, node_type: str) -> range:
    """Return the merged rows of the nodes of a type."""
    first = types.first_row(node_type)
    return range(first, first + types.num_nodes[node_type])


class MappedLists:
    """Lists of one edge type, mapped. Any thread may ask."""

    def __init__(self, lists: EdgeLists) -> None:
        self.lists = lists
        self._starts = lists.map_starts()
        self._sources = lists.map_sources()

    def ends(self, numbers: NDArray[np.int64]) -> NodeIds:
        """Return rows of both ends of edges, int64 (2, edges), by their numbers."""
        lists = self.lists
        sources = self._sources[numbers].astype(np.int64) + lists.offset
        places = np.searchsorted(self._starts, numbers + lists.first_edge, side="right") - 1
        return np.stack([sources, places + lists.first_destination])

    def neighbors(self, destination: int) -> NodeIds:
        """Return the rows of the sources of a destination's edges, int64 (edges), ascending. destination: a row."""
        place = destination - self.lists.first_destination
        begin, end = self._starts[place : place + 2] - self.lists.first_edge
        neighbors: NodeIds = self._sources[begin:end].astype(np.int64) + self.lists.offset
        return neighbors

"""Looking up which pairs of nodes have an edge in the graph, in its lists on disk."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.edge_lists import EdgeLists, MappedLists
from diskhop.protocols import NodeIds


class KnownLinks:
    """The edges of a graph, or of one of its types. Any thread may ask."""

    def __init__(self, lists: EdgeLists) -> None:
        self._lists = MappedLists(lists)

    def table(self, sources: NodeIds, destinations: NodeIds) -> NDArray[np.bool_]:
        """Return which of every source and every destination have an edge from the one to the other.

        sources, destinations: rows, int64, in any order and repeatedly. The result is (sources, destinations).
        """
        own_sources, source_places = np.unique(sources, return_inverse=True)
        own_destinations, destination_places = np.unique(destinations, return_inverse=True)
        found = np.zeros((len(own_sources), len(own_destinations)), bool)
        for column, node in enumerate(own_destinations):
            neighbors = self._lists.neighbors(int(node))
            # Lists are sorted; a long one is searched for the sources, and a short one's neighbours among them.
            if len(neighbors) > len(own_sources):
                places = np.minimum(np.searchsorted(neighbors, own_sources), len(neighbors) - 1)
                found[:, column] = neighbors[places] == own_sources
            elif len(own_sources):
                places = np.minimum(np.searchsorted(own_sources, neighbors), len(own_sources) - 1)
                found[places[own_sources[places] == neighbors], column] = True
        return found[source_places][:, destination_places]

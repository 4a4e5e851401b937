"""The edges of a dataset's neighbour lists, as a source of edges to sort or count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.edge_set import TopologyFiles, destinations_of
from diskhop.dataset.files import map_array
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.progress import Progress

EDGES_AT_ONCE = 16 << 10


@dataclass(frozen=True, slots=True)
class ListedEdges:
    """The edges of a dataset's lists, as an EdgeSource.

    topology: the lists.
    identity: see EdgeSource.
    is_reversed: whether sources and destinations are exchanged.
    """

    topology: TopologyFiles
    identity: str
    is_reversed: bool = False

    @property
    def num_edges(self) -> int:
        """See EdgeSource."""
        return self.topology.num_edges

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """See EdgeSource."""
        topology = self.topology
        indptr = map_array(topology.indptr_path, np.int64, topology.num_nodes + 1)
        indices = map_array(topology.indices_path, topology.index_dtype, topology.num_edges)
        listed = np.array(indices[first : first + count])
        nodes = destinations_of(indptr, first, first + count, topology.index_dtype)
        return (nodes, listed) if self.is_reversed else (listed, nodes)

    def have_loops(self, progress: Progress) -> bool:
        """Return whether there is an edge from a node to itself."""
        for start, stop in row_ranges(self.num_edges, EDGES_AT_ONCE):
            sources, destinations = self.read(start, stop - start)
            if (sources == destinations).any():
                return True
            progress("finding loops", stop, self.num_edges)
        return False

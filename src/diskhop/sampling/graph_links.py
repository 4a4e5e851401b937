"""The edges of a graph as links, read from its neighbour lists on disk."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.edge_set import TopologyFiles
from diskhop.dataset.files import map_array
from diskhop.protocols import NodeIds


class GraphEnds:
    """The edges of a graph in the order of its neighbour lists; see LinkEnds. It takes no memory.

    files: the lists. name: of the graph, such as its hash.
    first_rows: merged rows of the first source and the first destination, in a graph with types.
    """

    def __init__(self, files: TopologyFiles, name: str, first_rows: tuple[int, int] = (0, 0)) -> None:
        self._first_rows = np.array(first_rows, np.int64)[:, None]
        self._indptr = map_array(files.indptr_path, np.int64, files.num_nodes + 1)
        self._sources = map_array(files.indices_path, files.index_dtype, files.num_edges)
        self._name = name

    def __len__(self) -> int:
        return len(self._sources)

    def take(self, positions: NDArray[np.int64]) -> NodeIds:
        """See LinkEnds."""
        # Ascending positions touch each page of the files once.
        ascending, places = np.unique(positions, return_inverse=True)
        destinations = np.searchsorted(self._indptr, ascending, side="right") - 1
        ends: NodeIds = np.stack([self._sources[ascending].astype(np.int64), destinations])[:, places]
        return ends + self._first_rows

    def digest(self) -> str:
        """See LinkEnds."""
        return f"edges of {self._name}"

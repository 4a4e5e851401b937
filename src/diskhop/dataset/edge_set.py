"""The edges of one type of a dataset: in-neighbour lists on disk, and columns in their order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.files import map_array
from diskhop.dataset.manifest import EdgeType


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyFiles:
    """In-neighbour lists on disk, sorted within each list.

    indptr_path: file of int64 (num_nodes + 1), the start of each list.
    indices_path: file of source ids (num_edges).
    index_dtype: dtype of the source ids.
    num_nodes: number of destinations, one list each.
    num_edges: number of edges.
    """

    indptr_path: Path
    indices_path: Path
    index_dtype: np.dtype[np.generic]
    num_nodes: int
    num_edges: int


class EdgeSet:
    """Edges of one type."""

    def __init__(self, path: Path, name: str, info: EdgeType, num_destinations: int) -> None:
        self._folder = path / "edges" / name
        self._info = info
        self._num_destinations = num_destinations
        self.name = name

    @property
    def source(self) -> str:
        """Type of the source nodes."""
        return self._info.source

    @property
    def destination(self) -> str:
        """Type of the destination nodes, which have in-neighbour lists."""
        return self._info.destination

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self._info.count

    @property
    def topology(self) -> TopologyFiles:
        """Location of the in-neighbour lists."""
        return TopologyFiles(
            indptr_path=self._folder / "indptr.bin",
            indices_path=self._folder / "indices.bin",
            index_dtype=np.dtype(self._info.index_dtype),
            num_nodes=self._num_destinations,
            num_edges=self.num_edges,
        )

    def edge_ids(self) -> NDArray[Any] | None:
        """Map the source's number of each edge, uint32 or int64 in the order of `indices`; None if not kept.

        Numbers count the edges of the source from 0: columns of edge_index, rows of a table, lines of a text.
        """
        dtype = self._info.edge_id_dtype
        return map_array(self._folder / "edge_ids.bin", np.dtype(dtype), self.num_edges) if dtype else None

    def edge_weights(self) -> NDArray[np.float32] | None:
        """Map the weights, float32 in the order of `indices`; None without weights."""
        return map_array(self._folder / "weights.bin", np.float32, self.num_edges) if self._info.weights else None

    def edge_times(self) -> NDArray[np.int64] | None:
        """Map the times, int64 in the order of `indices`; None without times."""
        return map_array(self._folder / "times.bin", np.int64, self.num_edges) if self._info.times else None

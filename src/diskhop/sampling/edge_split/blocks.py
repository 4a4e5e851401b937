"""Reading the edges of in-neighbour lists from front to back, a block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.edge_lists import EdgeLists
from diskhop.dataset.edge_set import destinations_of
from diskhop.errors import FormatError, ReadError
from diskhop.runtime.blocks import row_ranges

_EDGES_PER_BLOCK = 1 << 16
# Both ends, their pair and its key, each with a temporary, and masks.
_BYTES_PER_EDGE = 128


@dataclass(frozen=True, slots=True, eq=False)
class EdgeBlock:
    """Edges in the order of `indices`.

    first: number of the first edge.
    sources, destinations: rows, int64 (edges).
    """

    first: int
    sources: NDArray[np.int64]
    destinations: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Numbers of the edges, int64 (edges)."""
        return np.arange(self.first, self.first + len(self.sources))

    @property
    def is_loop(self) -> NDArray[np.bool_]:
        """Whether each edge goes from a node to itself."""
        loops: NDArray[np.bool_] = self.sources == self.destinations
        return loops


def block_bytes(num_edges: int) -> int:
    """Bytes of memory of a block of edges and of work on it."""
    return _BYTES_PER_EDGE * min(num_edges, _EDGES_PER_BLOCK)


def read_edges(lists: EdgeLists) -> Iterator[EdgeBlock]:
    """Yield all edges. Raises ReadError, and FormatError for a source that is no node."""
    files, first, starts = lists.files, lists.first_edge, lists.map_starts()
    item_bytes = files.index_dtype.itemsize
    for start, stop in row_ranges(lists.num_edges, _EDGES_PER_BLOCK):
        stored: NDArray[Any] = np.fromfile(
            files.indices_path, files.index_dtype, stop - start, offset=(first + start) * item_bytes
        )
        if len(stored) != stop - start:
            raise ReadError(f"{files.indices_path}: ended before edge {stop}; run 'diskhop verify'")
        sources = stored.astype(np.int64) + lists.offset
        if sources.min() < lists.rows.start or sources.max() >= lists.rows.stop:
            raise FormatError(
                f"{files.indices_path}: is damaged; 'diskhop verify' names the blocks: import the graph again"
            )
        destinations = destinations_of(starts, first + start, first + stop) + lists.first_destination
        yield EdgeBlock(start, sources, destinations)

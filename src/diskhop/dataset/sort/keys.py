"""Sort keys of edges, and edges passed to the core: ids are checked, the next edges are prefetched.

A *key* combines the destination, the source and, if it is kept, the number of an edge (csc.hpp).
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import EdgeSpill, EdgeTable, KeyLayout
from diskhop.dataset.edges import EdgeSource
from diskhop.errors import SourceError
from diskhop.runtime.blocks import row_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeShape:
    """The dimensions of a set of edges, which determine the layout of keys.

    num_sources: number of source nodes.
    num_destinations: number of destination nodes.
    num_edges: number of edges.
    is_numbered: whether keys contain the number of the edge.
    origin: name of the source in errors.
    counts_are_found: whether the edges determine the node counts; until then, the counts are what fits the key's bits.
    """

    num_sources: int
    num_destinations: int
    num_edges: int
    is_numbered: bool
    origin: str
    counts_are_found: bool = False

    def layout(self) -> KeyLayout:
        """Return the layout of keys in memory."""
        return KeyLayout(self.num_sources, self.num_destinations, max(1, self.num_edges) if self.is_numbered else 0)

    @property
    def index_dtype(self) -> np.dtype[Any]:
        """Dtype of `indices`."""
        return np.dtype(np.uint32 if self.layout().index_bytes == 4 else np.int64)

    @property
    def list_bytes(self) -> int:
        """Bytes of the lists on disk, as far as known."""
        edge_bytes = self.layout().index_bytes + 8 * self.is_numbered
        indptr_bytes = 0 if self.counts_are_found else 8 * (self.num_destinations + 1)
        return self.num_edges * edge_bytes + indptr_bytes


# Next step for ids of arrays that are no node numbers.
RENUMBERING = "number the nodes from 0, as np.unique(edge_index, return_inverse=True)[1].reshape(2, -1) does"


def add_edges(
    taker: EdgeSpill | EdgeTable, shape: EdgeShape, first: int, sources: NDArray[Any], destinations: NDArray[Any]
) -> None:
    """Add edges first, first + 1, ... to the core. Raises SourceError for the first id out of range."""
    bad = taker.add(first, _as_ids(sources), _as_ids(destinations))
    if bad is None:
        return
    position, is_source = bad
    what, ids = ("source", sources) if is_source else ("destination", destinations)
    num_nodes = shape.num_sources if is_source else shape.num_destinations
    raise id_error(what, first + position, ids[position], num_nodes, shape.origin)


def id_error(end: str, edge: int, value: int, num_nodes: int, origin: str) -> SourceError:
    """Return the error for an edge with its source or destination (`end`) out of range."""
    if value < 0:
        return SourceError(f"{origin}: edge {edge} has {end} {value}, must be 0 or more; {RENUMBERING}")
    return SourceError(
        f"{origin}: edge {edge} has {end} {value}, but nodes are numbered 0 to {num_nodes - 1}; "
        "correct the edge or give the right num_nodes"
    )


def spill_edges(
    spill: EdgeSpill, edges: EdgeSource, shape: EdgeShape, first_edge: int, end_edge: int, read_edges: int
) -> int:
    """Add edges first_edge .. end_edge - 1 to a spill; a thread prefetches the next block.

    Returns the highest id at either end if the edges determine the node counts, else -1.
    """
    highest = -1
    blocks = [(first_edge + start, stop - start) for start, stop in row_ranges(end_edge - first_edge, read_edges)]
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as reader:
        ahead = deque(reader.submit(edges.read, *block) for block in blocks[:1])
        for number, (first, _) in enumerate(blocks):
            sources, destinations = ahead.popleft().result()
            ahead.extend(reader.submit(edges.read, *block) for block in blocks[number + 1 : number + 2])
            add_edges(spill, shape, first, sources, destinations)
            if shape.counts_are_found:
                highest = max(highest, int(sources.max()), int(destinations.max()))
    return highest


def _as_ids(ids: NDArray[Any]) -> NDArray[Any]:
    """Convert integers to what the core takes: 32 or 64 bits, native byte order."""
    if ids.dtype.itemsize >= 4 and ids.dtype.isnative and ids.flags.aligned:
        return ids
    return ids.astype(np.uint64 if ids.dtype.kind == "u" else np.int64)

"""From edge pairs to in-neighbour lists (CSC), in memory.

An edge is one uint64, its destination in the upper bits and its source in the lower, so that sorting the numbers
sorts the lists: 8 bytes an edge and no copies. Where two ids do not fit 64 bits, pairs are sorted instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.edges import EdgeSource
from diskhop.dataset.manifest import index_dtype
from diskhop.dataset.progress import Progress, row_ranges
from diskhop.errors import ConfigError, SourceError
from diskhop.tasks import Tools, WorkFolder

_BLOCK = 1 << 20


def sort_edges(
    edges: EdgeSource,
    *,
    num_sources: int,
    num_destinations: int,
    number: bool,
    origin: str,
    work: WorkFolder,
    stage: str,
    budget: Budget,
    threads: int,
    tools: Tools,
    progress: Progress,
) -> SortedEdges:
    """Sort edges by destination, then source, then (where `number`) edge number."""
    sorter = EdgeSorter(edges.num_edges, num_sources, num_destinations, origin)
    for start, stop in row_ranges(edges.num_edges, _BLOCK):
        sources, destinations = edges.read(start, stop - start)
        sorter.put_sources(start, sources)
        sorter.put_destinations(start, destinations)
        progress("edges", stop, edges.num_edges)
    numbers = sorter.sort_and_number() if number else None
    if not number:
        sorter.sort()
    return SortedEdges(sorter, numbers)


class SortedEdges:
    """In-neighbour lists in blocks, front to back."""

    def __init__(self, sorter: EdgeSorter, numbers: NDArray[np.int64] | None) -> None:
        self._sorter = sorter
        self._numbers = numbers

    def indptr(self) -> Iterator[NDArray[np.int64]]:
        """indptr (destinations + 1)."""
        return self._sorter.indptr_blocks()

    def indices(self) -> Iterator[NDArray[Any]]:
        """Sources (edges), of the dtype that the format asks for."""
        return self._sorter.index_blocks()

    def edge_ids(self) -> Iterator[NDArray[np.int64]]:
        """The source's number of each edge (edges); only of edges that were sorted with their numbers."""
        assert self._numbers is not None
        for start, stop in row_ranges(len(self._numbers), _BLOCK):
            yield self._numbers[start:stop]

    def __enter__(self) -> SortedEdges:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class EdgeSorter:
    """Collects a known number of edges, sources and destinations in any order of blocks, then sorts them.

    Parallel edges and loops are kept. `origin` names the edges' source in errors.
    """

    def __init__(self, num_edges: int, num_sources: int, num_destinations: int, origin: str) -> None:
        self.num_edges = num_edges
        self._origin = origin
        self._num_nodes = {"source": num_sources, "destination": num_destinations}
        self._source_bits = np.uint64(max(0, num_sources - 1).bit_length())
        self._is_packed = int(self._source_bits) + max(0, num_destinations - 1).bit_length() <= 64
        try:
            self._keys = np.zeros(num_edges, np.uint64)
            self._sources = np.zeros(0 if self._is_packed else num_edges, np.uint64)
        except MemoryError:
            raise ConfigError(
                f"{origin}: sorting {num_edges} edges takes {8 * num_edges} bytes of memory, more than there is; "
                "import it on a machine with more"
            ) from None

    def put_sources(self, first_edge: int, ids: NDArray[Any]) -> None:
        """Set the sources of edges first_edge, first_edge + 1, ..."""
        checked = self._checked("source", first_edge, ids)
        (self._keys if self._is_packed else self._sources)[first_edge : first_edge + len(ids)] |= checked

    def put_destinations(self, first_edge: int, ids: NDArray[Any]) -> None:
        """Set the destinations of edges first_edge, first_edge + 1, ..."""
        checked = self._checked("destination", first_edge, ids)
        if self._is_packed:
            checked <<= self._source_bits
        self._keys[first_edge : first_edge + len(ids)] |= checked

    def sort(self) -> None:
        """Sort by destination, then source."""
        if self._is_packed:
            self._keys.sort()
        else:
            self.sort_and_number()

    def sort_and_number(self) -> NDArray[np.int64]:
        """Sort, and return the number that each edge was put under; parallel edges keep their order."""
        if self._is_packed:
            numbers = np.argsort(self._keys, kind="stable")
        else:
            numbers = np.lexsort((self._sources, self._keys))
            self._sources = self._sources[numbers]
        self._keys = self._keys[numbers]
        return numbers

    def indptr_blocks(self) -> Iterator[NDArray[np.int64]]:
        """indptr (destinations + 1), in blocks; valid after a sort."""
        for start, stop in row_ranges(self._num_nodes["destination"], _BLOCK):
            firsts = np.arange(start, stop, dtype=np.uint64)
            if self._is_packed:
                firsts <<= self._source_bits
            yield np.searchsorted(self._keys, firsts).astype(np.int64, copy=False)
        yield np.array([self.num_edges], np.int64)

    def index_blocks(self) -> Iterator[NDArray[Any]]:
        """indices (edges), in blocks, of the dtype that the format asks for; valid after a sort."""
        dtype = np.dtype(index_dtype(self._num_nodes["source"]))
        mask = np.uint64((1 << int(self._source_bits)) - 1)
        for start, stop in row_ranges(self.num_edges, _BLOCK):
            if self._is_packed:
                yield (self._keys[start:stop] & mask).astype(dtype)
            else:
                yield self._sources[start:stop].astype(dtype)

    def _checked(self, end: str, first_edge: int, ids: NDArray[Any]) -> NDArray[np.uint64]:
        num_nodes = self._num_nodes[end]
        if len(ids) and (ids.min() < 0 or ids.max() >= num_nodes):
            bad = int(np.flatnonzero((ids < 0) | (ids >= num_nodes))[0])
            raise SourceError(
                f"{self._origin}: edge {first_edge + bad} has {end} {ids[bad]}, "
                f"but nodes are numbered 0 to {num_nodes - 1}; mend the edge or give the right num_nodes"
            )
        return ids.astype(np.uint64)

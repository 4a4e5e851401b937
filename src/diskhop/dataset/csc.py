"""From edge pairs to in-neighbour lists (CSC), in memory where they fit, else by way of the disk."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop._native import EdgeTable
from diskhop.budget import Budget, Reservation
from diskhop.dataset.edge_keys import EdgeShape, add_edges
from diskhop.dataset.edges import EdgeSource
from diskhop.dataset.external_sort import ExternalSort
from diskhop.dataset.parallel import map_in_order, threads_that_fit
from diskhop.dataset.progress import Progress, row_ranges
from diskhop.dataset.sort_plan import SortLimits, bytes_in_memory
from diskhop.tasks import Tools, WorkFolder

_BLOCK = 1 << 20


class SortedEdges(Protocol):
    """In-neighbour lists in blocks, front to back; a context that holds what they are read with."""

    def indptr(self) -> Iterator[NDArray[np.int64]]:
        """indptr (destinations + 1)."""

    def indices(self) -> Iterator[NDArray[Any]]:
        """Sources (edges), of the dtype that the format asks for."""

    def edge_ids(self) -> Iterator[NDArray[np.int64]]:
        """The source's number of each edge (edges); only of edges that were sorted with their numbers."""

    def __enter__(self) -> SortedEdges: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def sort_edges(
    edges: EdgeSource,
    shape: EdgeShape,
    *,
    work: WorkFolder,
    stage: str,
    budget: Budget,
    threads: int,
    tools: Tools,
    progress: Progress,
    limits: SortLimits,
) -> SortedEdges:
    """Sort edges by destination, then source, then number. Edges that the budget does not hold go to a stage of `work`.

    Raises SourceError for the first id out of range, BudgetError, DestinationError where the disk is too small.
    """

    def needed_bytes(readers: int) -> int:
        return bytes_in_memory(shape.num_edges, shape.layout().key_bytes, readers, limits)

    most_bytes = min(budget.available_bytes, limits.in_memory_bytes)
    readers = threads_that_fit(threads, most_bytes, needed_bytes)
    if shape.num_edges == 0 or needed_bytes(readers) <= most_bytes:
        reservation = budget.reserve("sorting edges", needed_bytes(readers))
        return _TableEdges(edges, shape, reservation, readers, threads, progress, limits)
    sorter = ExternalSort(edges, shape, work, stage, budget, threads, tools, limits)
    sorter.run(progress)
    return sorter.open_lists()


class _TableEdges:
    """Lists sorted in memory."""

    def __init__(
        self,
        edges: EdgeSource,
        shape: EdgeShape,
        reservation: Reservation,
        readers: int,
        threads: int,
        progress: Progress,
        limits: SortLimits,
    ) -> None:
        self._edges = edges
        self._shape = shape
        self._reservation = reservation
        try:
            self._table = EdgeTable(shape.layout(), shape.num_edges)
            for done in map_in_order(self._read_block, row_ranges(shape.num_edges, limits.read_edges), readers):
                progress("reading edges", done, shape.num_edges)
            self._table.sort(threads)
        except BaseException:
            reservation.release()
            raise

    def _read_block(self, edges: tuple[int, int]) -> int:
        start, stop = edges
        add_edges(self._table, self._shape, start, *self._edges.read(start, stop - start))
        return stop

    def indptr(self) -> Iterator[NDArray[np.int64]]:
        """See SortedEdges."""
        for start, stop in row_ranges(self._shape.num_destinations + 1, _BLOCK):
            yield self._table.indptr(start, stop - start)

    def indices(self) -> Iterator[NDArray[Any]]:
        """See SortedEdges."""
        for start, stop in row_ranges(self._shape.num_edges, _BLOCK):
            yield self._table.indices(start, stop - start)

    def edge_ids(self) -> Iterator[NDArray[np.int64]]:
        """See SortedEdges."""
        for start, stop in row_ranges(self._shape.num_edges, _BLOCK):
            yield self._table.numbers(start, stop - start)

    def __enter__(self) -> _TableEdges:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._table
        self._reservation.release()

"""Hot order: nodes sorted by out-degree, highest first, ties to the lower original id.

The out-degree is how often a node is the source of an edge, parallel edges counted. A static cache is then a prefix of
the ids, and frequently read rows share disk blocks. An *original id* is the id of a node before it was renumbered.
"""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import count_ids, invert_order, order_by_count_int64, order_by_count_uint32, renumber_ids
from diskhop.budget import Budget, Reservation
from diskhop.dataset.edges import EdgeSource
from diskhop.dataset.manifest import index_dtype
from diskhop.dataset.sort.keys import id_error
from diskhop.dataset.sort.tidy import Tidying
from diskhop.runtime.blocks import map_in_order, row_ranges, threads_that_fit
from diskhop.runtime.jobs import Share, SharedArray
from diskhop.runtime.progress import Progress, silent

ORDERS = ("input", "hot")
EDGES_PER_BLOCK = 1 << 18
# Two ids of up to 8 bytes as read and as converted for the core, and the edge numbers twice.
_BYTES_PER_EDGE = 48
_NAME = "hot order"


class HotOrder:
    """new_ids[original id] of every node, uint32 or int64; its context releases the reservation."""

    def __init__(self, new_ids: NDArray[Any], reservation: Reservation) -> None:
        self.new_ids = new_ids
        self._reservation = reservation

    def original_ids(self) -> NDArray[Any]:
        """Return the original id of every node in the new order. The caller reserves new_ids.nbytes."""
        return invert_order(self.new_ids)

    def __enter__(self) -> HotOrder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self.new_ids
        self._reservation.release()


def hot_order_bytes(num_nodes: int, num_edges: int, threads: int, edges_per_block: int = EDGES_PER_BLOCK) -> int:
    """Return the peak memory of find_hot_order: 12 bytes per node if ids and counts fit 32 bits, and its blocks."""
    id_bytes = np.dtype(index_dtype(num_nodes)).itemsize
    count_bytes = np.dtype(_count_dtype(num_edges)).itemsize
    edges_at_once = min(num_edges, (threads + 1) * edges_per_block)
    return (count_bytes + 2 * id_bytes) * num_nodes + edges_at_once * _BYTES_PER_EDGE


def find_hot_order(
    edges: EdgeSource,
    num_nodes: int,
    *,
    budget: Budget,
    threads: int,
    origin: str,
    tidying: Tidying | None = None,
    progress: Progress = silent,
    edges_per_block: int = EDGES_PER_BLOCK,
) -> HotOrder:
    """Read all edges once and rank the nodes. The result stays reserved (4 or 8 bytes per node) until its context ends.

    Loops that tidying leaves out are not counted; duplicates always are. Uses fewer threads if the budget
    requires it. edges_per_block: edges that a thread reads at once.

    Raises BudgetError before reading, with the smallest budget that works; SourceError, naming `origin`, for an edge
    with its source out of range.
    """
    needed_bytes = partial(hot_order_bytes, num_nodes, edges.num_edges, edges_per_block=edges_per_block)
    threads = threads_that_fit(threads, budget.available_bytes, needed_bytes)
    with budget.reserve(_NAME, needed_bytes(threads)):
        counts = np.zeros(num_nodes, _count_dtype(edges.num_edges))

        def count_block(block: tuple[int, int]) -> int:
            sources, destinations = edges.read(block[0], block[1] - block[0])
            counted = None if tidying is None else _counted_edges(sources, destinations, block[0], tidying)
            if counted is not None:
                sources = sources[counted]
            bad = count_ids(native_ids(sources), counts)
            if bad < len(sources):
                number = block[0] + (bad if counted is None else int(counted[bad]))
                raise id_error("source", number, sources[bad], num_nodes, origin)
            return block[1]

        for done in map_in_order(count_block, row_ranges(edges.num_edges, edges_per_block), threads):
            progress("counting neighbours", done, edges.num_edges)
        fits_32_bits = index_dtype(num_nodes) == "uint32"
        new_ids = invert_order(order_by_count_uint32(counts) if fits_32_bits else order_by_count_int64(counts))
    return HotOrder(new_ids, budget.reserve(_NAME, new_ids.nbytes))


class RenumberedEdges:
    """Edges renumbered by new_ids[original id].

    is_shared: whether workers may use new_ids; they map one copy together, which takes as much memory again.
    """

    def __init__(self, edges: EdgeSource, new_ids: NDArray[Any], origin: str, *, is_shared: bool = False) -> None:
        self._edges = edges
        self._new_ids = new_ids
        self._origin = origin
        self._is_shared = is_shared

    @property
    def num_edges(self) -> int:
        """See EdgeSource."""
        return self._edges.num_edges

    @property
    def identity(self) -> str:
        """See EdgeSource. The order is a function of the edges, so it needs no identity."""
        return f"{self._edges.identity}, in hot order"

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """See EdgeSource."""
        sources, destinations = self._edges.read(first, count)
        return self._renumbered("source", first, sources), self._renumbered("destination", first, destinations)

    def for_workers(self, share: Share) -> partial[RenumberedEdges]:
        """Copy the edges to a worker, with the shared new ids (see Workers)."""
        if not self._is_shared:
            raise TypeError("there is no memory to share the new ids")
        return partial(_renumbered_by_shared, self._edges, SharedArray(self._new_ids), self._origin)

    def _renumbered(self, end: str, first: int, ids: NDArray[Any]) -> NDArray[Any]:
        renumbered = np.empty(len(ids), self._new_ids.dtype)
        bad = renumber_ids(native_ids(ids), self._new_ids, renumbered)
        if bad < len(ids):
            raise id_error(end, first + bad, ids[bad], len(self._new_ids), self._origin)
        return renumbered


def _renumbered_by_shared(edges: EdgeSource, new_ids: SharedArray, origin: str) -> RenumberedEdges:
    return RenumberedEdges(edges, new_ids.array, origin)


def native_ids(ids: NDArray[Any]) -> NDArray[Any]:
    """Convert ids to uint32 or int64 for the core; values that fit neither become invalid ids."""
    wanted = ids.dtype if ids.dtype == np.uint32 else np.dtype(np.int64)
    return np.ascontiguousarray(ids, dtype=wanted)


def _counted_edges(
    sources: NDArray[Any], destinations: NDArray[Any], first: int, tidying: Tidying
) -> NDArray[np.int64] | None:
    """Return the positions of the edges to count (loops that are left out are not); None for all."""
    if not (tidying.drop_loops or tidying.both_ways):
        return None
    is_left_out = sources == destinations
    if not tidying.drop_loops:  # UndirectedEdges lists every loop twice; one copy counts
        is_left_out &= (first + np.arange(len(sources))) % 2 == 1
    return np.flatnonzero(~is_left_out)


def _count_dtype(num_edges: int) -> str:
    return "uint32" if num_edges < 2**32 else "int64"

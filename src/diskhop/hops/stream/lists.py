"""Neighbour lists streamed from disk: for each part of rows, its indptr and the pieces of its indices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File
from diskhop.errors import ReadError
from diskhop.hops.make.passes import PIECE_EDGES, Lists
from diskhop.hops.stream.prefetch import prefetched
from diskhop.hops.tables import PAGE_BYTES
from diskhop.io.streams import in_pieces
from diskhop.system.memory import buffer_bytes

# Stretches in memory at once: one in use, the others in flight.
_NUM_SLOTS = 4
# A little less than 2 MiB of indices of 4 bytes, the size of a huge page.
_MOST_STRETCH_EDGES = 31 * PIECE_EDGES
# Rows whose indptr is read at once.
_INDPTR_ROWS = 4 << 10

Indices = NDArray[np.uint32] | NDArray[np.int64]


class Stretch(NamedTuple):
    """Consecutive edges of the rows of a part; cuts lie at rows, or at multiples of PIECE_EDGES.

    first_row: first row of the part.
    indptr: int64 (rows of the part + 1), in edges of the whole graph.
    first_edge: first edge.
    indices: sources of the edges; valid until the next stretch is requested.
    is_last: whether the part ends with it.
    """

    first_row: int
    indptr: NDArray[np.int64]
    first_edge: int
    indices: Indices
    is_last: bool


class _Cut(NamedTuple):
    first_row: int
    indptr: NDArray[np.int64]
    first_edge: int
    end_edge: int
    is_last: bool


def stretch_edges(num_edges: int, memory_bytes: int, index_bytes: int) -> int:
    """Return the edges of a stretch: many, unless the graph or a fraction of the memory is smaller."""
    affordable = memory_bytes // 16 // _NUM_SLOTS // index_bytes
    pieces = min(affordable, num_edges, _MOST_STRETCH_EDGES) // PIECE_EDGES
    return PIECE_EDGES * max(1, pieces)


def streaming_bytes(num_stretch_edges: int, index_bytes: int, num_edges: int, part_rows: int) -> int:
    """Return the memory of a ListStream."""
    slots = _NUM_SLOTS * buffer_bytes(_slot_bytes(num_stretch_edges, index_bytes, num_edges))
    return slots + 16 * max(_INDPTR_ROWS, part_rows)


class ListStream:
    """Streams lists of all rows. Takes streaming_bytes(), most of it from a pool."""

    def __init__(self, lists: Lists, part_rows: int, num_stretch_edges: int, engine: Engine, pool: BufferPool) -> None:
        self._lists = lists
        self._part_rows = part_rows
        self._stretch_edges = num_stretch_edges
        self._engine = engine
        self._file = File(str(lists.indices_path), "read")
        self._alignment = max(1, self._file.offset_alignment)
        slot_bytes = _slot_bytes(num_stretch_edges, lists.index_bytes, lists.num_edges)
        self._slots = [pool.take(slot_bytes) for _ in range(_NUM_SLOTS)]

    def stretches(self, firsts: Iterable[int], stop: int) -> Iterator[Stretch]:
        """Yield the stretches of parts, given the first row of each, up to row stop.

        A part without edges has one stretch without any.
        """
        dtype = np.dtype("<u4") if self._lists.index_bytes == 4 else np.dtype("<i8")
        for cut, slot in prefetched(self._engine, self._cuts(firsts, stop), self._submit, _NUM_SLOTS):
            begin = self._offset(cut.first_edge)
            content = self._slots[slot][begin % self._alignment :]
            indices = content[: (cut.end_edge - cut.first_edge) * self._lists.index_bytes].view(dtype)
            yield Stretch(cut.first_row, cut.indptr, cut.first_edge, indices, cut.is_last)

    def _cuts(self, firsts: Iterable[int], stop: int) -> Iterator[_Cut]:
        for first_row, indptr in indptr_parts(self._lists, firsts, stop, self._part_rows):
            edge, end_edge = int(indptr[0]), int(indptr[-1])
            while True:
                cut = min(end_edge, (edge // self._stretch_edges + 1) * self._stretch_edges)
                yield _Cut(first_row, indptr, edge, cut, cut == end_edge)
                if cut == end_edge:
                    break
                edge = cut

    def _submit(self, cut: _Cut, slot: int) -> int:
        begin, end = self._offset(cut.first_edge), self._offset(cut.end_edge)
        first = begin // self._alignment * self._alignment
        num_bytes = -(-(end - first) // self._alignment) * self._alignment if end > begin else 0
        places, lengths = in_pieces(num_bytes)
        required = np.minimum(np.uint64(end - first) - places, lengths)
        return self._engine.submit_read(
            self._file, places + np.uint64(first), lengths, self._slots[slot], places, required
        )

    def _offset(self, edge: int) -> int:
        return self._lists.indices_offset + edge * self._lists.index_bytes


def edge_rows(stretch: Stretch) -> NDArray[Any]:
    """Return the row of each edge of a stretch, in the dtype of the indices."""
    edges = stretch.indptr.clip(stretch.first_edge, stretch.first_edge + len(stretch.indices))
    rows = np.arange(stretch.first_row, stretch.first_row + len(edges) - 1)
    return np.repeat(rows, edges[1:] - edges[:-1]).astype(stretch.indices.dtype)


def indptr_parts(
    lists: Lists, firsts: Iterable[int], stop: int, part_rows: int
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield (first row, indptr of the part's rows) of parts, given the first row of each, up to row stop.

    Raises ReadError for a file that has fewer.
    """
    at_once = max(1, _INDPTR_ROWS // part_rows) * part_rows
    known_first, known_stop = 0, 0
    indptr: NDArray[np.int64] = np.zeros(0, np.int64)
    path = lists.indptr_path
    with path.open("rb") as file:
        for first in firsts:
            last = min(first + part_rows, stop)
            if not known_first <= first < last <= known_stop:
                known_first, known_stop = first, min(first + at_once, stop)
                indptr = np.empty(known_stop - first + 1, np.int64)
                file.seek(lists.indptr_offset + 8 * first)
                if file.readinto(indptr.data) < indptr.nbytes:
                    raise ReadError(
                        f"{path}: ends before row {known_stop}; run 'diskhop verify' on the dataset, then import the "
                        "graph again"
                    )
            yield first, indptr[first - known_first : last - known_first + 1]


def _slot_bytes(num_stretch_edges: int, index_bytes: int, num_edges: int) -> int:
    return min(num_stretch_edges, num_edges) * index_bytes + 2 * PAGE_BYTES

"""Cold edges: edges from rows that are not in the block, because memory only fits the first rows.

In a hot order they are few, from many nodes. Their values are streamed with the lists, which makes blocks wider. First
the lists are scanned to count them for the plan. If they pay off, their sources are written to a file in the order of
the edge array, from which the values for each block are computed (propagate.hpp).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool
from diskhop.errors import ReadError
from diskhop.hops.make.passes import PIECE_EDGES, ColdEdges, Lists
from diskhop.hops.tables import PAGE_BYTES, whole_pages
from diskhop.io.atomic import allocate, announce, destination_errors
from diskhop.io.streams import SequentialWriter
from diskhop.io.values import read_values
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools

# Pieces that are scanned together: 1 MiB of indices, unless memory is short.
_MOST_PIECES = 16
_MEMORY_PER_PIECE = 4 << 20
_WRITER_BYTES = 128 << 10
VALUES_FILE = ".cold-values"  # not the output of a task: rewritten for each block


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCounts:
    """Counts of the sources in lists.

    num_sources: highest source + 1.
    first_cold: first cold node.
    num_cold: edges from it or later nodes.
    most_per_piece: most of these edges in one piece.
    """

    num_sources: int
    first_cold: int
    num_cold: int
    most_per_piece: int


def scan_bytes(index_bytes: int, memory_bytes: int) -> int:
    """Return the memory of scanning lists: the indices of the pieces, a mask, and the cold indices."""
    return _pieces_at_once(memory_bytes) * PIECE_EDGES * (2 * index_bytes + 2)


def cold_file_bytes(num_edges: int, num_cold: int, index_bytes: int) -> int:
    """Return the disk space of the file of cold edges."""
    return whole_pages(num_cold * index_bytes) + whole_pages(counts_bytes(num_edges))


def counts_bytes(num_edges: int) -> int:
    """Return the memory of the counts per piece, which a pass needs."""
    return 8 * (-(-num_edges // PIECE_EDGES) + 1)


def count_sources(lists: Lists, first_cold: int, memory_bytes: int, progress: Progress = silent) -> SourceCounts:
    """Count the sources in lists, within scan_bytes(memory_bytes)."""
    num_sources = num_cold = most = num_seen = 0
    for indices in _read_pieces(lists, memory_bytes):
        num_sources = max(num_sources, int(indices.max()) + 1)
        counts = _count_pieces(indices >= first_cold)
        num_cold += int(counts.sum())
        most = max(most, int(counts.max()))
        num_seen += len(indices)
        progress("counting sources", num_seen, lists.num_edges)
    return SourceCounts(num_sources=num_sources, first_cold=first_cold, num_cold=num_cold, most_per_piece=most)


def write_cold_sources(lists: Lists, first_cold: int, memory_bytes: int, path: Path, tools: TaskTools) -> None:
    """Write the sources of cold edges in the order of lists, then the number before each piece, uint64 (pieces + 1)."""
    before = np.zeros(counts_bytes(lists.num_edges) // 8, np.uint64)
    first_piece = 0
    with SequentialWriter(path, tools.engine, BufferPool(0), buffer_bytes=_WRITER_BYTES) as writer:
        for indices in _read_pieces(lists, memory_bytes):
            is_cold = indices >= first_cold
            counts = _count_pieces(is_cold)
            before[first_piece + 1 : first_piece + 1 + len(counts)] = counts
            first_piece += len(counts)
            writer.append(indices[is_cold].view(np.uint8))
        np.cumsum(before, out=before)
        for content in (np.zeros(-int(before[-1]) * lists.index_bytes % PAGE_BYTES, np.uint8), before.view(np.uint8)):
            writer.append(content)
        writer.append(np.zeros(-before.nbytes % PAGE_BYTES, np.uint8))
        writer.finish()


def open_cold_edges(lists: Lists, first_cold: int, path: Path, values: Path) -> ColdEdges:
    """Open the file of write_cold_sources(). values: path of the file for the values of a block."""
    num_bytes = counts_bytes(lists.num_edges)
    before = read_values(path, "<u8", num_bytes // 8, offset=path.stat().st_size - whole_pages(num_bytes))
    return ColdEdges(first_row=first_cold, sources_path=path, before=before, values_path=values)


def make_values_file(path: Path, num_bytes: int, tools: TaskTools) -> None:
    """Allocate a file for values, so that a full disk is found early. Raises DestinationError."""
    with destination_errors(path):
        announce(tools.injector, "write", path)
        path.touch()
        allocate(path, 0, whole_pages(num_bytes))


def writing_bytes(lists: Lists, memory_bytes: int) -> int:
    """Return the memory of write_cold_sources()."""
    scanning = scan_bytes(lists.index_bytes, memory_bytes)
    return scanning + 2 * _WRITER_BYTES + counts_bytes(lists.num_edges)


def _pieces_at_once(memory_bytes: int) -> int:
    return max(1, min(_MOST_PIECES, memory_bytes // _MEMORY_PER_PIECE))


def _read_pieces(lists: Lists, memory_bytes: int) -> Iterator[NDArray[np.uint32 | np.int64]]:
    at_once = _pieces_at_once(memory_bytes) * PIECE_EDGES
    dtype = np.dtype("<u4") if lists.index_bytes == 4 else np.dtype("<i8")
    for first in range(0, lists.num_edges, at_once):
        count = min(at_once, lists.num_edges - first)
        offset = lists.indices_offset + first * lists.index_bytes
        indices: NDArray[np.uint32 | np.int64] = np.fromfile(lists.indices_path, dtype, count, offset=offset)
        if len(indices) < count:
            raise ReadError(
                f"{lists.indices_path}: has {first + len(indices)} of {lists.num_edges} edges; "
                "the copy is incomplete: run 'diskhop verify' on the dataset"
            )
        yield indices


def _count_pieces(is_cold: NDArray[np.bool_]) -> NDArray[np.uint64]:
    starts = range(0, len(is_cold), PIECE_EDGES)
    return np.array([np.count_nonzero(is_cold[start : start + PIECE_EDGES]) for start in starts], np.uint64)

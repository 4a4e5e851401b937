"""In-neighbour lists, streamed from sorted edges in blocks, from front to back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import SortedEdges
from diskhop.dataset.sort.keys import EdgeShape
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.progress import Progress

# Maximum number of values per column of a block.
BLOCK_VALUES = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class ListBlock:
    """Consecutive edges of the lists.

    first: number of edges before the block.
    starts: int64, the values of indptr from `first` to `end`; each value is in exactly one block.
    indices: source ids in the dtype of the format.
    numbers: int64, the source's numbers of the edges; None if they were sorted without.
    """

    first: int
    starts: NDArray[np.int64]
    indices: NDArray[Any]
    numbers: NDArray[np.int64] | None

    @property
    def end(self) -> int:
        """Number of edges up to the last one of the block."""
        return self.first + len(self.indices)


def list_blocks(pieces: Iterator[SortedEdges], shape: EdgeShape, progress: Progress) -> Iterator[ListBlock]:
    """Yield the lists of edges that are sorted in pieces. A piece is released before the next one is requested."""
    first = next_node = 0
    for piece in pieces:
        for block in _piece_blocks(piece, shape, first, next_node):
            yield block
            progress("writing edges", block.end, shape.num_edges)
        first += piece.num_edges
        next_node = max(next_node, piece.last_destination + 1)
        del piece
    nothing = np.empty(0, np.int64)
    for start, stop in row_ranges(shape.num_destinations + 1 - next_node, BLOCK_VALUES):
        no_indices = nothing.astype(shape.index_dtype)
        yield ListBlock(first, np.full(stop - start, first), no_indices, nothing if shape.is_numbered else None)


def _piece_blocks(piece: SortedEdges, shape: EdgeShape, first: int, next_node: int) -> Iterator[ListBlock]:
    """Yield lists up to that of the last edge, which may continue in the next piece."""
    end_node = piece.last_destination + 1
    starts = np.empty(0, np.int64)
    taken = 0
    while taken < piece.num_edges:
        if len(starts) == 0 and next_node < end_node:
            count = min(BLOCK_VALUES, end_node - next_node)
            starts = piece.indptr(next_node, count)
            next_node += count
        stop = min(taken + BLOCK_VALUES, piece.num_edges)
        num_here = int(np.searchsorted(starts, stop))
        here, starts = starts[:num_here], starts[num_here:]
        if len(starts) == 0 and next_node < end_node:
            stop = int(here[-1])  # the start of the next list is not known yet
        yield ListBlock(
            first + taken,
            first + here,
            piece.indices(taken, stop - taken),
            piece.numbers(taken, stop - taken) if shape.is_numbered else None,
        )
        taken = stop

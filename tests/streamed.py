"""Neighbour lists that stream through memory, divided into calls in any way, for tests of the kernels over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import ColumnBlock

PIECE_EDGES = 16_384


@dataclass(frozen=True, kw_only=True)
class Lists:
    """Lists of rows, divided into calls: edges in memory and rows, where each begins."""

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    num_sources: int
    row_starts: NDArray[np.int64]
    edge_starts: NDArray[np.int64]
    num_threads: int

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def targets(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(self.num_rows), np.diff(self.indptr))

    def undivided(self) -> Lists:
        """Return the same lists in one call, on one thread."""
        start = np.zeros(1, np.int64)
        return replace(self, row_starts=start, edge_starts=start, num_threads=1)

    def calls(self) -> Iterator[tuple[slice, NDArray[np.int64], NDArray[Any], int]]:
        """Yield the rows, their indptr, the indices in memory, and the number of the first."""
        for begin, end in zip(self.row_starts, [*self.row_starts[1:], self.num_rows], strict=True):
            first, last = self.indptr[begin], self.indptr[end]
            inside = (self.edge_starts > first) & (self.edge_starts < last)
            edges = [first, *self.edge_starts[inside], last]
            for edge, next_edge in pairwise(edges):
                rows = slice(int(begin), int(end))
                yield rows, self.indptr[begin : end + 1], self.indices[edge:next_edge].copy(), int(edge)


@st.composite
def lists(draw: st.DrawFn) -> Lists:
    """Draw lists with hubs, empty lists, parallel edges and self-loops."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_rows = draw(st.one_of(st.integers(1, 40), st.integers(4090, 9000)))
    lengths = rng.poisson(draw(st.sampled_from([0.1, 3.0, 12.0])), num_rows)
    for _ in range(draw(st.integers(0, 3))):
        lengths[rng.integers(num_rows)] = rng.integers(60_000)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    num_sources = draw(st.sampled_from([num_rows, 1, 20_000]))
    indices = rng.integers(0, num_sources, indptr[-1])
    pieces = np.arange(0, indptr[-1], PIECE_EDGES)
    row_starts = np.unique([0, *rng.integers(0, num_rows, draw(st.integers(0, 4)))])
    edge_starts = rng.choice(pieces, min(len(pieces), draw(st.integers(0, 5))), replace=False)
    # Calls may also begin where a row does.
    more = rng.choice(indptr, draw(st.integers(0, 2)))
    return Lists(
        indptr=indptr,
        indices=indices.astype(draw(st.sampled_from([np.uint32, np.int64]))),
        num_sources=num_sources,
        row_starts=row_starts,
        edge_starts=np.unique([*edge_starts, *more]).astype(np.int64),
        num_threads=draw(st.sampled_from([1, 3])),
    )


def block_of(rows: NDArray[np.float32]) -> ColumnBlock:
    """Return rows (sources, columns) as a block, without padding."""
    memory = np.ascontiguousarray(rows).reshape(-1)
    return ColumnBlock(memory, *rows.shape)

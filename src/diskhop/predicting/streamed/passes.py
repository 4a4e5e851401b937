"""The passes of a layer: a block of columns in memory, and for every part of rows the sums over its lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop._native import BufferPool, ColumnBlock, Engine, add_neighbor_sums
from diskhop.hops.make.passes import Lists, aligned_memory
from diskhop.hops.stream.lists import ListStream, Stretch, edge_rows, indptr_parts
from diskhop.hops.stream.parts import BandReader, Bands, Rows, band_bytes, read_band, stored_rows
from diskhop.hops.stream.scan import ScannedLists, loops_of
from diskhop.hops.tables import TILE_ROWS
from diskhop.predicting.streamed.layers import symmetric_scales


@dataclass(frozen=True, slots=True, kw_only=True)
class Streaming:
    """Lists and sizes that all passes share.

    lists: neighbour lists.
    scanned: what a scan of them found.
    part_rows: rows of a part.
    stretch_edges: edges that are read together.
    engine: I/O engine.
    threads: threads of the core for each part.
    """

    lists: Lists
    scanned: ScannedLists
    part_rows: int
    stretch_edges: int
    engine: Engine
    threads: int

    def loops(self, first_row: int, num_rows: int) -> torch.Tensor | None:
        """Return how many edges lead from each row to itself, float32 (rows, 1); None if no edge does."""
        found = loops_of(self.scanned, first_row, first_row + num_rows)
        return None if found is None else torch.from_numpy(found.astype(np.float32))[:, None]

    def proper_degrees(self, first_row: int, indptr: NDArray[np.int64]) -> torch.Tensor:
        """Return lengths of lists without loops, float32 (rows, 1)."""
        degrees, loops = degrees_of(indptr), self.loops(first_row, len(indptr) - 1)
        return degrees if loops is None else degrees - loops


@dataclass(frozen=True, slots=True, eq=False)
class PartSums:
    """Sums of one part.

    first_row: first row.
    indptr: int64 (rows + 1).
    sums: float32 (summed rows, columns of the block); valid until the next ones are requested.
    """

    first_row: int
    indptr: NDArray[np.int64]
    sums: Rows

    @property
    def num_rows(self) -> int:
        """Rows of the part."""
        return len(self.indptr) - 1


def degrees_of(indptr: NDArray[np.int64]) -> torch.Tensor:
    """Return lengths of lists, float32 (rows, 1)."""
    return torch.from_numpy(np.diff(indptr).astype(np.float32))[:, None]


def all_rows(indptr: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indptr of all rows."""
    return indptr


def with_edges(indptr: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indptr of those rows alone that have edges."""
    return np.append(indptr[:-1][indptr[:-1] < indptr[1:]], indptr[-1])


def to_be_stored(indptr: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indptr of the rows that have edges and, behind those of each group, rows without any.

    They are as many as BandShape.stored says.
    """
    rows = np.flatnonzero(indptr[:-1] < indptr[1:])
    ends = np.minimum(np.arange(TILE_ROWS, len(indptr) - 1 + TILE_ROWS, TILE_ROWS), len(indptr) - 1)
    places = np.append(0, np.searchsorted(rows, ends))
    counts = np.diff(places).astype(np.int32)
    begins, end_edges, padding = indptr[rows], indptr[ends], stored_rows(counts) - counts
    pieces = []
    for number, (start, stop) in enumerate(pairwise(places.tolist())):
        pieces += [begins[start:stop], np.full(padding[number], end_edges[number])]
    return np.concatenate([*pieces, indptr[-1:]])


class BlockMemory:
    """Memory of one block after another, uninitialised: fresh pages cost as much as reading them.

    scored_width: columns of the last block, whose first ones have scores; 0 before there are any.
    has_first: whether the memory has the first layer's first block, made of the features.
    """

    def __init__(self, num_rows: int, num_columns: int) -> None:
        self.content = aligned_memory(band_bytes(num_rows + 1, num_columns))
        self.scored_width = 0
        self.has_first = False


class Block:
    """Some columns of the first rows of a table, in memory, float32 (rows, columns).

    `all_rows` has one more, of zeros, which edges lead from that do not count.
    """

    def __init__(self, memory: BlockMemory, num_rows: int, num_columns: int) -> None:
        self._content = memory.content
        # The core would pad rows if there was more memory.
        values = memory.content.view(np.float32)[: (num_rows + 1) * num_columns]
        self.all_rows: Rows = values.reshape(num_rows + 1, num_columns)
        self.rows = self.all_rows[:-1]
        self.columns = ColumnBlock(values, num_rows + 1, num_columns)

    def fill(self, band: Bands, streaming: Streaming, first_column: int = 0) -> None:
        """Read a band of a table into columns of the block, from first_column on."""
        num_rows, num_columns = self.rows.shape
        if band.width == num_columns:
            read_band(band, num_rows, self._content, streaming.engine)
        else:
            reader = BandReader(band, streaming.part_rows, streaming.engine, BufferPool(0))
            first = 0
            for (part,) in reader.parts(range(0, num_rows, streaming.part_rows), num_rows):
                self.rows[first : first + len(part), first_column : first_column + band.width] = part
                first += len(part)
        self.all_rows[-1] = 0

    def scale(self, streaming: Streaming) -> None:
        """Multiply every row by its factor in GCN's sums."""
        firsts = range(0, len(self.rows), streaming.part_rows)
        for first, indptr in indptr_parts(streaming.lists, firsts, len(self.rows), streaming.part_rows):
            rows = torch.from_numpy(self.rows[first : first + len(indptr) - 1])
            rows.mul_(symmetric_scales(streaming.proper_degrees(first, indptr)))


class Summer(Protocol):
    """Sums something over the lists of consecutive parts, stretch by stretch."""

    @property
    def adds_own(self) -> bool:
        """Whether the row itself is added once, in place of edges from a node to itself."""

    @property
    def width(self) -> int:
        """Values per row."""

    def begin(self, first_row: int, sums: Rows) -> None:
        """Prepare the sums before the first stretch."""

    def add(self, stretch: Stretch, sums: Rows) -> None:
        """Add the edges of a stretch."""

    def end(self, first_row: int, sums: Rows) -> None:
        """Finish the sums after the last stretch."""


def sum_parts(
    summer: Summer,
    streaming: Streaming,
    firsts: Iterable[int],
    stop: int,
    memory_of: Callable[[int], Rows],
    pool: BufferPool,
    summed: Callable[[NDArray[np.int64]], NDArray[np.int64]] = all_rows,
) -> Iterator[PartSums]:
    """Yield the sums of parts, given the first row of each, up to row stop.

    memory_of: returns where the sums of a number of rows go, float32 (rows, columns). pool: memory of the lists.
    summed: returns the indptr of the rows that are summed from that of a part. Others have no edges.
    """
    stream = ListStream(streaming.lists, streaming.part_rows, streaming.stretch_edges, streaming.engine, pool)
    sums: Rows | None = None
    for stretch in stream.stretches(firsts, stop):
        if summer.adds_own:
            _leave_out_loops(stretch, streaming)
        if sums is None:
            indptr = summed(stretch.indptr)
            sums = memory_of(len(indptr) - 1)
            summer.begin(stretch.first_row, sums)
        summer.add(stretch._replace(indptr=indptr), sums)
        if stretch.is_last:
            summer.end(stretch.first_row, sums)
            yield PartSums(stretch.first_row, stretch.indptr, sums)
            sums = None


def _leave_out_loops(stretch: Stretch, streaming: Streaming) -> None:
    """Let edges from a node to itself lead from the row of zeros, the one after the last node's."""
    loops = streaming.loops(stretch.first_row, len(stretch.indptr) - 1)
    if loops is None or not loops.any():
        return
    rows = edge_rows(stretch)
    stretch.indices[stretch.indices == rows] = streaming.lists.num_nodes


class NeighborSums:
    """Sums of a block's rows (see Summer). adds_own: with the row itself once, in place of loops."""

    def __init__(self, block: Block, streaming: Streaming, adds_own: bool) -> None:
        self.adds_own = adds_own
        self._block = block
        self._streaming = streaming

    @property
    def width(self) -> int:
        """See Summer."""
        return int(self._block.rows.shape[1])

    def begin(self, first_row: int, sums: Rows) -> None:
        """See Summer: the first stretch of a row sets it."""

    def add(self, stretch: Stretch, sums: Rows) -> None:
        """See Summer."""
        add_neighbor_sums(
            self._block.columns, stretch.indptr, stretch.indices, stretch.first_edge, sums, self._streaming.threads
        )

    def end(self, first_row: int, sums: Rows) -> None:
        """See Summer."""
        if self.adds_own:
            sums += self._block.rows[first_row : first_row + len(sums)]

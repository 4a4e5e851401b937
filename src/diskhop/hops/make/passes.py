"""The core's product, with lists and tables given by path.

A *block* is some adjacent tiles of rows, in memory as float32: all rows, or those that lists name. If there is memory
left, rows are padded so that they do not straddle cache lines. A block may also contain only the first rows; the values
of *cold* edges, those from later rows, are then streamed with the lists. See propagate.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, ColumnBlock, Engine, File, PropagationPass
from diskhop.hops.tables import PAGE_BYTES, TILE_COLUMNS, TableShape, whole_pages
from diskhop.io.atomic import destination_errors
from diskhop.system.memory import buffer_bytes

# Smallest units of the core (pass_staging.cpp): rows per strip, edges per piece, sums of rows per thread.
_STRIP_ROWS, PIECE_EDGES, _SUM_BYTES, _FEWEST_SUMS, _MOST_SUMS = 512, 16 << 10, 16 << 10, 4, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """Neighbour lists on disk.

    indptr_path: file with indptr, int64 (num_nodes + 1).
    indptr_offset: offset of indptr in its file.
    indices_path: file with indices.
    indices_offset: offset of indices in their file.
    index_bytes: bytes per index.
    num_nodes: number of lists.
    num_edges: number of indices.
    weights_path: file with float32 weights, one per index; None: all 1.
    weights_offset: offset of weights in their file.
    """

    indptr_path: Path
    indptr_offset: int
    indices_path: Path
    indices_offset: int
    index_bytes: Literal[4, 8]
    num_nodes: int
    num_edges: int
    weights_path: Path | None = None
    weights_offset: int = 0

    @property
    def edge_bytes(self) -> int:
        """Bytes of an edge: its index, and its weight."""
        return self.index_bytes + (0 if self.weights_path is None else 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Tiles of a table, as many as the block has.

    path: file of the table.
    shape: layout of the table.
    first_tile: first tile.
    """

    path: Path
    shape: TableShape
    first_tile: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColdEdges:
    """Edges from rows that are not in the block.

    first_row: first of these rows.
    sources_path: file with the sources of the edges, in the order of the edge array.
    before: uint64 (pieces + 1), number of cold edges before each piece, and in total.
    values_path: file for the values of a block.
    """

    first_row: int
    sources_path: Path
    before: NDArray[np.uint64]
    values_path: Path

    @property
    def num_edges(self) -> int:
        """Number of cold edges."""
        return int(self.before[-1])


class Written(NamedTuple):
    """The result of a pass.

    sum: what the written pages add to the checksum of the table.
    bad_rows: int64, the first rows with values that are not finite.
    """

    sum: int
    bad_rows: NDArray[np.int64]


class Product:
    """Multiplies blocks, which are stored in `memory`, with the matrix of some lists.

    num_sources: highest source in the lists + 1, as far as known. staging_bytes: other memory, at most 1 MiB or a
    multiple of 2 MiB.
    """

    def __init__(
        self,
        engine: Engine,
        lists: Lists,
        threads: int,
        staging_bytes: int,
        memory: NDArray[np.float32],
        num_sources: int,
    ) -> None:
        self._memory = memory
        self._num_nodes = lists.num_nodes
        self.num_sources = num_sources
        self._block = ColumnBlock(memory, 0, TILE_COLUMNS)
        self._cold: ColdEdges | None = None
        self._pass = PropagationPass(
            engine,
            File(str(lists.indptr_path), "read"),
            lists.indptr_offset,
            File(str(lists.indices_path), "read"),
            lists.indices_offset,
            lists.index_bytes,
            lists.num_nodes,
            lists.num_edges,
            threads,
            staging_bytes,
            _opened(lists.weights_path),
            lists.weights_offset,
        )

    def load(
        self, source: Columns, num_tiles: int, scale: Path | None, *, all_rows: bool, cold: ColdEdges | None = None
    ) -> None:
        """Load columns into the block, each row times its scale. all_rows: also rows that no list names.

        cold: load only rows before its first_row. The other rows are loaded temporarily to compute its values. Raises
        DestinationError, ReadError, WriteError.
        """
        self._cold, columns = cold, TILE_COLUMNS * num_tiles
        num_rows = self._num_nodes if all_rows else self.num_sources
        if cold is not None:
            rows = ColumnBlock(self._memory, num_rows - cold.first_row, columns)
            self._load(source, rows, scale, cold.first_row)
            with destination_errors(cold.values_path):
                self._pass.write_cold_values(
                    File(str(cold.sources_path), "read"), cold.num_edges, rows, cold.first_row,
                    File(str(cold.values_path), "write"),
                )  # fmt: skip
            num_rows = cold.first_row
        self._block = ColumnBlock(self._memory, num_rows, columns)
        self._load(source, self._block, scale, 0)

    def _load(self, source: Columns, block: ColumnBlock, scale: Path | None, first_row: int) -> None:
        self._pass.load(
            File(str(source.path), "read"), _dtype(source.shape), source.shape.num_tiles, source.first_tile,
            block, _opened(scale), first_row,
        )  # fmt: skip

    def run(
        self,
        out: Columns,
        *,
        row_scale: Path,
        product_scale: float,
        self_weight: float,
        addend: Path | None,
        addend_scale: float,
    ) -> Written:
        """Compute and write columns of the next hop.

        out = product_scale * row_scale * (sums + self_weight * block) + addend_scale * addend. Raises DestinationError,
        ReadError, WriteError.
        """
        with destination_errors(out.path):
            counts = self._pass.run(
                self._block,
                File(str(out.path), "write"),
                _dtype(out.shape),
                out.shape.num_tiles,
                out.first_tile,
                row_scale=File(str(row_scale), "read"),
                product_scale=product_scale,
                self_weight=self_weight,
                addend=_opened(addend),
                addend_scale=addend_scale,
                addend_dtype=_dtype(out.shape),
                cold_values=None if self._cold is None else File(str(self._cold.values_path), "read"),
                cold_before=None if self._cold is None else self._cold.before,
            )
        self.num_sources = counts.num_sources
        return Written(counts.stream.written_sum, counts.bad_rows)


def _dtype(shape: TableShape) -> Literal["float32", "float16", "bfloat16"]:
    return cast(Literal["float32", "float16", "bfloat16"], shape.dtype)


def least_staging_bytes(columns: int, item_bytes: int, index_bytes: int, threads: int, weight_bytes: int = 0) -> int:
    """Return the smallest staging memory of a pass over columns that adds another table.

    weight_bytes: bytes of an edge's weight; 0 without weights.
    """
    row_bytes = 4 * columns
    num_sums = min(max(_SUM_BYTES // row_bytes, _FEWEST_SUMS), _MOST_SUMS)
    # Unaligned reads take two more pages: ends of lists, scales, a piece of edges and its weights.
    reads = [8 * (_STRIP_ROWS + 1), 4 * _STRIP_ROWS, PIECE_EDGES * index_bytes]
    reads += [PIECE_EDGES * weight_bytes] if weight_bytes else []
    read_bytes = sum(whole_pages(num_bytes) + 2 * PAGE_BYTES for num_bytes in reads)
    strip_bytes = 2 * _STRIP_ROWS * columns * item_bytes
    return read_bytes + strip_bytes + whole_pages(threads * num_sums * row_bytes + 2 * row_bytes) + PAGE_BYTES


def aligned_bytes(num_bytes: int) -> int:
    """Return the memory of aligned_memory()."""
    return buffer_bytes(num_bytes) if _takes_huge_pages(num_bytes) else num_bytes + PAGE_BYTES


def aligned_memory(num_bytes: int) -> NDArray[np.uint8]:
    """Allocate page-aligned memory, uninitialised: huge pages, unless rounding up costs too much."""
    if _takes_huge_pages(num_bytes):
        return BufferPool(0).take(num_bytes)
    memory = np.empty(num_bytes + PAGE_BYTES, np.uint8)
    return memory[-memory.ctypes.data % PAGE_BYTES :][:num_bytes]


def _takes_huge_pages(num_bytes: int) -> bool:
    return 16 * buffer_bytes(num_bytes) <= 17 * num_bytes


def _opened(path: Path | None) -> File | None:
    return None if path is None else File(str(path), "read")

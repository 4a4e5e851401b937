"""Tables between layers, in a folder of their own each while they are made, and the last ones as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine
from diskhop.hops.make.work_tables import Part, WorkTables
from diskhop.hops.stream.parts import Columns, TileReader, TileWriter
from diskhop.hops.tables import TILE_ROWS, TableShape
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.tasks import TaskTools, WorkFolder

# Rows are made in ranges; a crash costs at most one range.
RANGE_BYTES = 256 << 20
_FILE = "rows"


class LayerTable:
    """A table of tiles under construction. The context waits for writes; columns that are missing are made again.

    range_bytes: bytes of a range, roughly.
    """

    def __init__(
        self, name: str, shape: TableShape, work: WorkFolder, key: str, tools: TaskTools, range_bytes: int = RANGE_BYTES
    ) -> None:
        folder, done = work.stage(name, key), work.stage(f"{name}-done", key)
        self._tables = WorkTables(folder, done, shape, tools)
        self._range_bytes = range_bytes
        self.shape = shape

    def __enter__(self) -> LayerTable:
        self._tables.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._tables.__exit__(None, None, None)

    @property
    def is_complete(self) -> bool:
        """Whether all of it is on disk."""
        return self._tables.is_complete(_FILE)

    def settle(self) -> None:
        """Wait until all written parts are on disk."""
        self._tables.settle()

    def drop(self) -> None:
        """Remove the table, if it exists."""
        self._tables.drop(_FILE)

    def columns(self, first_tile: int, end_tile: int) -> Columns:
        """Return some tiles, to be read."""
        return Columns(self._tables.path(_FILE), self.shape, first_tile, end_tile)

    def missing_ranges(self) -> list[tuple[int, int]]:
        """Return (first row, last row + 1) of the ranges that are missing, of a table that is made by rows."""
        shape = self.shape
        groups = max(1, self._range_bytes // (shape.num_tiles * shape.tile_bytes))
        ranges = row_ranges(shape.num_groups, groups)
        return [
            (first * TILE_ROWS, min(end * TILE_ROWS, shape.num_rows))
            for first, end in ranges
            if not self._tables.is_done(_FILE, Part(0, shape.num_tiles, first, end))
        ]

    def missing_tiles(self) -> list[int]:
        """Return the tiles that are missing, of a table that is made by columns."""
        return self._tables.missing_columns(_FILE)

    def write_rows(
        self, start: int, stop: int, part_rows: int, engine: Engine, threads: int, write: Callable[[TileWriter], None]
    ) -> None:
        """Write rows start to stop of all columns: one of missing_ranges()."""
        groups = Part(0, self.shape.num_tiles, start // TILE_ROWS, -(-stop // TILE_ROWS))
        self._write(groups, part_rows, engine, threads, write)

    def write_tiles(
        self, first: int, end: int, part_rows: int, engine: Engine, threads: int, write: Callable[[TileWriter], None]
    ) -> None:
        """Write all rows of some columns."""
        self._write(Part(first, end, 0, self.shape.num_groups), part_rows, engine, threads, write)

    def _write(
        self, part: Part, part_rows: int, engine: Engine, threads: int, write: Callable[[TileWriter], None]
    ) -> None:
        def make(_path: object) -> int:
            columns = self.columns(part.first_tile, part.end_tile)
            with TileWriter(columns, part_rows, engine, threads) as writer:
                write(writer)
            return 0  # unused: the table is removed again, without a checksum

        self._tables.write(_FILE, part, make)


class TileRows:
    """Some columns of a finished table as rows (see RowTable). Takes moving_bytes()."""

    def __init__(self, columns: Columns, dim: int, part_rows: int, engine: Engine, threads: int) -> None:
        self._columns = columns
        self._part_rows = part_rows
        self._engine = engine
        self._threads = threads
        self.dim = dim

    @property
    def num_rows(self) -> int:
        """See RowTable."""
        return self._columns.shape.num_rows

    def blocks(self, block_rows: int, start: int = 0, stop: int | None = None) -> Iterator[NDArray[np.float32]]:
        """See RowTable."""
        end = self.num_rows if stop is None else stop
        reader = TileReader(self._columns, self._part_rows, self._engine, self._threads)
        block = np.empty((block_rows, self.dim), np.float32)
        filled = 0
        first = start // self._part_rows * self._part_rows
        for part in reader.parts(first, end):
            rows = part[max(0, start - first) :, : self.dim]
            first += self._part_rows
            while len(rows):
                taken = rows[: block_rows - filled]
                block[filled : filled + len(taken)] = taken
                filled += len(taken)
                rows = rows[len(taken) :]
                if filled == block_rows:
                    yield block
                    filled = 0
        if filled:
            yield block[:filled]

"""Tables of tiles as parts of rows: read ahead, and written behind.

A *part* is part_rows rows of one group, in adjacent tiles. Tables here are float32, with tiles of TILE_COLUMNS columns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File, tile_rows, untile_rows
from diskhop.errors import DiskhopError
from diskhop.hops.stream.prefetch import prefetched
from diskhop.hops.tables import PAGE_BYTES, TILE_COLUMNS, TILE_ROWS, TableShape
from diskhop.io.atomic import destination_errors
from diskhop.io.streams import in_pieces
from diskhop.system.memory import buffer_bytes

# Parts in memory at once: one in use, the others in flight.
NUM_SLOTS = 3
TILE_ROW_BYTES = 4 * TILE_COLUMNS

Rows = NDArray[np.float32]


def table_shape(num_rows: int, dim: int) -> TableShape:
    """Return the layout of a table of tiles."""
    return TableShape(num_rows=num_rows, dim=dim, dtype="float32", tile_columns=TILE_COLUMNS)


@dataclass(frozen=True, slots=True)
class Columns:
    """Adjacent tiles of a table.

    path: file of the table.
    shape: layout of the table.
    first_tile: first tile.
    end_tile: last tile + 1.
    """

    path: Path
    shape: TableShape
    first_tile: int
    end_tile: int

    @property
    def num_tiles(self) -> int:
        """Number of tiles."""
        return self.end_tile - self.first_tile

    @property
    def width(self) -> int:
        """Values per row, with those that pad the last tile."""
        return TILE_COLUMNS * self.num_tiles


class _Transfers:
    """Transfers of the parts of some columns, alike for all parts but for where they begin."""

    def __init__(self, columns: Columns, part_rows: int) -> None:
        shape = columns.shape
        self._group_bytes = shape.num_tiles * shape.tile_bytes
        if part_rows == TILE_ROWS:
            self._places, self._lengths = in_pieces(columns.num_tiles * shape.tile_bytes)
            offsets = self._places
        else:
            tiles = np.arange(columns.num_tiles, dtype=np.uint64)
            part_bytes = part_rows * TILE_ROW_BYTES
            self._places, self._lengths = tiles * np.uint64(part_bytes), np.full(len(tiles), part_bytes, np.uint64)
            offsets = tiles * np.uint64(shape.tile_bytes)
        self._offsets = offsets + np.uint64(shape.tile_offset(0, columns.first_tile))

    def of(self, first_row: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
        """Return offsets in the file, lengths and places in a buffer of the transfers of a part."""
        group, row = divmod(first_row, TILE_ROWS)
        start = group * self._group_bytes + row * TILE_ROW_BYTES
        return self._offsets + np.uint64(start), self._lengths, self._places


def moving_bytes(num_tiles: int, part_rows: int) -> int:
    """Return the memory of a TileReader, or of a TileWriter and the rows that it is given."""
    part_bytes = num_tiles * part_rows * TILE_ROW_BYTES
    return NUM_SLOTS * buffer_bytes(part_bytes) + part_bytes


class TileReader:
    """Reads parts of some columns, in order. Takes moving_bytes()."""

    def __init__(self, columns: Columns, part_rows: int, engine: Engine, threads: int) -> None:
        self._columns = columns
        self._transfers = _Transfers(columns, part_rows)
        self._part_rows = part_rows
        self._engine = engine
        self._threads = threads
        self._file = File(str(columns.path), "read", _has_whole_pages(part_rows))
        pool = BufferPool(0)
        num_bytes = columns.num_tiles * part_rows * TILE_ROW_BYTES
        self._slots = [pool.take(num_bytes) for _ in range(NUM_SLOTS)]
        self._rows = np.empty((part_rows, columns.width), np.float32)

    @property
    def width(self) -> int:
        """Values per row."""
        return self._columns.width

    def parts(self, start: int, stop: int, into: Rows | None = None) -> Iterator[Rows]:
        """Yield rows start to stop, (part_rows, width); start is a multiple of part_rows.

        A part is valid until the next one is requested. into: rows of the same width to fill instead, from row `start`
        on, which parts are then views of.
        """

        def submit(first: int, slot: int) -> int:
            offsets, lengths, places = self._transfers.of(first)
            return self._engine.submit_read(self._file, offsets, lengths, self._slots[slot], places)

        for first, slot in prefetched(self._engine, range(start, stop, self._part_rows), submit, NUM_SLOTS):
            count = min(self._part_rows, stop - first)
            out = self._rows[:count] if into is None else into[first - start : first - start + count]
            tiles = self._slots[slot].reshape(self._columns.num_tiles, -1)
            untile_rows(tiles, TILE_ROW_BYTES, None, out.view(np.uint8), self._threads)
            yield out


class TileWriter:
    """Writes parts of some columns of an allocated table, in order; the context waits. Takes moving_bytes().

    What is written is on disk after an fsync.
    """

    def __init__(self, columns: Columns, part_rows: int, engine: Engine, threads: int) -> None:
        self._columns = columns
        self._transfers = _Transfers(columns, part_rows)
        self._engine = engine
        self._threads = threads
        with destination_errors(columns.path):
            self._file = File(str(columns.path), "write", _has_whole_pages(part_rows))
        pool = BufferPool(0)
        self._slots = [pool.take(columns.num_tiles * part_rows * TILE_ROW_BYTES) for _ in range(NUM_SLOTS)]
        self._tickets: list[int | None] = [None] * NUM_SLOTS
        self._next = 0

    def write(self, first_row: int, rows: Rows) -> None:
        """Write a part, contiguous (rows, columns up to the last tile); it may be used again afterwards."""
        slot, self._next = self._next, (self._next + 1) % NUM_SLOTS
        self._wait(slot)
        buffer = self._slots[slot]
        content = np.ascontiguousarray(rows).view(np.uint8)
        tile_rows(content, buffer.reshape(self._columns.num_tiles, -1), TILE_ROW_BYTES, self._threads)
        offsets, lengths, places = self._transfers.of(first_row)
        with destination_errors(self._columns.path):
            self._tickets[slot] = self._engine.submit_write(self._file, offsets, lengths, buffer, places)

    def __enter__(self) -> TileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for slot in range(NUM_SLOTS):
            if error is None:
                self._wait(slot)
            else:  # the engine may still read from the buffers
                with contextlib.suppress(DiskhopError, OSError):
                    self._wait(slot)
        del self._file

    def _wait(self, slot: int) -> None:
        ticket, self._tickets[slot] = self._tickets[slot], None
        if ticket is not None:
            with destination_errors(self._columns.path):
                self._engine.wait(ticket)


def _has_whole_pages(part_rows: int) -> bool:
    return part_rows * TILE_ROW_BYTES % PAGE_BYTES == 0

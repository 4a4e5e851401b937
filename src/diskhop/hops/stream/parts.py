"""Tables of bands as parts of rows: read ahead, and written behind.

Rows are stored in *groups* of TILE_ROWS. A group is divided into *bands* of adjacent columns, float32, row after row: a
band of all rows lies in memory as on disk. A *part* is part_rows rows in adjacent bands, of one group or of whole ones.
A table may store only some rows of each group, one after the other where the group begins; its parts are whole groups.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File
from diskhop.errors import DiskhopError
from diskhop.hops.stream.prefetch import prefetched
from diskhop.hops.tables import PAGE_BYTES, TILE_COLUMNS, TILE_ROWS, whole_pages
from diskhop.io.atomic import destination_errors
from diskhop.io.streams import READ_BYTES
from diskhop.system.memory import buffer_bytes

# Parts in memory at once: one in use, the others in flight.
NUM_SLOTS = 3
# Stored rows of a group are a multiple of this: whole pages, whatever the columns.
_STORED_ROWS = PAGE_BYTES // (4 * TILE_COLUMNS)
# Groups of a band that are read into memory together.
_GROUPS_AT_ONCE = 32

Rows = NDArray[np.float32]
_Places = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]
# (group, first row in it, rows) of adjacent rows. Groups are counted from the first one.
_Spans = tuple[tuple[int, int, int], ...]


def stored_rows(num_rows: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return how many rows of each group are stored, if some of them are to be."""
    return np.minimum(TILE_ROWS, -(-num_rows // _STORED_ROWS) * _STORED_ROWS)


@dataclass(frozen=True, slots=True)
class BandShape:
    """Layout of a table.

    num_rows: rows.
    widths: columns of each band.
    stored: stored_rows() of each group; None if all rows are stored.
    """

    num_rows: int
    widths: tuple[int, ...]
    stored: NDArray[np.int32] | None = field(default=None, compare=False)

    @property
    def num_groups(self) -> int:
        """Number of groups; the last one may have fewer rows."""
        return -(-self.num_rows // TILE_ROWS)

    @property
    def num_tiles(self) -> int:
        """Bands per group (see WorkShape)."""
        return len(self.widths)

    @property
    def group_bytes(self) -> int:
        """Bytes of a group."""
        return 4 * TILE_ROWS * sum(self.widths)

    @property
    def num_bytes(self) -> int:
        """Bytes of the file: whole groups."""
        return self.num_groups * self.group_bytes

    def offset(self, first_row: int, band: int) -> int:
        """Return the offset of a row of a band in the file."""
        group, row = divmod(first_row, TILE_ROWS)
        return group * self.group_bytes + 4 * (TILE_ROWS * sum(self.widths[:band]) + row * self.widths[band])

    def spans(self, first_row: int, num_rows: int) -> _Spans:
        """Return the stored rows among some rows, group by group."""
        begin, stop = first_row // TILE_ROWS, first_row + num_rows
        groups = range(begin, -(-stop // TILE_ROWS))
        if self.stored is not None:
            return tuple((group - begin, 0, int(self.stored[group])) for group in groups)
        starts = [max(first_row, group * TILE_ROWS) for group in groups]
        return tuple(
            (group - begin, start - group * TILE_ROWS, min(stop, (group + 1) * TILE_ROWS) - start)
            for group, start in zip(groups, starts, strict=True)
        )

    def num_stored(self, first_row: int, num_rows: int) -> int:
        """Return how many of some rows are stored."""
        return num_rows if self.stored is None else sum(count for _, _, count in self.spans(first_row, num_rows))


@dataclass(frozen=True, slots=True)
class Bands:
    """Adjacent bands of a table.

    path: file of the table.
    shape: layout of the table.
    first: first band.
    end: last band + 1.
    """

    path: Path
    shape: BandShape
    first: int
    end: int

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of each band."""
        return self.shape.widths[self.first : self.end]

    @property
    def width(self) -> int:
        """Columns of all bands."""
        return sum(self.widths)

    def transfers(self, first_row: int, num_rows: int, buffer_rows: int) -> _Places:
        """Return offsets in the file, lengths, and places in a buffer of some rows, in which bands have buffer_rows."""
        spans, first_group = self.shape.spans(first_row, num_rows), first_row // TILE_ROWS
        offsets, lengths, places = _transfers(self.shape.widths, self.first, self.end, spans, buffer_rows)
        return offsets + np.uint64(first_group * self.shape.group_bytes), lengths, places

    def open(self, mode: Literal["read", "write"], part_rows: int) -> File:
        """Open the file for parts of some rows. Pages of the disk are not cached, unless parts are no whole pages."""
        return File(str(self.path), mode, all(4 * part_rows * width % PAGE_BYTES == 0 for width in self.widths))


@lru_cache(maxsize=256)
def _transfers(widths: tuple[int, ...], first_band: int, end_band: int, spans: _Spans, buffer_rows: int) -> _Places:
    """Return transfers() of spans that begin in the first group. A pass asks for the same ones of many groups."""
    shape = BandShape(0, widths)
    found = []
    for band in range(first_band, end_band):
        place, row_bytes = 4 * buffer_rows * sum(widths[first_band:band]), 4 * widths[band]
        for group, row, num_rows in spans:
            offset, num_bytes = shape.offset(group * TILE_ROWS + row, band), num_rows * row_bytes
            found += [
                (offset + start, min(READ_BYTES, num_bytes - start), place + start)
                for start in range(0, num_bytes, READ_BYTES)
            ]
            place += num_bytes
    transfers = np.array(found, np.uint64).reshape(-1, 3).T.copy()
    transfers.flags.writeable = False
    offsets, lengths, places = transfers
    return offsets, lengths, places


def moved_rows(num_rows: int, part_rows: int) -> int:
    """Return the rows that are read or written for the next num_rows: whole pages, or a whole part."""
    rows = min(part_rows, TILE_ROWS)
    return min(part_rows, -(-num_rows // rows) * rows)


def moving_bytes(num_columns: int, num_rows: int) -> int:
    """Return the memory of a BandReader or BandWriter of parts of num_rows."""
    return NUM_SLOTS * buffer_bytes(4 * num_columns * num_rows)


class _Slot:
    """Memory of num_rows rows of some bands, one band after the other."""

    def __init__(self, pool: BufferPool, widths: Sequence[int], num_rows: int) -> None:
        self.content = pool.take(4 * sum(widths) * num_rows)
        starts = [0, *accumulate(4 * num_rows * width for width in widths)]
        self._bands = [
            self.content[start : start + 4 * num_rows * width].view(np.float32).reshape(num_rows, width)
            for start, width in zip(starts, widths, strict=False)
        ]

    def rows(self, num_rows: int) -> list[Rows]:
        """Return the first rows of each band."""
        return [band[:num_rows] for band in self._bands]

    def clear(self, num_rows: int) -> None:
        """Fill the rows behind the first ones with zeros."""
        for band in self._bands:
            band[num_rows:] = 0


class BandReader:
    """Reads parts of some bands, in order. Takes moving_bytes() from a pool."""

    def __init__(self, bands: Bands, part_rows: int, engine: Engine, pool: BufferPool) -> None:
        self._bands = bands
        self._part_rows = part_rows
        self._engine = engine
        self._file = bands.open("read", part_rows)
        self._slots = [_Slot(pool, bands.widths, part_rows) for _ in range(NUM_SLOTS)]

    def parts(self, firsts: Iterable[int], stop: int) -> Iterator[list[Rows]]:
        """Yield the stored rows of parts, given the first row of each, up to row stop: (rows, columns) of each band.

        First rows are multiples of part_rows. A part is valid until the next one is requested.
        """

        def submit(first: int, slot: int) -> int:
            # Files have whole groups, so that more than the last rows can be read.
            num_rows = moved_rows(stop - first, self._part_rows)
            offsets, lengths, places = self._bands.transfers(first, num_rows, self._part_rows)
            return self._engine.submit_read(self._file, offsets, lengths, self._slots[slot].content, places)

        for first, slot in prefetched(self._engine, firsts, submit, NUM_SLOTS):
            yield self._slots[slot].rows(self._bands.shape.num_stored(first, min(self._part_rows, stop - first)))


class BandWriter:
    """Writes parts of rows of some bands of an allocated table; the context waits. Takes moving_bytes() from a pool.

    has_padding: whether columns stay unwritten, as zeros. What is written is on disk after an fsync.
    """

    def __init__(
        self, bands: Bands, part_rows: int, engine: Engine, pool: BufferPool, *, has_padding: bool = True
    ) -> None:
        self._bands = bands
        self._part_rows = part_rows
        self._engine = engine
        with destination_errors(bands.path):
            self._file = bands.open("write", part_rows)
        self._slots = [_Slot(pool, bands.widths, part_rows) for _ in range(NUM_SLOTS)]
        for slot in self._slots if has_padding else ():
            slot.clear(0)
        self._tickets: list[int | None] = [None] * NUM_SLOTS
        self._next = 0

    def rows(self, num_rows: int) -> list[Rows]:
        """Return memory of the next part, (rows, columns) of each band, which write() writes.

        What is not written is zeros, or what was written to it for other rows.
        """
        self._wait(self._next)
        return self._slots[self._next].rows(num_rows)

    def write(self, first_row: int, num_rows: int) -> None:
        """Write what the memory of rows() has now: the stored ones of some rows, from a multiple of part_rows on."""
        number, self._next = self._next, (self._next + 1) % NUM_SLOTS
        slot = self._slots[number]
        whole_rows = moved_rows(num_rows, self._part_rows)
        if num_rows < whole_rows and self._bands.shape.stored is None:
            slot.clear(num_rows)
        offsets, lengths, places = self._bands.transfers(first_row, whole_rows, self._part_rows)
        with destination_errors(self._bands.path):
            self._tickets[number] = self._engine.submit_write(self._file, offsets, lengths, slot.content, places)

    def __enter__(self) -> BandWriter:
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
            with destination_errors(self._bands.path):
                self._engine.wait(ticket)


def band_bytes(num_rows: int, width: int) -> int:
    """Return the bytes that read_band() fills: rows, up to a whole page."""
    return whole_pages(4 * num_rows * width)


def read_band(band: Bands, num_rows: int, into: NDArray[np.uint8], engine: Engine) -> None:
    """Read the first rows of one band, contiguous, into page-aligned memory of band_bytes()."""
    file = band.open("read", TILE_ROWS)

    def submit(first: int, _: int) -> int:
        rows = min(_GROUPS_AT_ONCE * TILE_ROWS, num_rows - first)
        offsets, lengths, places = band.transfers(first, rows, rows)
        whole = lengths.copy()
        if len(whole):
            whole[-1] = whole_pages(int(whole[-1]))
        return engine.submit_read(file, offsets, whole, into, places + np.uint64(4 * first * band.width))

    for _ in prefetched(engine, range(0, num_rows, _GROUPS_AT_ONCE * TILE_ROWS), submit, NUM_SLOTS):
        pass

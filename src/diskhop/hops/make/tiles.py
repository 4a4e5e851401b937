"""Streaming between feature rows and tiles: everything that happens to a hop table except the product.

A *part* is some rows of one group, all of them if memory allows. Parts are prefetched into *slots*, buffers that are
reused round-robin; nothing else of a table is in memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File, tile_rows, untile_rows
from diskhop.dataset.encoding import decode_rows, encode_rows, too_large
from diskhop.errors import ConfigError, DiskhopError
from diskhop.hops.tables import PAGE_BYTES, TILE_ROWS, TableShape, TableSum, whole_pages
from diskhop.io.atomic import destination_errors
from diskhop.io.streams import SequentialWriter, in_pieces
from diskhop.io.values import read_values
from diskhop.protocols import Bytes, NodeIds, Table
from diskhop.system.memory import buffer_bytes

# Parts this small are not whole pages per tile, so they use the page cache. Only if memory is short.
_LEAST_PART_ROWS = 4
_SUMMED_BYTES = 256 << 10
_MOST_SLOTS = 4
_LEAST_SLOTS = 2
# Memory of converting a value: decoded, checked, encoded.
_CONVERTING_BYTES_PER_VALUE = 16
# Write buffer of an extraction.
_WRITER_BYTES = 2 << 20
_SHOWN_NODES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Buffers for parts.

    part_rows: rows per part.
    num_slots: parts in memory at once.
    num_bytes: memory of all buffers.
    """

    part_rows: int
    num_slots: int
    num_bytes: int


def plan_cut_slots(table: Table, feature_dtype: str, shape: TableShape, memory_bytes: int) -> Slots:
    """Plan the slots of TileCutter; the smallest possible ones if memory is too short."""
    converted_bytes = _CONVERTING_BYTES_PER_VALUE * shape.dim if feature_dtype != shape.dtype else 0

    def needed_bytes(part_rows: int, num_slots: int) -> int:
        slot_bytes = rows_buffer_bytes(table.row_stride, part_rows) + _tiles_buffer_bytes(shape, part_rows)
        # Strided rows are copied.
        return num_slots * slot_bytes + part_rows * (converted_bytes + table.row_bytes)

    return _plan_slots(shape, memory_bytes, needed_bytes)


def plan_extraction_slots(shape: TableShape, num_rows: int, memory_bytes: int) -> Slots:
    """Plan the slots of extract_rows() for num_rows rows, including their ids."""

    def needed_bytes(part_rows: int, num_slots: int) -> int:
        part_bytes = part_rows * shape.row_bytes
        writer_bytes = 2 * buffer_bytes(_writer_bytes(part_bytes))
        return num_slots * _tiles_buffer_bytes(shape, part_rows) + part_bytes + writer_bytes + 8 * num_rows

    return _plan_slots(shape, memory_bytes, needed_bytes)


class TileCutter:
    """Writes the rows of a feature table as tiles, in the dtype of the shape."""

    def __init__(
        self, table: Table, feature_dtype: str, shape: TableShape, slots: Slots, engine: Engine, threads: int
    ) -> None:
        self._table = table
        self._feature_dtype = feature_dtype
        self._shape = shape
        self._part_rows = slots.part_rows
        self._num_slots = slots.num_slots
        self._engine = engine
        self._threads = threads

    def write_tiles(self, path: Path, first_group: int, end_group: int) -> int:
        """Write groups of a table's file. Returns what their pages add to its checksum.

        Raises BadRowsError for values that are not finite, or out of the range of the dtype.
        """
        shape, pool = self._shape, BufferPool(0)
        has_pages = _has_whole_pages(shape, self._part_rows)
        source = File(str(self._table.path), "read")
        with destination_errors(path):
            target = File(str(path), "write", has_pages)
        starts = range(first_group * TILE_ROWS, min(end_group * TILE_ROWS, shape.num_rows), self._part_rows)
        rows_bytes = rows_buffer_bytes(self._table.row_stride, self._part_rows)
        rows = [pool.take(rows_bytes) for _ in range(self._num_slots)]
        tiles = [pool.take(_part_bytes(shape, self._part_rows)) for _ in range(self._num_slots)]
        table_sum = TableSum()
        reads: dict[int, tuple[int, Bytes]] = {}
        writes: dict[int, int] = {}

        def read(number: int) -> None:
            if number < len(starts):
                reads[number] = self._submit_read(source, starts[number], rows[number % self._num_slots])

        with _waited_for(self._engine, reads, writes):
            for number in range(self._num_slots - 1):
                read(number)
            for number, start in enumerate(starts):
                read(number + self._num_slots - 1)
                ticket, given = reads.pop(number)
                self._engine.wait(ticket)
                content = self._encoded(given, start)
                if number >= self._num_slots:
                    self._wait_write(path, writes.pop(number - self._num_slots))
                part = tiles[number % self._num_slots]
                tile_rows(content, part.reshape(shape.num_tiles, -1), shape.tile_row_bytes, self._threads)
                offsets, lengths, _, places = requests = _requests(shape, start, self._part_rows, part)
                if has_pages:
                    _add_part(table_sum, offsets, lengths, part, places)
                with destination_errors(path):
                    writes[number] = self._engine.submit_write(target, *requests)
            for number in sorted(writes):
                self._wait_write(path, writes.pop(number))
        if not has_pages:
            return sum_pages(path, shape.tile_offset(first_group, 0), shape.tile_offset(end_group, 0)).total
        tiles[0][:] = 0  # rest of the last group, which has no rows
        for start in range(starts.stop + -starts.stop % self._part_rows, end_group * TILE_ROWS, self._part_rows):
            offsets, lengths, _, places = _requests(shape, start, self._part_rows, tiles[0])
            _add_part(table_sum, offsets, lengths, tiles[0], places)
        return table_sum.total

    def _wait_write(self, path: Path, ticket: int) -> None:
        with destination_errors(path):
            self._engine.wait(ticket)

    def _submit_read(self, source: File, first_row: int, buffer: Bytes) -> tuple[int, Bytes]:
        """Submit the read of a part. Returns a ticket, and the view of its rows once the ticket is done."""
        num_rows = min(self._part_rows, self._shape.num_rows - first_row)
        reads = plan_row_reads(self._table, first_row, num_rows, source.offset_alignment)
        ticket = self._engine.submit_read(source, reads.offsets, reads.lengths, buffer, reads.places, reads.required)
        return ticket, buffer[reads.skipped_bytes :][: num_rows * self._table.row_stride]

    def _encoded(self, content: Bytes, first_row: int) -> Bytes:
        """Decode, check and encode rows. Returns (rows, row bytes) as stored."""
        table, shape = self._table, self._shape
        num_rows = -(-len(content) // table.row_stride)
        rows = np.lib.stride_tricks.as_strided(content, (num_rows, table.row_bytes), (table.row_stride, 1))
        is_whole = table.row_stride == table.row_bytes
        # Contiguous and aligned for numbers, unlike rows in a slot.
        if not is_whole or content.ctypes.data % 4:
            rows = rows.copy()
        values = decode_rows(rows, self._feature_dtype, shape.dim)
        # Fast check: the sum is finite only if all values are. It may overflow, so then every value is checked.
        with np.errstate(over="ignore", invalid="ignore"):
            looks_bad = not np.isfinite(values.sum(dtype=np.float32))
        if looks_bad:
            what = "values that are not finite (NaN or infinite)"
            self._require(np.isfinite(values), first_row, what, "correct their features and import them again")
        if self._feature_dtype == shape.dtype:
            return rows
        fits = ~too_large(values, shape.dtype)
        self._require(fits, first_row, f"values too large for {shape.dtype}", "use --dtype float32 or bfloat16")
        return encode_rows(values, shape.dtype)

    def _require(self, is_good: NDArray[np.bool_], first_row: int, what: str, remedy: str) -> None:
        is_bad = ~is_good.all(axis=1)
        if is_bad.any():
            raise BadRowsError(what, remedy, first_row + np.flatnonzero(is_bad))


class RowReads(NamedTuple):
    """Requests for consecutive rows of a table, all uint64.

    offsets: offset of each request in the file.
    lengths: bytes of each request.
    places: destination of each request in the buffer.
    required: bytes of each request that the file must have.
    skipped_bytes: bytes in the buffer before the first row.
    """

    offsets: NDArray[np.uint64]
    lengths: NDArray[np.uint64]
    places: NDArray[np.uint64]
    required: NDArray[np.uint64]
    skipped_bytes: int


def plan_row_reads(table: Table, first_row: int, num_rows: int, alignment: int) -> RowReads:
    """Plan the requests for rows; they begin and end at multiples of `alignment`, in the file and in the buffer."""
    begin = first_row * table.row_stride
    end = begin + (num_rows - 1) * table.row_stride + table.row_bytes
    alignment = max(1, alignment)
    start = begin // alignment * alignment
    places, lengths = in_pieces(-(-(end - start) // alignment) * alignment)
    required = np.minimum(np.uint64(end - start) - places, lengths)
    return RowReads(places + np.uint64(start), lengths, places, required, begin - start)


def rows_buffer_bytes(row_stride: int, num_rows: int) -> int:
    """Return the memory of a buffer for plan_row_reads()."""
    # Reads begin and end at the alignment of the disk.
    return buffer_bytes(num_rows * row_stride + 2 * PAGE_BYTES)


class BadRowsError(ConfigError):
    """Rows with invalid values; `rows` are the numbers of the first ones found, ascending."""

    def __init__(self, what: str, remedy: str, rows: NodeIds) -> None:
        super().__init__(f"rows {format_ids(rows)} have {what}; {remedy}")
        self.what = what
        self.remedy = remedy
        self.rows = rows


def format_ids(ids: NodeIds) -> str:
    """Format the first few ids for an error message."""
    more = ", ..." if len(ids) > _SHOWN_NODES else ""
    return ", ".join(str(each) for each in ids[:_SHOWN_NODES]) + more


def extract_rows(
    source: Path, shape: TableShape, rows: NodeIds, path: Path, slots: Slots, engine: Engine, threads: int
) -> None:
    """Copy rows (ascending) of a table of tiles into a new file of contiguous rows, padded to a page with zeros."""
    file, pool = File(str(source), "read", _has_whole_pages(shape, slots.part_rows)), BufferPool(0)
    starts = np.unique(rows // slots.part_rows) * slots.part_rows
    tiles = [pool.take(_part_bytes(shape, slots.part_rows)) for _ in range(slots.num_slots)]
    part_bytes = slots.part_rows * shape.row_bytes
    content = np.empty((slots.part_rows, shape.row_bytes), np.uint8)
    reads: dict[int, tuple[int, Bytes]] = {}

    def read(number: int) -> None:
        if number < len(starts):
            part = tiles[number % slots.num_slots]
            offsets, lengths, _, places = _requests(shape, int(starts[number]), slots.part_rows, part)
            reads[number] = engine.submit_read(file, offsets, lengths, part, places), part

    writer = SequentialWriter(path, engine, pool, buffer_bytes=_writer_bytes(part_bytes))
    with writer, _waited_for(engine, reads, {}):
        for number in range(slots.num_slots - 1):
            read(number)
        for number, start in enumerate(starts):
            read(number + slots.num_slots - 1)
            ticket, part = reads.pop(number)
            engine.wait(ticket)
            wanted = rows[np.searchsorted(rows, start) : np.searchsorted(rows, start + slots.part_rows)] - start
            out = content[: len(wanted)]
            untile_rows(part.reshape(shape.num_tiles, -1), shape.tile_row_bytes, wanted, out, threads)
            writer.append(out.reshape(-1))
        writer.append(np.zeros(row_major(shape, len(rows)).num_bytes - len(rows) * shape.row_bytes, np.uint8))
        writer.finish()


def sum_pages(path: Path, start: int, end: int) -> TableSum:
    """Read pages start to end of a file and return what they add to its checksum."""
    table_sum = TableSum()
    for offset in range(start, end, _SUMMED_BYTES):
        table_sum.add(offset, read_values(path, np.uint8, min(_SUMMED_BYTES, end - offset), offset))
    return table_sum


def _add_part(
    table_sum: TableSum,
    offsets: NDArray[np.uint64],
    lengths: NDArray[np.uint64],
    part: Bytes,
    places: NDArray[np.uint64],
) -> None:
    for offset, length, place in zip(offsets.tolist(), lengths.tolist(), places.tolist(), strict=True):
        table_sum.add(offset, part[place : place + length])


def _requests(
    shape: TableShape, first_row: int, part_rows: int, part: Bytes
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], Bytes, NDArray[np.uint64]]:
    """Return the offsets, lengths, buffer and places in the buffer of the transfers of a part."""
    group, row = divmod(first_row, TILE_ROWS)
    if part_rows == TILE_ROWS:
        places, lengths = in_pieces(len(part))
        return places + np.uint64(shape.tile_offset(group, 0)), lengths, part, places
    part_bytes = part_rows * shape.tile_row_bytes
    tiles = np.arange(shape.num_tiles, dtype=np.uint64)
    first = shape.tile_offset(group, 0) + row * shape.tile_row_bytes
    offsets = tiles * np.uint64(shape.tile_bytes) + np.uint64(first)
    return offsets, np.full(len(tiles), part_bytes, np.uint64), part, tiles * np.uint64(part_bytes)


@contextlib.contextmanager
def _waited_for(engine: Engine, reads: dict[int, tuple[int, Bytes]], writes: dict[int, int]) -> Iterator[None]:
    """Wait for all transfers at the end of the context, also after errors."""
    try:
        yield
    finally:
        for ticket in [*(ticket for ticket, _ in reads.values()), *writes.values()]:
            with contextlib.suppress(DiskhopError, OSError):
                engine.wait(ticket)


def row_major(shape: TableShape, num_rows: int) -> TableShape:
    """Return the shape of a table of num_rows contiguous rows."""
    return replace(shape, num_rows=num_rows, tile_columns=shape.dim)


def _plan_slots(shape: TableShape, memory_bytes: int, needed_bytes: Callable[[int, int], int]) -> Slots:
    part_rows = TILE_ROWS
    while needed_bytes(part_rows, _LEAST_SLOTS) > memory_bytes and part_rows > _LEAST_PART_ROWS:
        part_rows //= 2
    num_slots = next(
        (more for more in range(_MOST_SLOTS, _LEAST_SLOTS, -1) if needed_bytes(part_rows, more) <= memory_bytes),
        _LEAST_SLOTS,
    )
    return Slots(part_rows=part_rows, num_slots=num_slots, num_bytes=needed_bytes(part_rows, num_slots))


def _has_whole_pages(shape: TableShape, part_rows: int) -> bool:
    return part_rows * shape.tile_row_bytes % PAGE_BYTES == 0


def _part_bytes(shape: TableShape, part_rows: int) -> int:
    return shape.num_tiles * part_rows * shape.tile_row_bytes


def _tiles_buffer_bytes(shape: TableShape, part_rows: int) -> int:
    return buffer_bytes(_part_bytes(shape, part_rows))


def _writer_bytes(part_bytes: int) -> int:
    """Return the size of each of a writer's two buffers: whole pages."""
    return whole_pages(min(_WRITER_BYTES, part_bytes))

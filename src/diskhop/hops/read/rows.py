"""Sources of hop table rows: `memory`, loaded once, or `disk`, in large direct reads.

Both fetch the rows of a batch from all tables into a `BatchBuffer`, on a background thread, one batch at a time:
    begin() returns a ticket and finish() waits for it. Both return the same bytes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File, copy_rows, untile_rows
from diskhop.counters import FetchCounts
from diskhop.errors import FormatError, PipelineError
from diskhop.hops.read.strips import Reads, Strip, plan_strips, reads_in_place, slot_bytes, split_reads
from diskhop.hops.tables import TILE_ROWS, HopTables, TableShape, TableSum, whole_pages
from diskhop.protocols import Bytes
from diskhop.system.memory import buffer_bytes
from diskhop.system.resident import Part, ResidentMemory

# Strips in flight, each of several requests.
_NUM_SLOTS = 8
# Bytes per transfer when a table of contiguous rows is loaded.
_PART_BYTES = 16 << 20

Rows = NDArray[np.int64]
Ticket = Future[FetchCounts]


class BatchBuffer:
    """Memory for a batch: the contiguous rows of each table, up to a whole page.

    take: returns memory of some bytes.
    """

    def __init__(self, take: Callable[[int], Bytes], num_tables: int, num_rows: int, shape: TableShape) -> None:
        self._shape = shape
        self.table_bytes = table_bytes(num_rows, shape)
        self.memory = take(num_tables * self.table_bytes)
        self.num_tables = num_tables

    def rows(self, table: int, num_rows: int) -> Bytes:
        """Return the rows of a table, uint8 (rows, row bytes)."""
        start = table * self.table_bytes
        return self.memory[start : start + num_rows * self._shape.row_bytes].reshape(num_rows, self._shape.row_bytes)

    def values(self, num_rows: int) -> NDArray[np.uint8]:
        """Return the rows of all tables, uint8 (tables, rows, row bytes)."""
        whole = self.memory[: self.num_tables * self.table_bytes].reshape(self.num_tables, self.table_bytes)
        return np.lib.stride_tricks.as_strided(
            whole,
            (self.num_tables, num_rows, self._shape.row_bytes),
            (self.table_bytes, self._shape.row_bytes, 1),
        )


def table_bytes(num_rows: int, shape: TableShape) -> int:
    """Return the memory of num_rows rows of a table: whole pages, for direct reads."""
    return whole_pages(num_rows * shape.row_bytes)


class RowSource(Protocol):
    """Rows of some tables of a folder. Not thread-safe."""

    def begin(self, rows: Rows, buffer: BatchBuffer) -> Ticket:
        """Start to fetch rows (int64, each once) into a buffer, which must not be used until finish()."""

    def finish(self, ticket: Ticket) -> FetchCounts:
        """Wait for the rows. Raises ReadError with file and offset if a read failed."""

    def abandon(self, tickets: Sequence[Ticket]) -> None:
        """Cancel tickets; returns once nothing writes to their buffers any more."""

    def close(self) -> None:
        """Release all resources; no ticket may be in flight."""


class _AbandonedError(PipelineError):
    """The result of a cancelled ticket."""


class _BackgroundThread:
    """A background thread that runs jobs in order, shared by both sources."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "hop-rows")
        self._is_abandoned = threading.Event()

    def finish(self, ticket: Ticket) -> FetchCounts:
        return ticket.result()

    def abandon(self, tickets: Sequence[Ticket]) -> None:
        self._is_abandoned.set()
        for ticket in tickets:
            # The result, or error, of a cancelled ticket is irrelevant.
            ticket.exception()
        self._is_abandoned.clear()

    def close(self) -> None:
        self._thread.shutdown()

    def _check_not_abandoned(self) -> None:
        if self._is_abandoned.is_set():
            raise _AbandonedError("the rows are not needed any more")


class DiskRows(_BackgroundThread):
    """Reads rows in place if they are contiguous and aligned, else through staging slots."""

    def __init__(
        self,
        tables: HopTables,
        which: Sequence[int],
        engine: Engine,
        pool: BufferPool,
        *,
        max_gap_bytes: int,
        num_threads: int,
    ) -> None:
        super().__init__()
        self._shape = tables.shape
        self._engine = engine
        self._files = [File(str(tables.table_path(table)), "read") for table in which]
        self._alignment = max(max(file.offset_alignment, file.memory_alignment) for file in self._files)
        self._max_gap_bytes = max_gap_bytes
        self._num_threads = num_threads
        self._slots = [pool.take(slot_bytes(self._shape)) for _ in range(_NUM_SLOTS)]

    @staticmethod
    def staging_bytes(shape: TableShape) -> int:
        """Return the memory of the source besides buffers."""
        return _NUM_SLOTS * buffer_bytes(slot_bytes(shape))

    def begin(self, rows: Rows, buffer: BatchBuffer) -> Ticket:
        """See RowSource."""
        begin = time.perf_counter()
        reads = reads_in_place(rows, self._shape, self._alignment)
        if reads is None:
            return self._thread.submit(self._read_strips, rows, buffer, begin)
        # Submitted at once, so that the disk gets the next batch before it has finished this one.
        tickets: list[int] = []
        try:
            for table, file in enumerate(self._files):
                tickets.append(_submit(self._engine, file, reads, buffer.memory, table * buffer.table_bytes))
        except BaseException:
            with contextlib.suppress(Exception):
                _wait_for_all(self._engine, tickets)
            raise
        counts = self._counts(rows, len(tickets) * len(reads.offsets), len(tickets) * int(reads.num_bytes.sum()))
        return self._thread.submit(self._wait_for_reads, tickets, counts, begin)

    def close(self) -> None:
        """See RowSource."""
        super().close()
        self._slots = []

    def _counts(self, rows: Rows, reads: int, bytes_read: int) -> FetchCounts:
        num_rows = len(rows) * len(self._files)
        return FetchCounts(
            rows_requested=num_rows,
            reads=reads,
            bytes_read=bytes_read,
            bytes_needed=num_rows * self._shape.row_bytes,
        )

    def _wait_for_reads(self, tickets: list[int], counts: FetchCounts, begin: float) -> FetchCounts:
        _wait_for_all(self._engine, tickets)
        counts.seconds = time.perf_counter() - begin
        return counts

    def _read_strips(self, rows: Rows, buffer: BatchBuffer, begin: float) -> FetchCounts:
        strips = plan_strips(rows, self._shape, max_gap_bytes=self._max_gap_bytes, alignment=self._alignment)
        wanted = [(table, strip) for table in range(len(self._files)) for strip in strips]
        counts = self._counts(rows, 0, 0)
        in_flight: deque[tuple[int, int, Strip, Bytes]] = deque()
        try:
            for number, (table, strip) in enumerate(wanted):
                self._check_not_abandoned()
                slot = self._slots[number % _NUM_SLOTS]
                if len(in_flight) == _NUM_SLOTS:
                    self._take_strip(in_flight, buffer, len(rows), counts)
                ticket = _submit(self._engine, self._files[table], strip.reads, slot, 0)
                in_flight.append((ticket, table, strip, slot))
                counts.reads += len(strip.reads.offsets)
                counts.bytes_read += int(strip.reads.num_bytes.sum())
            while in_flight:
                self._take_strip(in_flight, buffer, len(rows), counts)
        finally:
            # The engine may still write to a slot.
            with contextlib.suppress(Exception):
                _wait_for_all(self._engine, [ticket for ticket, *_ in in_flight])
        counts.seconds = time.perf_counter() - begin
        return counts

    def _take_strip(
        self,
        in_flight: deque[tuple[int, int, Strip, Bytes]],
        buffer: BatchBuffer,
        num_rows: int,
        counts: FetchCounts,
    ) -> None:
        ticket, table, strip, slot = in_flight.popleft()
        self._engine.wait(ticket)
        part_bytes = self._shape.tile_row_bytes
        content, rows = slot[: self._shape.num_tiles * strip.tile_bytes], strip.rows
        if strip.skipped_bytes % part_bytes or strip.tile_bytes % part_bytes:
            # Contiguous rows that straddle pages.
            content = content[strip.skipped_bytes :][: (int(rows[-1]) + 1) * part_bytes]
        else:
            rows = rows + strip.skipped_bytes // part_bytes
        tiles = content.reshape(self._shape.num_tiles, -1)
        untile_rows(tiles, part_bytes, rows, buffer.rows(table, num_rows), self._num_threads, strip.to_rows)
        counts.bytes_copied += len(rows) * self._shape.row_bytes


class MemoryRows(_BackgroundThread):
    """Tables in memory, checked against their checksums; a batch indexes each table once.

    resident: memory of the tables. Processes that share it load some of the tables each.
    """

    def __init__(
        self,
        tables: HopTables,
        which: Sequence[int],
        engine: Engine,
        pool: BufferPool,
        resident: ResidentMemory,
        *,
        num_threads: int,
    ) -> None:
        super().__init__()
        self._num_threads = num_threads
        each_bytes = table_bytes(tables.num_rows, tables.shape)

        def load(content: Bytes, part: Part) -> None:
            places = range(len(which))
            for place in places[part.of(len(places))]:
                memory = content[place * each_bytes : (place + 1) * each_bytes]
                _load_table(tables, which[place], memory, engine, pool, num_threads)

        take = partial(resident.make, fill=load)
        self._resident = BatchBuffer(take, len(which), tables.num_rows, tables.shape)
        self._tables = [self._resident.rows(place, tables.num_rows) for place in range(len(which))]

    @staticmethod
    def staging_bytes(shape: TableShape) -> int:
        """Return the memory of loading, besides the tables."""
        return 0 if shape.is_row_major else 2 * buffer_bytes(shape.num_tiles * shape.tile_bytes)

    def begin(self, rows: Rows, buffer: BatchBuffer) -> Ticket:
        """See RowSource."""
        return self._thread.submit(self._gather, rows, buffer)

    def close(self) -> None:
        """See RowSource."""
        super().close()
        self._tables = []
        del self._resident

    def _gather(self, rows: Rows, buffer: BatchBuffer) -> FetchCounts:
        begin = time.perf_counter()
        counts = FetchCounts(rows_requested=len(rows) * len(self._tables), rows_hit=len(rows) * len(self._tables))
        for table, resident in enumerate(self._tables):
            self._check_not_abandoned()
            counts.bytes_copied += copy_rows(resident, rows, buffer.rows(table, len(rows)), None, self._num_threads)
        counts.bytes_needed = counts.bytes_copied
        counts.seconds = time.perf_counter() - begin
        return counts


def _load_table(
    tables: HopTables, table: int, memory: Bytes, engine: Engine, pool: BufferPool, num_threads: int
) -> None:
    """Read a table into memory as rows. Raises ReadError; FormatError if its checksum does not match."""
    shape, sums = tables.shape, TableSum()
    file = File(str(tables.table_path(table)), "read")
    if shape.is_row_major:
        for _ in _in_parts(engine, file, [memory[at : at + _PART_BYTES] for at in range(0, len(memory), _PART_BYTES)]):
            pass
        sums.add(0, memory)
    else:
        group_bytes = shape.num_tiles * shape.tile_bytes
        slots = [pool.take(group_bytes) for _ in range(2)]
        parts = [slots[group % 2] for group in range(shape.num_groups)]
        rows = memory[: shape.num_rows * shape.row_bytes].reshape(shape.num_rows, shape.row_bytes)
        for group, content in enumerate(_in_parts(engine, file, parts)):
            sums.add(group * group_bytes, content)
            tiles = content.reshape(shape.num_tiles, shape.tile_bytes)
            out = rows[group * TILE_ROWS : (group + 1) * TILE_ROWS]
            untile_rows(tiles, shape.tile_row_bytes, None, out, num_threads)
    if sums.checksum != tables.files[table].checksum:
        raise FormatError(
            f"{file.path}: is damaged (its checksum is {sums.checksum}, not {tables.files[table].checksum}); "
            "remove its folder and run 'diskhop propagate' again"
        )


def _in_parts(engine: Engine, file: File, parts: list[Bytes]) -> Iterator[Bytes]:
    """Read a file from the front into consecutive parts and yield each, prefetching the next."""
    offset = 0
    tickets: deque[int] = deque()
    try:
        for number, part in enumerate(parts):
            reads = split_reads(np.array([offset]), np.array([len(part)]), np.array([0]))
            offset += len(part)
            tickets.append(_submit(engine, file, reads, part, 0))
            if number > 0:
                engine.wait(tickets.popleft())
                yield parts[number - 1]
        if tickets:
            engine.wait(tickets.popleft())
            yield parts[-1]
    finally:
        with contextlib.suppress(Exception):
            _wait_for_all(engine, list(tickets))


def _submit(engine: Engine, file: File, reads: Reads, memory: Bytes, place: int) -> int:
    return engine.submit_read(file, reads.offsets, reads.num_bytes, memory, reads.places + np.uint64(place))


def _wait_for_all(engine: Engine, tickets: list[int]) -> None:
    """Wait for all tickets, also after a failure: the engine may still write. Raises the first error."""
    first_error: Exception | None = None
    for ticket in tickets:
        try:
            engine.wait(ticket)
        except Exception as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error

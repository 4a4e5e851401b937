"""What every feature store is given, and a helper for stores that read on threads of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from diskhop._native import BufferPool, Engine, File, RowReader, copy_rows
from diskhop.counters import FetchCounts
from diskhop.protocols import Bytes, NodeIds, Rows, RowSegment, SampledBatch, Table

_ROWS_A_PIECE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreResources:
    """Where a store reads (engine), keeps (budget, pool) and how (the plan's numbers).

    max_gap_bytes: the largest gap between rows that is read over. threads: cores that may gather rows.
    reading_threads: batches read at once. cache_rows: that may be kept between batches. pinned: so many rows,
    ascending, that will probably be asked for most, or None for the first ones. scratch: a folder for files of the
    run's own, for a store that looks ahead.
    """

    engine: Engine
    pool: BufferPool
    max_gap_bytes: int
    max_read_bytes: int
    staging_bytes: int
    reading_threads: int
    threads: int
    cache_rows: int
    pinned: NodeIds | None = None
    scratch: Path | None = None


def assemble(rows: Rows, out: Bytes, threads: int) -> None:
    """Copy every row of a batch to its place in out (num_rows, row_bytes), once."""
    for segment in rows.segments:
        rows.counts.bytes_copied += copy_rows(segment.buffer, segment.from_rows, out, segment.to_rows, threads)


def rows_in_place(rows: Rows) -> Bytes | None:
    """The rows in the batch's order, if one buffer already holds them so; None if they must be assembled."""
    if len(rows.segments) == 1:
        segment = rows.segments[0]
        if segment.from_rows is None and segment.to_rows is None:
            return segment.buffer
    return None


def empty_rows(pool: BufferPool, num_rows: int, row_bytes: int) -> Bytes:
    """An uninitialised (num_rows, row_bytes) array from the pool."""
    return pool.take(num_rows * row_bytes).reshape(num_rows, row_bytes)


def open_reader(table: Table, resources: StoreResources, max_gap_bytes: int, num_readers: int) -> RowReader:
    """A reader of the table's rows, for up to num_readers calls at once that share the staging."""
    return RowReader(
        resources.engine,
        File(str(table.path), "read"),
        table.num_rows,
        table.row_bytes,
        table.row_stride,
        max_gap_bytes,
        resources.max_read_bytes,
        resources.staging_bytes // num_readers,
        resources.pool,
    )


def read_in_pieces(reader: RowReader, ids: NodeIds, out: Bytes, to_rows: NodeIds | None, counts: FetchCounts) -> None:
    """RowReader.read() for as many rows as a table has: what it holds for each of them, it holds for few at a time."""
    for start in range(0, len(ids), _ROWS_A_PIECE):
        stop = start + _ROWS_A_PIECE
        if to_rows is None:
            counts.add_reads(reader.read(ids[start:stop], out[start:stop]))
        else:
            counts.add_reads(reader.read(ids[start:stop], out, to_rows[start:stop]))


ReadInto = Callable[[NodeIds, Bytes], FetchCounts]


class ReadingStore:
    """A store that brings each batch's rows into a buffer of the batch's own, on `reading_threads` threads.

    `read_into(ids, out)` does the work and returns what it took.
    """

    def __init__(self, table: Table, resources: StoreResources, read_into: ReadInto) -> None:
        self.table = table
        self._pool = resources.pool
        self._read_into = read_into
        self._threads = ThreadPoolExecutor(resources.reading_threads, thread_name_prefix="diskhop-read")

    def submit(self, batch: SampledBatch) -> Future[Rows]:
        """See FeatureStore."""
        return self._threads.submit(self._read, batch.node_ids)

    def collect(self, ticket: Future[Rows]) -> Rows:
        """See FeatureStore."""
        return ticket.result()

    def release(self, ticket: Future[Rows]) -> None:
        """See FeatureStore. Waits for a read that has begun; its memory goes with the last array that shows it."""
        if not ticket.cancel():
            wait([ticket])

    def close(self) -> None:
        """See FeatureStore."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _read(self, ids: NodeIds) -> Rows:
        started = time.perf_counter()
        out = empty_rows(self._pool, len(ids), self.table.row_bytes)
        counts = self._read_into(np.ascontiguousarray(ids), out)
        counts.seconds = time.perf_counter() - started
        return Rows(len(ids), self.table.row_bytes, (RowSegment(out),), counts)

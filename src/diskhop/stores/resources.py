"""What every feature store is given, and what several of them are made of."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from diskhop._native import BufferPool, Engine, File, RowReader, SharedScan, copy_rows
from diskhop.counters import FetchCounts
from diskhop.protocols import Bytes, NodeIds, Rows, Table
from diskhop.stores.packed.layout import Layout

_ROWS_PER_PIECE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreResources:
    """Where a store reads (engine), keeps (pool) and how (the plan's numbers).

    max_gap_bytes: the largest gap between rows that is read over. threads: cores that may gather rows. cache_rows: that
    may be kept between batches. buffer_rows: of a buffer that batches share, or that has their own rows.
    partition_bytes: of the table, read at once for packing. memory_bytes: the whole budget, to name one that would do.
    pinned: so many rows, ascending, that will probably be asked for most, or None for the first ones. scratch: a folder
    for files of the run's own, for a store that looks ahead. layout: epochs that were packed ahead.
    """

    engine: Engine
    pool: BufferPool
    max_gap_bytes: int
    max_read_bytes: int
    staging_bytes: int
    threads: int
    cache_rows: int
    buffer_rows: int = 0
    partition_bytes: int = 0
    memory_bytes: int = 0
    pinned: NodeIds | None = None
    scratch: Path | None = None
    layout: Layout | None = None


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


def whole_rows(rows: Rows, pool: BufferPool, threads: int) -> Bytes:
    """The rows in the batch's order in one buffer: as they lie, or put together in one from the pool."""
    whole = rows_in_place(rows)
    if whole is None:
        started = time.perf_counter()
        whole = empty_rows(pool, rows.num_rows, rows.row_bytes)
        assemble(rows, whole, threads)
        rows.counts.seconds += time.perf_counter() - started
    return whole


def empty_rows(pool: BufferPool, num_rows: int, row_bytes: int) -> Bytes:
    """An uninitialised (num_rows, row_bytes) array from the pool."""
    return pool.take(num_rows * row_bytes).reshape(num_rows, row_bytes)


ReaderT = TypeVar("ReaderT", RowReader, SharedScan)


def open_reader(kind: type[ReaderT], table: Table, resources: StoreResources, max_gap_bytes: int) -> ReaderT:
    """A reader of the table's rows, with all of the staging."""
    return kind(
        resources.engine,
        File(str(table.path), "read"),
        table.num_rows,
        table.row_bytes,
        table.row_stride,
        max_gap_bytes,
        resources.max_read_bytes,
        resources.staging_bytes,
        resources.pool,
    )


def read_in_pieces(reader: RowReader, ids: NodeIds, out: Bytes, to_rows: NodeIds | None, counts: FetchCounts) -> None:
    """RowReader.read() for as many rows as a table has: what it holds for each of them, it holds for few at a time."""
    for start in range(0, len(ids), _ROWS_PER_PIECE):
        stop = start + _ROWS_PER_PIECE
        if to_rows is None:
            counts.add_reads(*reader.read(ids[start:stop], out[start:stop]))
        else:
            counts.add_reads(*reader.read(ids[start:stop], out, to_rows[start:stop]))

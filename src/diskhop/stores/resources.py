"""Resources that feature stores are opened with, and helpers that several stores share."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File, RowReader, SharedScan, copy_rows
from diskhop.batches.trace import TraceSettings
from diskhop.counters import FetchCounts
from diskhop.plans import StoreShare
from diskhop.protocols import Bytes, LookAheadStore, NodeIds, Rows, RowSegment, SampledBatch, Table, TicketT
from diskhop.system.resident import OwnMemory, Part, ResidentMemory

_ROWS_PER_PIECE = 1 << 16


class PreparedBatches(Protocol):
    """Batches that were prepared in a folder before the run, by a store that can replay them."""

    @property
    def num_held(self) -> int:
        """Number of rows that stay in memory, or on a device."""

    def held_ids(self) -> NodeIds:
        """Ids of the rows that stay in memory, int64, ascending. Raises ReadError and FormatError."""

    def read_held(self, out: Bytes) -> None:
        """Read the rows that stay in memory. Raises ReadError and FormatError."""

    def find(self, settings: TraceSettings, numbers: Sequence[int]) -> Any | None:
        """Open the batches with these numbers, for the store's replay(); None if the folder lacks any of them."""


class ReplayStore(LookAheadStore[TicketT], Protocol[TicketT]):
    """A store that can also replay batches that were prepared before the run."""

    def replay(self, source: Any, numbers: Sequence[int]) -> Iterator[tuple[SampledBatch, float]]:
        """Yield batches of what PreparedBatches.find() gave, with the seconds that each took. Submit each one next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreResources:
    """Resources of an opened store.

    engine: reads rows.
    pool: memory for batches.
    max_gap_bytes: reads closer than this are merged.
    max_read_bytes: bytes of one read at most.
    staging_bytes: bytes of the buffers that reads land in.
    threads: cores that may gather rows.
    share: the store's part of the plan.
    memory_bytes: the whole budget, for error messages.
    pinned: ids of the rows to pin, ascending; None for the first rows of the table.
    scratch: folder for temporary files, for a store that looks ahead.
    prepared: batches prepared before the run.
    cached_rows: memory of cached rows, which neighbour lists have in turn; None for memory of the store's own.
    memory: makes arrays that stay, for a store that shares some with the other processes of the machine.
    """

    engine: Engine
    pool: BufferPool
    max_gap_bytes: int
    max_read_bytes: int
    staging_bytes: int
    threads: int
    share: StoreShare = field(default_factory=StoreShare)
    memory_bytes: int = 0
    pinned: NodeIds | None = None
    scratch: Path | None = None
    prepared: PreparedBatches | None = None
    cached_rows: Bytes | None = None
    memory: ResidentMemory = field(default_factory=OwnMemory)


def assemble(rows: Rows, out: Bytes, threads: int) -> None:
    """Copy every row of a batch to its place in out (num_rows, row_bytes), each once."""
    for segment in rows.segments:
        rows.counts.bytes_copied += copy_rows(segment.buffer, segment.from_rows, out, segment.to_rows, threads)


def rows_in_place(rows: Rows) -> Bytes | None:
    """Return the buffer that has the rows in the batch's order; None if they must be assembled."""
    if len(rows.segments) == 1:
        segment = rows.segments[0]
        if segment.from_rows is None and segment.to_rows is None:
            return segment.buffer
    return None


def repeat_rows(rows: Rows, of_nodes: NDArray[np.int64]) -> Rows:
    """Return the rows of nodes that have theirs repeatedly; nothing is copied.

    of_nodes: int64 (nodes), the row of each node.
    """
    segments = []
    for segment in rows.segments:
        if segment.to_rows is None:
            # The segment has all rows.
            from_rows = of_nodes if segment.from_rows is None else segment.from_rows[of_nodes]
            segments.append(RowSegment(segment.buffer, from_rows=from_rows))
            continue
        places = np.full(rows.num_rows, -1, np.int64)
        places[segment.to_rows] = np.arange(len(segment.to_rows)) if segment.from_rows is None else segment.from_rows
        node_places = places[of_nodes]
        to_rows = np.flatnonzero(node_places >= 0)
        segments.append(RowSegment(segment.buffer, from_rows=node_places[to_rows], to_rows=to_rows))
    return replace(rows, num_rows=len(of_nodes), segments=tuple(segments))


def whole_rows(rows: Rows, pool: BufferPool, threads: int) -> Bytes:
    """Return the rows in the batch's order in one buffer, assembled in one from the pool if need be."""
    whole = rows_in_place(rows)
    if whole is None:
        started = time.perf_counter()
        whole = empty_rows(pool, rows.num_rows, rows.row_bytes)
        assemble(rows, whole, threads)
        rows.counts.seconds += time.perf_counter() - started
    return whole


def empty_rows(pool: BufferPool, num_rows: int, row_bytes: int) -> Bytes:
    """Return an uninitialised (num_rows, row_bytes) array from the pool."""
    return pool.take(num_rows * row_bytes).reshape(num_rows, row_bytes)


ReaderT = TypeVar("ReaderT", RowReader, SharedScan)


def open_reader(kind: type[ReaderT], table: Table, resources: StoreResources, max_gap_bytes: int) -> ReaderT:
    """Open a reader of the table's rows that uses all staging memory."""
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
    """Read any number of rows with bounded working memory, which RowReader.read() takes per row."""
    for start in range(0, len(ids), _ROWS_PER_PIECE):
        stop = start + _ROWS_PER_PIECE
        if to_rows is None:
            counts.add_reads(*reader.read(ids[start:stop], out[start:stop]))
        else:
            counts.add_reads(*reader.read(ids[start:stop], out, to_rows[start:stop]))


def read_resident(
    reader: RowReader,
    ids: NodeIds,
    slots: NodeIds | None,
    shape: tuple[int, int],
    memory: ResidentMemory,
    *,
    for_device: bool = False,
) -> Bytes:
    """Return rows that stay, uint8 of a shape (rows, row bytes). Each process of the machine reads a part of them.

    slots: row of the array for each id; None: in the order of the ids. for_device: whether a GPU will read them.
    """

    def read(content: Bytes, part: Part) -> None:
        own, out = part.of(len(ids)), content.reshape(shape)
        if slots is None:
            read_in_pieces(reader, ids[own], out[own], None, FetchCounts())
        else:
            read_in_pieces(reader, ids[own], out, slots[own], FetchCounts())

    return memory.make(shape[0] * shape[1], read, for_device=for_device).reshape(shape)

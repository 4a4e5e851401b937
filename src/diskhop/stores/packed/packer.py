"""Batched packing: one pass over the feature table serves all batches of a trace (DiskGNN, section 5.2).

The table is read in partitions that fit the memory given. While one is read, rows of the one before are appended to the
chunks of all batches that need them. Rows are written in large aligned pieces. Bytes that do not fill a block wait in
memory for the next partition, so nothing on the disk is read back to be changed.

A first pass over the trace finds which rows of each partition go where, and keeps that on the disk.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File, assign_slots
from diskhop.counters import PackingCounts
from diskhop.io.checksums import digest_bytes
from diskhop.protocols import AccessTrace, NodeIds, Table
from diskhop.stores.packed.chunk import BLOCK_BYTES, Chunk, aligned, encode_head, lay_out_body
from diskhop.stores.packed.chunk_writer import ChunkWriter, RowAppenders, edge_blocks
from diskhop.stores.packed.resident import ResidentRows
from diskhop.stores.packed.row_lists import ListsOfPartition, RowLists
from diskhop.stores.packed.segments import SharedRows

_READ_BYTES = 1 << 20
_STAGED_BYTES, _NUM_STAGED = 4 << 20, 6


def packing_bytes(table: Table, partition_bytes: int) -> int:
    """Bytes of memory for packing in partitions of about partition_bytes: two of them, and staging."""
    return 2 * aligned(_rows_of(table, partition_bytes) * table.row_stride) + _NUM_STAGED * _staged_bytes(table)


def _rows_of(table: Table, partition_bytes: int) -> int:
    """Rows of a partition: the whole table, or a number that fills whole blocks of the file."""
    rows_per_block = int(np.lcm(table.row_stride, BLOCK_BYTES)) // table.row_stride
    num_blocks = max(1, partition_bytes // (rows_per_block * table.row_stride))
    return max(1, min(rows_per_block * num_blocks, table.num_rows))


def _staged_bytes(table: Table) -> int:
    """Bytes of a staging buffer: room for a row and for the rest of the one before."""
    return max(_STAGED_BYTES, aligned(table.row_bytes) + BLOCK_BYTES)


class _WrittenBodies(NamedTuple):
    """Result of the first pass over the trace.

    is_needed: whether any row of a piece of the table is needed, partition by partition.
    checksums: of the bodies, in the order of the chunks.
    offsets: where the rows of each list go.
    """

    is_needed: NDArray[np.bool_]
    checksums: list[int]
    offsets: list[int]


class Packer:
    """Packs batches of one table, with packing_bytes() of memory and the bodies of a few batches. Not thread-safe."""

    def __init__(
        self,
        table: Table,
        resident: ResidentRows,
        engine: Engine,
        pool: BufferPool,
        partition_bytes: int,
        threads: int,
    ) -> None:
        self._table = table
        self._resident = resident
        self._engine = engine
        self._pool = pool
        self._threads = threads
        self._file = File(str(table.path), "read")
        self.partition_rows = _rows_of(table, partition_bytes)
        self.num_partitions = -(-table.num_rows // self.partition_rows)
        whole_bytes = aligned(self.partition_rows * table.row_stride)
        self._pieces_per_partition = -(-whole_bytes // _READ_BYTES)
        self._first_ids = np.arange(self.num_partitions + 1, dtype=np.int64) * self.partition_rows
        self._rows_of_pieces = self._find_rows_of_pieces(whole_bytes)
        own = BufferPool(0)
        self._partitions = tuple(own.take(whole_bytes) for _ in range(2))
        self._staging = tuple(own.take(_staged_bytes(table)) for _ in range(_NUM_STAGED))

    def pack(
        self,
        trace: AccessTrace,
        chunks: Sequence[Chunk],
        path: Path,
        scratch: Path,
        keep_on: Callable[[], None],
        shared: SharedRows | None = None,
        record: Callable[[int], NDArray[np.uint8]] | None = None,
        end: NDArray[np.uint8] | None = None,
    ) -> PackingCounts:
        """Write the chunks of a trace's batches, and before them the rows that they share, to the file at `path`.

        chunks: position and sizes of each chunk.
        scratch: folder for a temporary file.
        keep_on: called often; an exception from it ends the packing.
        shared: rows that batches share; None for none.
        record: returns a batch's record for its chunk; None to store none.
        end: last blocks of a permanent file, which also gets checksums of its rows; None for a temporary file.

        Overwrites the file and syncs nothing. Raises ReadError, WriteError, and DestinationError for a full disk.
        """
        started = time.perf_counter()
        counts = PackingCounts()
        lists = RowLists(scratch / f".lists-{path.name}", self._engine, self._pool)
        try:
            with ChunkWriter(self._engine, path, self._staging, counts) as writer:
                written = self._write_bodies(writer, lists, trace, chunks, keep_on, shared, record)
                lists.finish()
                writer.settle()
                appenders = RowAppenders(
                    writer, written.offsets, self._table.row_bytes, self._threads, is_summed=end is not None
                )
                self._append_rows(writer, lists, written.is_needed, appenders, counts, keep_on)
                rows_checksums = appenders.checksums()
                for chunk, body_checksum in zip(chunks, written.checksums, strict=True):
                    head = encode_head(chunk, body_checksum, rows_checksums[chunk.rows_offset])
                    writer.write(head, chunk.offset)
                if end is not None:
                    writer.write(end, chunks[-1].end)
                writer.settle()
        finally:
            lists.close()
        counts.seconds = time.perf_counter() - started
        return counts

    def _write_bodies(
        self,
        writer: ChunkWriter,
        lists: RowLists,
        trace: AccessTrace,
        chunks: Sequence[Chunk],
        keep_on: Callable[[], None],
        shared: SharedRows | None,
        record: Callable[[int], NDArray[np.uint8]] | None,
    ) -> _WrittenBodies:
        """Write the bodies of all chunks, and lists of the rows that each chunk and segment gets."""
        is_needed = np.zeros(self.num_partitions * self._pieces_per_partition, np.bool_)
        checksums, offsets = [], []
        for index, chunk in enumerate(chunks):
            keep_on()
            body = self._pool.take(chunk.head_bytes - BLOCK_BYTES)
            packed_ids = self._fill_body(chunk, index, trace.node_ids(index), body, shared, record)
            checksums.append(digest_bytes(body))
            writer.write(body, chunk.offset + BLOCK_BYTES)
            del body
            is_needed |= self._pieces_of(packed_ids)
            lists.add(packed_ids, np.searchsorted(packed_ids, self._first_ids))
            offsets.append(chunk.rows_offset)
            segment = None if shared is None else shared.segment_after(index)
            if segment is not None:
                is_needed |= self._pieces_of(np.sort(segment.ids))
                lists.add(segment.ids, segment.bounds)
                offsets.append(segment.first_row * self._table.row_bytes)
        return _WrittenBodies(is_needed, checksums, offsets)

    def _append_rows(
        self,
        writer: ChunkWriter,
        lists: RowLists,
        is_needed: NDArray[np.bool_],
        appenders: RowAppenders,
        counts: PackingCounts,
        keep_on: Callable[[], None],
    ) -> None:
        """Read the table once, and append each partition's rows to the chunks and segments that need them."""
        for rows, wanted in self._read_partitions(is_needed, lists, counts):
            appenders.append(rows, wanted.partition * self.partition_rows, wanted, keep_on)
        appenders.finish()
        for offset, block in edge_blocks(appenders.edges).items():
            writer.write(block, offset)

    def _fill_body(
        self,
        chunk: Chunk,
        index: int,
        ids: NodeIds,
        body: NDArray[np.uint8],
        shared: SharedRows | None,
        record: Callable[[int], NDArray[np.uint8]] | None,
    ) -> NDArray[np.uint32]:
        """Fill in the body of a chunk, and return the ids of its packed rows, ascending."""
        body[:] = 0
        parts = lay_out_body(chunk, body)
        packed_ids = np.empty(chunk.num_packed, np.uint32)
        assign_slots(
            np.ascontiguousarray(ids),
            self._table.num_rows,
            self._resident.num_rows,
            self._resident.slots,
            None if shared is None else shared.rows_of(index),
            parts.slots_low,
            parts.slots_high,
            parts.shared_ids,
            packed_ids,
        )
        if record is not None:
            parts.record[:] = record(index)
        return packed_ids

    def _find_rows_of_pieces(self, partition_bytes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first row with bytes in each piece of each partition, and the row after the last one."""
        starts = np.arange(0, partition_bytes, _READ_BYTES, dtype=np.int64)
        stride = self._table.row_stride
        firsts = np.minimum((starts - self._table.row_bytes) // stride + 1, self.partition_rows)
        ends = np.minimum(-(-(starts + _READ_BYTES) // stride), self.partition_rows)
        first_ids = self._first_ids[:-1, None]
        return (first_ids + np.maximum(firsts, 0)).reshape(-1), (first_ids + ends).reshape(-1)

    def _pieces_of(self, ids: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Return a flag per piece of the table that has any of the rows; ids ascend."""
        firsts, ends = self._rows_of_pieces
        return np.searchsorted(ids, firsts) < np.searchsorted(ids, ends)

    def _read_partitions(
        self, is_needed: NDArray[np.bool_], lists: RowLists, counts: PackingCounts
    ) -> Iterator[tuple[NDArray[np.uint8], ListsOfPartition]]:
        """Yield the rows, uint8 (rows, row bytes), and the lists of each partition with needed rows."""
        needed = is_needed.reshape(self.num_partitions, self._pieces_per_partition)
        partitions = np.flatnonzero(needed.any(axis=1)).tolist()
        reading: deque[tuple[int, ListsOfPartition]] = deque()
        stride, row_bytes = self._table.row_stride, self._table.row_bytes

        def submit(turn: int) -> None:
            partition = partitions[turn]
            start = partition * self.partition_rows * stride
            places = np.flatnonzero(needed[partition]).astype(np.uint64) * np.uint64(_READ_BYTES)
            partition_bytes = min(self.partition_rows * stride, self._table.num_rows * stride - start)
            required = np.minimum(np.uint64(partition_bytes) - places, np.uint64(_READ_BYTES))
            lengths = np.minimum(np.uint64(aligned(partition_bytes)) - places, np.uint64(_READ_BYTES))
            buffer = self._partitions[turn % 2]
            ticket = self._engine.submit_read(self._file, places + np.uint64(start), lengths, buffer, places, required)
            reading.append((ticket, lists.begin(partition)))
            counts.bytes_read += int(lengths.sum())

        try:
            for turn, partition in enumerate(partitions):
                if turn == 0:
                    submit(0)
                if turn + 1 < len(partitions):
                    submit(turn + 1)
                ticket, wanted = reading[0]
                self._engine.wait(ticket)
                reading.popleft()
                lists.wait(wanted)
                num_rows = min(self.partition_rows, self._table.num_rows - partition * self.partition_rows)
                yield as_strided(self._partitions[turn % 2], (num_rows, row_bytes), (stride, 1)), wanted
        finally:
            # The engine may still write to a buffer, which must not be freed before.
            for ticket, wanted in reading:
                with contextlib.suppress(OSError, ValueError):  # the first ticket may have failed already
                    self._engine.wait(ticket)
                lists.leave(wanted)

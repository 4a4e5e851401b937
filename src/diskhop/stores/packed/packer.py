"""Batched packing: one pass over the feature table serves all batches of a span (DiskGNN, section 5.2).

The table comes in partitions that fit the memory given, one being read while the one before is dispatched: each batch
takes its rows of the partition and appends them to its chunk. What is appended goes out in large aligned writes; the
odd bytes at its end wait in memory for the next partition, so that nothing on the disk is ever read to be changed.

Which rows of which partition go where is found first, batch by batch, and waits on the disk.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import xxhash
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File, assign_slots, copy_rows
from diskhop.counters import PackingCounts
from diskhop.io.atomic import destination_errors
from diskhop.io.checksums import digest_bytes
from diskhop.io.streams import in_pieces
from diskhop.protocols import AccessTrace, NodeIds, Table
from diskhop.stores.packed.chunk import BLOCK_BYTES, Chunk, aligned, encode_head, lay_out_body
from diskhop.stores.packed.resident import ResidentRows
from diskhop.stores.packed.row_lists import ListsOfPartition, RowLists, ids_of
from diskhop.stores.packed.segments import SharedRows

_READ_BYTES = 1 << 20
_STAGED_BYTES, _NUM_STAGED = 4 << 20, 6
# Bodies on their way to the disk: one is made meanwhile.
_BODIES_WRITING = 2


def packing_bytes(table: Table, partition_bytes: int) -> int:
    """Memory for packing in partitions of about so many bytes: two of them, and what is staged."""
    return 2 * aligned(_rows_of(table, partition_bytes) * table.row_stride) + _NUM_STAGED * _staged_bytes(table)


def _rows_of(table: Table, partition_bytes: int) -> int:
    """Rows of a partition: the table, or as many as take whole blocks of the file."""
    rows_per_block = int(np.lcm(table.row_stride, BLOCK_BYTES)) // table.row_stride
    num_blocks = max(1, partition_bytes // (rows_per_block * table.row_stride))
    return max(1, min(rows_per_block * num_blocks, table.num_rows))


def _staged_bytes(table: Table) -> int:
    """Of a staging buffer: it holds a row and what is left of the one before."""
    return max(_STAGED_BYTES, aligned(table.row_bytes) + BLOCK_BYTES)


class Packer:
    """Packs batches of one table. Holds packing_bytes() while it lives, and of each batch what its body takes.

    Not for several threads at once.
    """

    def __init__(
        self,
        table: Table,
        held: ResidentRows,
        engine: Engine,
        pool: BufferPool,
        partition_bytes: int,
        threads: int,
    ) -> None:
        self._table = table
        self._held = held
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

        chunks: where each goes, and what is in it. scratch: a folder for a file in between. keep_on: called often;
        what it raises ends the packing. record: of a batch, as it is to be in its chunk. end: of a file that stays, in
        whole blocks; only there are rows summed up. What was there is written over; nothing is synced. Raises
        ReadError, DestinationError for a full disk, WriteError.
        """
        started = time.perf_counter()
        counts = PackingCounts()
        lists = RowLists(scratch / f".lists-{path.name}", self._engine, self._pool)
        try:
            with _Writer(self._engine, path, self._staging, counts) as writer:
                is_needed = np.zeros(self.num_partitions * self._pieces_per_partition, np.bool_)
                body_checksums = []
                offsets: list[int] = []
                for index, chunk in enumerate(chunks):
                    keep_on()
                    body = self._pool.take(chunk.head_bytes - BLOCK_BYTES)
                    packed_ids = self._fill_body(chunk, index, trace.node_ids(index), body, shared, record)
                    body_checksums.append(digest_bytes(body))
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
                lists.finish()
                writer.settle()
                appenders = [
                    _Appender(writer, offset, self._table.row_bytes, self._threads, is_summed=end is not None)
                    for offset in offsets
                ]
                for rows, wanted in self._read_partitions(is_needed, lists, counts):
                    first_id = wanted.partition * self.partition_rows
                    for index, appender in enumerate(appenders):
                        keep_on()
                        appender.append(rows, ids_of(wanted, index) - first_id)
                for appender in appenders:
                    appender.finish()
                for offset, block in _blocks(appenders).items():
                    writer.write(block, offset)
                rows_checksums = {appender.first_offset: appender.checksum for appender in appenders}
                for chunk, body_checksum in zip(chunks, body_checksums, strict=True):
                    head = encode_head(chunk, body_checksum, rows_checksums[chunk.rows_offset])
                    writer.write(head, chunk.offset)
                if end is not None:
                    writer.write(end, chunks[-1].end)
                writer.settle()
        finally:
            lists.close()
        counts.seconds = time.perf_counter() - started
        return counts

    def _fill_body(
        self,
        chunk: Chunk,
        index: int,
        ids: NodeIds,
        body: NDArray[np.uint8],
        shared: SharedRows | None,
        record: Callable[[int], NDArray[np.uint8]] | None,
    ) -> NDArray[np.uint32]:
        """Write a chunk's body; returns the ids of its packed rows, ascending."""
        body[:] = 0
        parts = lay_out_body(chunk, body)
        packed_ids = np.empty(chunk.num_packed, np.uint32)
        assign_slots(
            np.ascontiguousarray(ids),
            self._table.num_rows,
            self._held.num_rows,
            self._held.slots,
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
        """Of each piece of each partition the rows with bytes in it: the first, and the one after the last."""
        starts = np.arange(0, partition_bytes, _READ_BYTES, dtype=np.int64)
        stride = self._table.row_stride
        firsts = np.minimum((starts - self._table.row_bytes) // stride + 1, self.partition_rows)
        ends = np.minimum(-(-(starts + _READ_BYTES) // stride), self.partition_rows)
        first_ids = self._first_ids[:-1, None]
        return (first_ids + np.maximum(firsts, 0)).reshape(-1), (first_ids + ends).reshape(-1)

    def _pieces_of(self, ids: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Which pieces of the table rows lie in; ids ascend."""
        firsts, ends = self._rows_of_pieces
        return np.searchsorted(ids, firsts) < np.searchsorted(ids, ends)

    def _read_partitions(
        self, is_needed: NDArray[np.bool_], lists: RowLists, counts: PackingCounts
    ) -> Iterator[tuple[NDArray[np.uint8], ListsOfPartition]]:
        """Yield of each partition that has anything needed the rows, uint8 (rows, row bytes), and which go where."""
        needed = is_needed.reshape(self.num_partitions, self._pieces_per_partition)
        partitions = np.flatnonzero(needed.any(axis=1)).tolist()
        on_their_way: deque[tuple[int, ListsOfPartition]] = deque()
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
            on_their_way.append((ticket, lists.begin(partition)))
            counts.bytes_read += int(lengths.sum())

        try:
            for turn, partition in enumerate(partitions):
                if turn == 0:
                    submit(0)
                if turn + 1 < len(partitions):
                    submit(turn + 1)
                ticket, wanted = on_their_way[0]
                self._engine.wait(ticket)
                on_their_way.popleft()
                lists.wait(wanted)
                num_rows = min(self.partition_rows, self._table.num_rows - partition * self.partition_rows)
                yield as_strided(self._partitions[turn % 2], (num_rows, row_bytes), (stride, 1)), wanted
        finally:
            # The engine may still write to a buffer: it must not go before that is done.
            for ticket, wanted in on_their_way:
                with contextlib.suppress(OSError, ValueError):  # the first may be spent: it failed
                    self._engine.wait(ticket)
                lists.leave(wanted)


class _Writer:
    """Writes anywhere in a file, from buffers that are filled while others are on their way to the disk."""

    def __init__(self, engine: Engine, path: Path, staging: Sequence[NDArray[np.uint8]], counts: PackingCounts) -> None:
        self._engine = engine
        self._path = path
        with destination_errors(path):
            self._file = File(str(path), "write")
        self._staged: deque[tuple[NDArray[np.uint8], int | None]] = deque((buffer, None) for buffer in staging)
        self._writing: deque[int] = deque()
        self._counts = counts

    def free_buffer(self) -> NDArray[np.uint8]:
        """One of the staging buffers, uint8: the same one until it is written."""
        buffer, ticket = self._staged[0]
        if ticket is not None:
            self._staged[0] = buffer, None
            self._wait(ticket)
        return buffer

    def write_staged(self, begin: int, end: int, offset: int) -> None:
        """Write a part of the free buffer."""
        buffer, _ = self._staged.popleft()
        self._staged.append((buffer, self._submit(buffer[begin:end], offset)))

    def write(self, content: NDArray[np.uint8], offset: int) -> None:
        """Write a whole array, which the engine keeps."""
        self._writing.append(self._submit(content, offset))
        if len(self._writing) > _BODIES_WRITING:
            self._wait(self._writing.popleft())

    def settle(self) -> None:
        """Wait for everything. Raises DestinationError or WriteError."""
        while self._writing:
            self._wait(self._writing.popleft())
        for _ in range(len(self._staged)):
            self.free_buffer()
            self._staged.rotate(-1)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        # The engine may still read from the buffers: they must not change before it is done with them.
        tickets = [*self._writing, *(ticket for _, ticket in self._staged if ticket is not None)]
        for ticket in tickets:
            with contextlib.suppress(OSError):
                self._engine.wait(ticket)
        # An error's traceback may keep this object alive: not so the descriptor.
        del self._file

    def _submit(self, content: NDArray[np.uint8], offset: int) -> int:
        places, lengths = in_pieces(len(content))
        self._counts.bytes_written += len(content)
        with destination_errors(self._path):
            return self._engine.submit_write(self._file, places + np.uint64(offset), lengths, content, places)

    def _wait(self, ticket: int) -> None:
        with destination_errors(self._path):
            self._engine.wait(ticket)


class _Appender:
    """Rows one after the other from an offset on.

    is_summed: keep a checksum. edges: after finish(), what lies in blocks that others write to as well, or that are not
    full: offsets and bytes.
    """

    def __init__(self, writer: _Writer, offset: int, row_bytes: int, threads: int, *, is_summed: bool) -> None:
        self._writer = writer
        self.first_offset = offset
        # Of the first block, before the first row.
        self._others_bytes = offset % BLOCK_BYTES
        self._offset = offset - self._others_bytes
        self._rest = np.zeros(self._others_bytes, np.uint8)
        self._row_bytes = row_bytes
        self._threads = threads
        self._hasher = xxhash.xxh3_64() if is_summed else None
        self.edges: list[tuple[int, NDArray[np.uint8]]] = []

    @property
    def checksum(self) -> int:
        """xxh3 of the rows so far; 0 where none is kept."""
        return 0 if self._hasher is None else self._hasher.intdigest()

    def append(self, rows: NDArray[np.uint8], wanted: NDArray[np.int64]) -> None:
        """Add rows[wanted]."""
        rows_per_piece = (len(self._writer.free_buffer()) - BLOCK_BYTES) // self._row_bytes
        for begin in range(0, len(wanted), rows_per_piece):
            piece = wanted[begin : begin + rows_per_piece]
            buffer = self._writer.free_buffer()
            rest_bytes = len(self._rest)
            end = rest_bytes + len(piece) * self._row_bytes
            buffer[:rest_bytes] = self._rest
            out = buffer[rest_bytes:end].reshape(len(piece), self._row_bytes)
            copy_rows(rows, piece, out, None, self._threads)
            if self._hasher is not None:
                self._hasher.update(out.data)
            whole_bytes = end // BLOCK_BYTES * BLOCK_BYTES
            self._rest = buffer[whole_bytes:end].copy()
            if whole_bytes:
                self._write(buffer, whole_bytes)

    def finish(self) -> None:
        """Leave the rest to whoever writes the edges."""
        self._note_edge(self._rest)

    def _write(self, buffer: NDArray[np.uint8], whole_bytes: int) -> None:
        begin = 0
        if self._others_bytes:
            self._note_edge(buffer[:BLOCK_BYTES].copy())
            self._others_bytes = 0
            begin = BLOCK_BYTES
        if whole_bytes > begin:
            self._writer.write_staged(begin, whole_bytes, self._offset + begin)
        self._offset += whole_bytes

    def _note_edge(self, block: NDArray[np.uint8]) -> None:
        """Of a block, what is ours."""
        if len(block) > self._others_bytes:
            self.edges.append((self._offset + self._others_bytes, block[self._others_bytes :]))


def _blocks(appenders: Sequence[_Appender]) -> dict[int, NDArray[np.uint8]]:
    """The blocks that edges are in, by their offsets, zeros where nothing is."""
    blocks: dict[int, NDArray[np.uint8]] = {}
    for appender in appenders:
        for offset, content in appender.edges:
            place = offset % BLOCK_BYTES
            block = blocks.setdefault(offset - place, np.zeros(BLOCK_BYTES, np.uint8))
            block[place : place + len(content)] = content
    return blocks

"""`packed`: what a batch needs of the disk lies in one piece (DiskGNN).

Batches are sampled ahead, a superbatch or whole epochs; then their rows are packed, by one pass over the table
(packer.py). A batch is one chunk of a file, read at once; the rows asked for most stay in memory from the first batch
to the last. Rows that a segment's batches share, where the disk has no room for a copy each, come by a shared scan.

All rows are in one buffer: those held, then the own ones of each batch on its way. A batch is read to its place there,
and its slots in the chunk, but for the place, are its rows' positions: nothing is looked up or copied.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File, RowReader, ScanTicket, SharedScan, load_slots
from diskhop.batches.record import decode_batch
from diskhop.budget import format_bytes
from diskhop.counters import FetchCounts
from diskhop.errors import BudgetError, ConfigError, DiskhopError, PipelineError
from diskhop.io.streams import in_pieces
from diskhop.protocols import AccessTrace, MakeRoom, Rows, RowSegment, SampledBatch, Table
from diskhop.stores.packed.buffer_space import BufferSpace
from diskhop.stores.packed.chunk import BLOCK_BYTES, Body, Chunk, aligned, check_bytes, check_head, lay_out_body
from diskhop.stores.packed.chunk_file import ChunkFile
from diskhop.stores.packed.pack_file import PackFile
from diskhop.stores.packed.packer import Packer
from diskhop.stores.packed.resident import ResidentRows, hold_listed
from diskhop.stores.packed.sizes import aligned_rows, head_bytes, own_rows, why_not_packable
from diskhop.stores.resources import StoreResources, empty_rows, open_reader, read_in_pieces

_READ_BYTES = 1 << 20
_BEGUN_AHEAD = 2
# Of shared rows, gaps are read over up to half of what costs as much as another read: near the least of their seconds
# the curve is flat, and a third less is read (see docs/log.md).
_SHARED_GAP_DIVISOR = 2


@dataclass(slots=True, eq=False)
class _Fetch:
    """A batch between submit and release. base: the buffer's row from which its own ones are counted."""

    source: PackFile
    chunk: Chunk
    head: NDArray[np.uint8]
    head_ticket: int | None
    rows_checksum: int = 0
    first: int | None = None
    base: int = 0
    began: float = 0.0
    rows_ticket: int | None = None
    is_there: bool = False
    shared: ScanTicket | None = None
    body: Body | None = None
    error: BaseException | None = None
    is_done: bool = False
    counts: FetchCounts = field(default_factory=FetchCounts)


class PackedStore:
    """See the module. Batches are submitted in the order of the traces that were looked over."""

    # Packing a superbatch takes more than half as long as training on it: one much longer than the one before
    # would not be there in time. Every seam costs a pass over the table.
    growth = 1.5

    def __init__(self, table: Table, resources: StoreResources) -> None:
        assert resources.scratch is not None
        if reason := why_not_packable(table):
            raise ConfigError(reason)
        self.table = table
        self._resources = resources
        self._scratch = resources.scratch
        self._engine: Engine = resources.engine
        pinned = resources.pinned
        if pinned is None:
            self._held = ResidentRows(min(resources.share.cache_rows, table.num_rows))
        else:
            self._held = hold_listed(pinned, table.num_rows)
        unit = aligned_rows(table)
        num_held = self._held.num_rows
        first = -(-num_held // unit) * unit
        self._rows = empty_rows(BufferPool(0), first + resources.share.buffer_rows, table.row_bytes)
        held = self._rows[:num_held]
        reader = open_reader(RowReader, table, resources, resources.max_gap_bytes)
        if resources.prepared is not None:
            resources.prepared.read_held(held)
        else:
            ids = np.arange(num_held) if pinned is None else pinned
            read_in_pieces(reader, ids, held, None, FetchCounts())
        del reader
        self._packer = Packer(
            table,
            self._held,
            resources.engine,
            resources.pool,
            resources.share.partition_bytes,
            threads=1,
        )
        self._changed = threading.Condition()
        self._on_their_way: queue.SimpleQueue[_Fetch | None] = queue.SimpleQueue()
        self._loader = threading.Thread(target=self._await_rows, name="packed-loader", daemon=True)
        self._loader.start()
        self._room = BufferSpace(first, len(self._rows))
        self._line: deque[_Fetch] = deque()
        self._last_arrival = 0.0
        self._coming: deque[tuple[PackFile, Chunk]] = deque()
        self._files: set[PackFile] = set()
        self._begun: dict[int, _Fetch] = {}
        self._next: ChunkFile | None = None
        # Files of this store whose batches are done with, to be written over: to free a superbatch's room on the disk
        # takes a second or two, and so does to take it again.
        self._spare: list[Path] = []
        self._num_files = 0

    # -- packing --

    def start_pass(self) -> None:
        """See LookAheadStore."""
        self._drop()

    def make_room(self, batch: SampledBatch) -> None:
        """See LookAheadStore."""
        if self._next is None:
            self._next = self._new_draft()
        num_packed = self._held.count_missing(batch.node_ids)
        self._next.add(batch.number, batch.num_nodes, num_packed, self.table.row_bytes, self._held.num_rows)

    def look_ahead(self, trace: AccessTrace, keep_on: Callable[[], None]) -> None:
        """See LookAheadStore."""
        draft = self._next
        assert draft is not None, "room was made for the batches of the trace"
        chunks = draft.begin(len(trace))
        packing = self._packer.pack(trace, chunks, draft.path, self._scratch, keep_on)
        source = PackFile(draft.path, chunks, 0, temporary=True)
        source.packing = packing
        self._next = None
        with self._changed:
            self._files.add(source)
            self._coming.extend((source, chunk) for chunk in chunks)

    def free_disk(self) -> None:
        """See LookAheadStore."""
        with self._changed:
            while self._spare:
                self._spare.pop().unlink(missing_ok=True)

    # -- reading --

    def replay(self, source: PackFile, numbers: Sequence[int]) -> Iterator[tuple[SampledBatch, float]]:
        """Batches of a file that stays, and the seconds that each took, in this order; each is submitted next.

        A chunk is begun to be read, head and rows, when two others are ahead of it (DiskGNN, section 5.3). Raises
        FormatError for one that is not as it was written.
        """
        self._files.add(source)
        chunk_of = {chunk.number: chunk for chunk in source.chunks}
        order = [chunk_of[number] for number in numbers]
        num_begun = 0
        for index, chunk in enumerate(order):
            started = time.perf_counter()
            while num_begun < min(index + 1 + _BEGUN_AHEAD, len(order)):
                self._require_room(order[num_begun])
                self._begun[order[num_begun].number] = self._begin(source, order[num_begun])
                num_begun += 1
            fetch = self._begun[chunk.number]
            self._read_head(fetch)
            assert fetch.body is not None
            batch = decode_batch(fetch.body.record, self._resources.pool)
            yield batch, time.perf_counter() - started

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> _Fetch:
        """See FeatureStore. Raises BudgetError for a batch for which the whole buffer has no room."""
        begun = self._begun.get(batch.number)
        if begun is not None:
            make_room(head_bytes(begun.chunk.num_nodes, begun.chunk.record_bytes))
            # Not before: who is not let in does not know of it.
            return self._begun.pop(batch.number)
        with self._changed:
            source, chunk = self._coming.popleft() if self._coming else (None, None)
        if source is None or chunk is None or chunk.number != batch.number:
            raise PipelineError(f"batch {batch.number} was submitted before look_ahead() had its trace")
        self._require_room(chunk)
        make_room(head_bytes(chunk.num_nodes, chunk.record_bytes))
        fetch = self._begin(source, chunk)
        try:
            self._read_head(fetch)
        except BaseException:
            # Nobody else knows of the room that it has, or waits for.
            self.release(fetch)
            raise
        return fetch

    def collect(self, ticket: _Fetch) -> Rows:
        """See FeatureStore. Raises FormatError for a chunk that is not as it was written."""
        with self._changed:
            while not ticket.is_there and ticket.error is None:
                self._changed.wait()
            if ticket.error is not None:
                raise ticket.error
        chunk, counts, body = ticket.chunk, ticket.counts, ticket.body
        assert body is not None
        first_packed = ticket.base + chunk.num_shared
        packed = self._rows[first_packed : first_packed + chunk.num_packed].reshape(-1)
        if not ticket.source.temporary:
            check_bytes(chunk, "packed rows", packed, ticket.rows_checksum, ticket.source.path)
        if ticket.shared is not None:
            counts.add_reads(*ticket.shared.wait())
        packing, num_chunks = ticket.source.packing, len(ticket.source.chunks)
        counts.packing_seconds = packing.seconds / num_chunks
        counts.packing_bytes_read = packing.bytes_read // num_chunks
        counts.packing_bytes_written = packing.bytes_written // num_chunks
        counts.rows_requested = chunk.num_nodes
        counts.rows_hit = chunk.num_nodes - chunk.num_own
        counts.bytes_needed = chunk.num_nodes * self.table.row_bytes
        positions = self._resources.pool.take(8 * chunk.num_nodes).view(np.int64)
        num_held = self._held.num_rows
        load_slots(body.slots_low, body.slots_high, num_held, ticket.base - num_held, positions)
        ticket.body = None
        ticket.head = ticket.head[:0]
        return Rows(chunk.num_nodes, self.table.row_bytes, (RowSegment(self._rows, from_rows=positions),), counts)

    def cancel(self, ticket: _Fetch) -> None:
        """See FeatureStore."""
        with self._changed:
            if ticket in self._line:
                self._line.remove(ticket)
                ticket.error = CancelledError()
                self._changed.notify_all()

    def release(self, ticket: _Fetch) -> None:
        """See FeatureStore. The rows may be another batch's from now on."""
        self.cancel(ticket)
        if ticket.shared is not None:
            ticket.shared.leave()
        head_ticket, ticket.head_ticket = ticket.head_ticket, None
        if head_ticket is not None:
            with contextlib.suppress(DiskhopError):
                self._engine.wait(head_ticket)
        with self._changed:
            while ticket.rows_ticket is not None:
                self._changed.wait()
            if ticket.is_done:
                return
            ticket.is_done = True
            if ticket.first is not None:
                chunk = ticket.chunk
                self._room.give_back(ticket.first, own_rows(self.table, chunk.num_packed, chunk.num_shared))
            if ticket.source.leave():
                self._retire(ticket.source)
            self._admit()
            self._changed.notify_all()

    def close(self) -> None:
        """See FeatureStore."""
        self._drop()
        self.free_disk()
        self._on_their_way.put(None)
        self._loader.join()

    def _await_rows(self) -> None:
        """Wait for rows as they were asked for: requests go out as others come back, whoever is busy with what."""
        while (fetch := self._on_their_way.get()) is not None:
            error = None
            if fetch.rows_ticket is not None:
                try:
                    self._engine.wait(fetch.rows_ticket)
                except BaseException as raised:
                    error = raised
            arrived = time.perf_counter()
            # Of chunks that are read at the same time each has the seconds since the one before.
            fetch.counts.seconds += arrived - max(fetch.began, self._last_arrival)
            self._last_arrival = arrived
            with self._changed:
                fetch.rows_ticket = None
                fetch.error = fetch.error or error
                fetch.is_there = True
                self._changed.notify_all()

    def _require_room(self, chunk: Chunk) -> None:
        lacking_rows = own_rows(self.table, chunk.num_packed, chunk.num_shared) - self._room.num_rows
        if lacking_rows > 0:
            given_bytes = self._resources.memory_bytes
            smallest_bytes = given_bytes + lacking_rows * self.table.row_bytes
            raise BudgetError(
                f"--memory {format_bytes(given_bytes)} is too small: batch {chunk.number} brings {chunk.num_own} rows, "
                f"and there is room for {self._room.num_rows} beside those that stay in memory; "
                f"the smallest that works is {-(-smallest_bytes // 1_000_000)}MB, or take smaller batches",
                smallest_bytes,
            )

    def _begin(self, source: PackFile, chunk: Chunk) -> _Fetch:
        """Begin to read a chunk: its head now, its rows as soon as there is room, in one stream of requests."""
        head = self._resources.pool.take(chunk.head_bytes)
        ticket = self._read(source.file, chunk.offset, head, chunk.head_bytes)
        fetch = _Fetch(source, chunk, head, ticket)
        fetch.counts.reads = -(-chunk.head_bytes // _READ_BYTES)
        fetch.counts.bytes_read = chunk.head_bytes
        with self._changed:
            self._line.append(fetch)
            self._admit()
        return fetch

    def _read_head(self, fetch: _Fetch) -> None:
        """Wait for the head, and begin to read what it says is shared."""
        head_ticket, fetch.head_ticket = fetch.head_ticket, None
        assert head_ticket is not None
        self._engine.wait(head_ticket)
        path, chunk = fetch.source.path, fetch.chunk
        body_checksum, fetch.rows_checksum = check_head(chunk, fetch.head[:BLOCK_BYTES], path)
        body = fetch.head[BLOCK_BYTES:]
        check_bytes(chunk, "body", body, body_checksum, path)
        with self._changed:
            fetch.body = lay_out_body(chunk, body)
            self._join(fetch)

    def _admit(self) -> None:
        """Begin to read the rows of those who stand first in the line and for whom there is room. The lock is held."""
        while self._line:
            fetch = self._line[0]
            chunk = fetch.chunk
            first = self._room.take(own_rows(self.table, chunk.num_packed, chunk.num_shared))
            if first is None:
                return
            self._line.popleft()
            fetch.first = first
            unit = aligned_rows(self.table)
            first_packed = first + -(-chunk.num_shared // unit) * unit
            fetch.base = first_packed - chunk.num_shared
            fetch.began = time.perf_counter()
            num_bytes = aligned(chunk.rows_bytes)
            try:
                if num_bytes:
                    place = first_packed * self.table.row_bytes
                    out = self._rows.reshape(-1)[place : place + num_bytes]
                    fetch.rows_ticket = self._read(fetch.source.file, chunk.rows_offset, out, num_bytes)
                    fetch.counts.reads += -(-num_bytes // _READ_BYTES)
                    fetch.counts.bytes_read += num_bytes
                self._on_their_way.put(fetch)
                self._join(fetch)
            except DiskhopError as error:
                fetch.error = error
                self._changed.notify_all()

    def _join(self, fetch: _Fetch) -> None:
        """Begin to read the shared rows, once it is known which they are and where they go. The lock is held."""
        if fetch.first is None or fetch.body is None or fetch.chunk.num_shared == 0:
            return
        source = fetch.source
        if source.scan is None:
            table = Table(
                path=source.path,
                num_rows=source.num_shared,
                row_bytes=self.table.row_bytes,
                row_stride=self.table.row_bytes,
            )
            gap_bytes = self._resources.max_gap_bytes // _SHARED_GAP_DIVISOR
            source.scan = open_reader(SharedScan, table, self._resources, gap_bytes)
        out = self._rows[fetch.base : fetch.base + fetch.chunk.num_shared]
        fetch.shared = source.scan.join(fetch.body.shared_ids.astype(np.int64), out, None)

    def _read(self, file: File, offset: int, out: NDArray[np.uint8], num_bytes: int) -> int:
        places, lengths = in_pieces(num_bytes)
        return self._engine.submit_read(file, places + np.uint64(offset), lengths, out, places)

    def _drop(self) -> None:
        """Forget batches that never came."""
        while self._begun:
            self.release(self._begun.popitem()[1])
        self._coming.clear()
        for source in [*self._files]:
            self._retire(source)
        if self._next is not None:
            self._spare.append(self._next.path)
            self._next = None

    def _retire(self, source: PackFile) -> None:
        """No batch of the file is to come."""
        source.close()
        self._files.discard(source)
        if source.temporary:
            self._spare.append(source.path)

    def _new_draft(self) -> ChunkFile:
        with self._changed:
            if self._spare:
                return ChunkFile(self._spare.pop())
        path = self._scratch / f"chunks-{self._num_files}.bin"
        self._num_files += 1
        return ChunkFile(path)

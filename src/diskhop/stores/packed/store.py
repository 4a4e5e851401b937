"""`packed`: all that a batch needs from the disk lies in one piece (DiskGNN).

Batches are sampled ahead, a superbatch or whole epochs. Their rows are then packed in one pass over the table
(packer.py). A batch is one chunk of a file and is read at once; the most requested rows stay in memory from the first
batch to the last. If the disk has no space for a copy per batch, a shared scan reads the rows that batches share.

All rows are in one buffer: the resident ones, then the own rows of each batch in flight. A chunk's slots are positions
in the buffer, except for the place that the batch is read to, so no row is looked up or copied.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File, RowReader, SharedScan, load_slots
from diskhop.batches.record import decode_batch
from diskhop.budget import format_bytes
from diskhop.counters import FetchCounts
from diskhop.errors import BudgetError, ConfigError, DiskhopError, PipelineError
from diskhop.io.streams import in_pieces
from diskhop.protocols import AccessTrace, MakeRoom, Rows, RowSegment, SampledBatch, Table
from diskhop.stores.packed.buffer_space import BufferSpace
from diskhop.stores.packed.chunk import BLOCK_BYTES, Chunk, aligned, check_bytes, check_head, lay_out_body
from diskhop.stores.packed.chunk_file import ChunkFile
from diskhop.stores.packed.fetch import PackedFetch
from diskhop.stores.packed.pack_file import PackFile
from diskhop.stores.packed.packer import Packer
from diskhop.stores.packed.resident import ResidentRows, hold_listed, keep_at_least
from diskhop.stores.packed.sizes import aligned_rows, head_bytes, own_rows, why_not_packable
from diskhop.stores.resources import StoreResources, empty_rows, open_reader, read_in_pieces

_READ_BYTES = 1 << 20
_BEGUN_AHEAD = 2
# Reads of shared rows are merged across half the break-even gap: around the break-even the time hardly changes, and a
# third fewer bytes are read (see docs/log.md).
_SHARED_GAP_DIVISOR = 2


class PackedStore:
    """A store of packed batches, as the module describes it. Batches are submitted in the order of their traces."""

    # Packing a superbatch takes more than half as long as training on it, so one much longer than the one before would
    # be late. Every superbatch costs a pass over the table, so they do grow.
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
            self._resident = ResidentRows(min(resources.share.cache_rows, table.num_rows))
        else:
            self._resident = hold_listed(pinned, table.num_rows)
        unit = aligned_rows(table)
        # Else all of them lie in front of the store, and batches are asked for without them.
        self._has_resident = resources.prepared is None or resources.share.cache_rows > 0
        num_resident = self._resident.num_rows if self._has_resident else 0
        first = -(-num_resident // unit) * unit
        self._rows = empty_rows(BufferPool(0), first + resources.share.buffer_rows, table.row_bytes)
        resident = self._rows[:num_resident]
        reader = open_reader(RowReader, table, resources, resources.max_gap_bytes)
        if resources.prepared is not None:
            if self._has_resident:
                resources.prepared.read_held(resident)
        else:
            ids = np.arange(num_resident) if pinned is None else pinned
            read_in_pieces(reader, ids, resident, None, FetchCounts())
        del reader
        self._packer = Packer(
            table,
            self._resident,
            resources.engine,
            resources.pool,
            resources.share.partition_bytes,
            threads=1,
        )
        self._changed = threading.Condition()
        self._reading: queue.SimpleQueue[PackedFetch | None] = queue.SimpleQueue()
        self._loader = threading.Thread(target=self._await_rows, name="packed-loader", daemon=True)
        self._loader.start()
        num_batches = resources.share.extractors
        slot_rows = resources.share.buffer_rows // num_batches // unit * unit if num_batches else 0
        self._space = BufferSpace(first, len(self._rows), max(unit, slot_rows))
        self._waiting: deque[PackedFetch] = deque()
        self._last_arrival = 0.0
        self._coming: deque[tuple[PackFile, Chunk]] = deque()
        self._files: set[PackFile] = set()
        self._begun: dict[int, PackedFetch] = {}
        self._next: ChunkFile | None = None
        # Finished files, to be overwritten: freeing the disk space of a superbatch takes a second or two, and so does
        # allocating it again.
        self._spare: list[Path] = []
        self._num_files = 0

    # -- packing --

    def start_pass(self) -> None:
        """See LookAheadStore."""
        self._drop()

    def make_room(self, batch: SampledBatch) -> None:
        """See LookAheadStore."""
        if self._next is None:
            self._next = self._new_file()
        num_packed = self._resident.count_missing(batch.row_ids)
        self._next.add(batch.number, batch.num_rows, num_packed, self.table.row_bytes, self._resident.num_rows)

    def look_ahead(self, trace: AccessTrace, keep_on: Callable[[], None]) -> None:
        """See LookAheadStore."""
        file = self._next
        assert file is not None, "make_room was called for the batches of the trace"
        chunks = file.begin(len(trace))
        packing = self._packer.pack(trace, chunks, file.path, self._scratch, keep_on)
        source = PackFile(file.path, chunks, 0, temporary=True)
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
        """Yield batches of a permanent file with the seconds that each took. Submit each one next.

        Reading a chunk starts when two others are ahead of it (DiskGNN, section 5.3). Raises FormatError for a damaged
        chunk.
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

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> PackedFetch:
        """See FeatureStore. Raises BudgetError for a batch larger than the whole buffer."""
        begun = self._begun.get(batch.number)
        if begun is not None:
            make_room(head_bytes(begun.chunk.num_nodes, begun.chunk.record_bytes))
            # Only now: if make_room() raises, the caller never gets the ticket.
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
            # The caller has no ticket to release.
            self.release(fetch)
            raise
        return fetch

    def collect(self, ticket: PackedFetch) -> Rows:
        """See FeatureStore. Raises FormatError for a damaged chunk."""
        with self._changed:
            while not ticket.has_arrived and ticket.error is None:
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
        positions = self._resources.pool.take(8 * chunk.num_nodes).view(np.int64)
        num_resident = self._resident.num_rows
        # Positions of its own rows come after all resident ones, also where these lie elsewhere.
        shift = ticket.base - num_resident if self._has_resident else 0
        load_slots(body.slots_low, body.slots_high, num_resident, shift, positions)
        if not self._has_resident:
            positions = keep_at_least(num_resident, positions)
            positions += ticket.base - num_resident
        num_rows = len(positions)
        counts.rows_requested = num_rows
        counts.rows_hit = num_rows - chunk.num_own
        counts.bytes_needed = num_rows * self.table.row_bytes
        ticket.body = None
        ticket.head = ticket.head[:0]
        return Rows(num_rows, self.table.row_bytes, (RowSegment(self._rows, from_rows=positions),), counts)

    def cancel(self, ticket: PackedFetch) -> None:
        """See FeatureStore."""
        with self._changed:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                ticket.error = CancelledError()
                self._changed.notify_all()

    def release(self, ticket: PackedFetch) -> None:
        """See FeatureStore. The buffer's rows may be reused from now on."""
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
            if ticket.is_released:
                return
            ticket.is_released = True
            if ticket.first is not None:
                chunk = ticket.chunk
                self._space.give_back(ticket.first, own_rows(self.table, chunk.num_packed, chunk.num_shared))
            if ticket.source.leave():
                self._retire(ticket.source)
            self._admit()
            self._changed.notify_all()

    def close(self) -> None:
        """See FeatureStore."""
        self._drop()
        self.free_disk()
        self._reading.put(None)
        self._loader.join()

    def _await_rows(self) -> None:
        """Wait for reads in the order of their submission, on a thread of its own, so that the disk never idles."""
        while (fetch := self._reading.get()) is not None:
            error = None
            if fetch.rows_ticket is not None:
                try:
                    self._engine.wait(fetch.rows_ticket)
                except BaseException as raised:
                    error = raised
            arrived = time.perf_counter()
            # Chunks that are read at the same time each count the seconds since the one before.
            fetch.counts.seconds += arrived - max(fetch.began, self._last_arrival)
            self._last_arrival = arrived
            with self._changed:
                fetch.rows_ticket = None
                fetch.error = fetch.error or error
                fetch.has_arrived = True
                self._changed.notify_all()

    def _require_room(self, chunk: Chunk) -> None:
        lacking_rows = own_rows(self.table, chunk.num_packed, chunk.num_shared) - self._space.num_rows
        if lacking_rows > 0:
            given_bytes = self._resources.memory_bytes
            smallest_bytes = given_bytes + lacking_rows * self.table.row_bytes
            raise BudgetError(
                f"--memory {format_bytes(given_bytes)} is too small: batch {chunk.number} reads {chunk.num_own} rows, "
                f"the buffer for packed batches has {self._space.num_rows}; "
                f"use --memory {-(-smallest_bytes // 1_000_000)}MB or more, or a smaller --batch-size",
                smallest_bytes,
            )

    def _begin(self, source: PackFile, chunk: Chunk) -> PackedFetch:
        """Start reading a chunk: its head now, its rows as soon as the buffer has space."""
        head = self._resources.pool.take(chunk.head_bytes)
        ticket = self._read(source.file, chunk.offset, head, chunk.head_bytes)
        fetch = PackedFetch(source, chunk, head, ticket)
        fetch.counts.reads = -(-chunk.head_bytes // _READ_BYTES)
        fetch.counts.bytes_read = chunk.head_bytes
        with self._changed:
            self._waiting.append(fetch)
            self._admit()
        return fetch

    def _read_head(self, fetch: PackedFetch) -> None:
        """Wait for the head, then start reading the shared rows that it lists."""
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
        """Start reading the rows of waiting batches, in order, while the buffer has space. Needs the lock."""
        while self._waiting:
            fetch = self._waiting[0]
            chunk = fetch.chunk
            first = self._space.take(own_rows(self.table, chunk.num_packed, chunk.num_shared))
            if first is None:
                return
            self._waiting.popleft()
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
                self._reading.put(fetch)
                self._join(fetch)
            except DiskhopError as error:
                fetch.error = error
                self._changed.notify_all()

    def _join(self, fetch: PackedFetch) -> None:
        """Start reading the shared rows, once both their ids and their place are known. Needs the lock."""
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
        """Forget batches that were never submitted."""
        while self._begun:
            self.release(self._begun.popitem()[1])
        self._coming.clear()
        for source in [*self._files]:
            self._retire(source)
        if self._next is not None:
            self._spare.append(self._next.path)
            self._next = None

    def _retire(self, source: PackFile) -> None:
        """Close a file after its last batch, and keep a temporary one to be overwritten."""
        source.close()
        self._files.discard(source)
        if source.temporary:
            self._spare.append(source.path)

    def _new_file(self) -> ChunkFile:
        with self._changed:
            if self._spare:
                return ChunkFile(self._spare.pop())
        path = self._scratch / f"chunks-{self._num_files}.bin"
        self._num_files += 1
        return ChunkFile(path)

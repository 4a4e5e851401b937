"""Files written and read from front to back, in large transfers."""

from __future__ import annotations

import contextlib
import mmap
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File
from diskhop.errors import ReadError, WriteError
from diskhop.io.atomic import destination_errors

TRANSFER_BYTES = 4 << 20
# A part is read by several concurrent requests: a single one does not keep the disk busy.
READ_BYTES = 1 << 20


def in_pieces(num_bytes: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Split a large transfer into concurrent requests. Returns their offsets and lengths, uint64."""
    places = np.arange(0, num_bytes, READ_BYTES, dtype=np.uint64)
    return places, np.minimum(np.uint64(num_bytes) - places, np.uint64(READ_BYTES))


class SequentialWriter:
    """Writes a file from front to back: one buffer of buffer_bytes is filled while the other is written.

    offset: where the content begins, a multiple of 1 MiB; the rest of the file stays as it is. The content is complete
    after finish() and durable after an fsync. Not thread-safe.
    """

    def __init__(
        self, path: Path, engine: Engine, pool: BufferPool, *, buffer_bytes: int = TRANSFER_BYTES, offset: int = 0
    ) -> None:
        self._path = path
        self._engine = engine
        self._buffer_bytes = buffer_bytes
        with destination_errors(path):
            self._file = File(str(path), "write")
        self._buffers = (pool.take(buffer_bytes), pool.take(buffer_bytes))
        self._tickets: list[int | None] = [None, None]
        self._current = 0
        self._filled_bytes = 0
        self._offset = offset

    def append(self, content: NDArray[np.uint8]) -> None:
        """Append bytes (1-D); they are copied before this returns."""
        taken = 0
        while taken < len(content):
            part = content[taken : taken + self._buffer_bytes - self._filled_bytes]
            self._buffers[self._current][self._filled_bytes : self._filled_bytes + len(part)] = part
            self._filled_bytes += len(part)
            taken += len(part)
            if self._filled_bytes == self._buffer_bytes:
                self._flush()

    def finish(self) -> None:
        """Write the rest and wait for everything. Raises DestinationError or WriteError."""
        # Direct I/O and the page cache must not write to the same page (engine.hpp). The unaligned tail goes through
        # the page cache, so it begins at a page and is written last.
        tail_bytes = self._filled_bytes % max(self._file.offset_alignment, mmap.PAGESIZE)
        last, last_bytes = self._current, self._filled_bytes
        self._submit(0, last_bytes - tail_bytes)
        self._wait(1 - last)
        self._wait(last)
        self._submit(last_bytes - tail_bytes, last_bytes)
        self._wait(last)
        self._filled_bytes = 0

    def __enter__(self) -> SequentialWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The engine may still read from the buffers: keep them until it is done.
        for which in range(2):
            with contextlib.suppress(OSError, WriteError):
                self._wait(which)
        # A traceback may keep this object alive; release the descriptor and the memory anyway.
        del self._file, self._buffers

    def _flush(self) -> None:
        self._submit(0, self._buffer_bytes)
        self._filled_bytes = 0
        self._current = 1 - self._current
        self._wait(self._current)

    def _submit(self, begin: int, end: int) -> None:
        if begin == end:
            return
        place, length = np.array([begin], np.uint64), np.array([end - begin], np.uint64)
        with destination_errors(self._path):
            self._tickets[self._current] = self._engine.submit_write(
                self._file, np.array([self._offset], np.uint64), length, self._buffers[self._current], place
            )
        self._offset += end - begin

    def _wait(self, which: int) -> None:
        ticket, self._tickets[which] = self._tickets[which], None
        if ticket is not None:
            with destination_errors(self._path):
                self._engine.wait(ticket)


def read_in_order(
    file: File, num_bytes: int, engine: Engine, pool: BufferPool, every: int = 1
) -> Iterator[NDArray[np.uint8]]:
    """Yield the first num_bytes of a file in parts of TRANSFER_BYTES, prefetching the next part.

    A part is valid until the next one is requested. every: n reads the first of each n parts. Takes 2 * TRANSFER_BYTES
    from the pool. Raises ReadError.
    """
    step_bytes = every * TRANSFER_BYTES
    buffers = (pool.take(TRANSFER_BYTES), pool.take(TRANSFER_BYTES))
    aligned_bytes = -(-num_bytes // file.offset_alignment) * file.offset_alignment
    tickets: deque[int] = deque()

    def submit(start: int) -> None:
        offsets = np.arange(start, min(start + TRANSFER_BYTES, num_bytes), READ_BYTES, dtype=np.uint64)
        lengths = np.minimum(np.uint64(READ_BYTES), np.uint64(aligned_bytes) - offsets)
        required = np.minimum(np.uint64(READ_BYTES), np.uint64(num_bytes) - offsets)
        buffer = buffers[start // step_bytes % 2]
        tickets.append(engine.submit_read(file, offsets, lengths, buffer, offsets - np.uint64(start), required))

    try:
        for start in range(0, num_bytes, step_bytes):
            if start == 0:
                submit(0)
            if start + step_bytes < num_bytes:
                submit(start + step_bytes)
            engine.wait(tickets.popleft())
            yield buffers[start // step_bytes % 2][: num_bytes - start]
    finally:
        # The engine may still write to a buffer: keep it until the engine is done.
        for ticket in tickets:
            with contextlib.suppress(ReadError):
                engine.wait(ticket)

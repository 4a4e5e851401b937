"""Writing packed batches to a file: pieces at any offset, and rows appended one after the other."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop._native import Engine, File, copy_rows
from diskhop.counters import PackingCounts
from diskhop.io.atomic import destination_errors
from diskhop.io.streams import in_pieces
from diskhop.stores.packed.chunk import BLOCK_BYTES

# Bodies that are being written; the packer prepares one more meanwhile.
BODIES_WRITING = 2


class ChunkWriter:
    """Writes anywhere in a file. Some staging buffers are filled while others are written."""

    def __init__(self, engine: Engine, path: Path, staging: Sequence[NDArray[np.uint8]], counts: PackingCounts) -> None:
        self._engine = engine
        self._path = path
        with destination_errors(path):
            self._file = File(str(path), "write")
        self._staged: deque[tuple[NDArray[np.uint8], int | None]] = deque((buffer, None) for buffer in staging)
        self._writing: deque[int] = deque()
        self._counts = counts

    def free_buffer(self) -> NDArray[np.uint8]:
        """Return a free staging buffer, uint8: the same one until it is written."""
        buffer, ticket = self._staged[0]
        if ticket is not None:
            self._staged[0] = buffer, None
            self._wait(ticket)
        return buffer

    def write_staged(self, begin: int, end: int, offset: int) -> None:
        """Write bytes begin to end of the free buffer."""
        buffer, _ = self._staged.popleft()
        self._staged.append((buffer, self._submit(buffer[begin:end], offset)))

    def write(self, content: NDArray[np.uint8], offset: int) -> None:
        """Write a whole array, which the engine keeps alive."""
        self._writing.append(self._submit(content, offset))
        if len(self._writing) > BODIES_WRITING:
            self._wait(self._writing.popleft())

    def settle(self) -> None:
        """Wait for all writes. Raises DestinationError or WriteError."""
        while self._writing:
            self._wait(self._writing.popleft())
        for _ in range(len(self._staged)):
            self.free_buffer()
            self._staged.rotate(-1)

    def __enter__(self) -> ChunkWriter:
        return self

    def __exit__(self, *_: object) -> None:
        # The engine may still read from the buffers: they must not change before it is done.
        tickets = [*self._writing, *(ticket for _, ticket in self._staged if ticket is not None)]
        for ticket in tickets:
            with contextlib.suppress(OSError):
                self._engine.wait(ticket)
        # The traceback of an error may keep this object alive, but must not keep the descriptor.
        del self._file

    def _submit(self, content: NDArray[np.uint8], offset: int) -> int:
        places, lengths = in_pieces(len(content))
        self._counts.bytes_written += len(content)
        with destination_errors(self._path):
            return self._engine.submit_write(self._file, places + np.uint64(offset), lengths, content, places)

    def _wait(self, ticket: int) -> None:
        with destination_errors(self._path):
            self._engine.wait(ticket)


class RowAppender:
    """Appends rows from an offset on.

    is_summed: keep a checksum.
    edges: after finish(), offsets and bytes in blocks that other appenders write to too, or that are not full.
    """

    def __init__(self, writer: ChunkWriter, offset: int, row_bytes: int, threads: int, *, is_summed: bool) -> None:
        self._writer = writer
        self.first_offset = offset
        # Bytes of the first block before the first row.
        self._others_bytes = offset % BLOCK_BYTES
        self._offset = offset - self._others_bytes
        self._rest = np.zeros(self._others_bytes, np.uint8)
        self._row_bytes = row_bytes
        self._threads = threads
        self._hasher = xxhash.xxh3_64() if is_summed else None
        self.edges: list[tuple[int, NDArray[np.uint8]]] = []

    @property
    def checksum(self) -> int:
        """xxh3 of the rows so far; 0 if no checksum is kept."""
        return 0 if self._hasher is None else self._hasher.intdigest()

    def append(self, rows: NDArray[np.uint8], wanted: NDArray[np.int64]) -> None:
        """Append rows[wanted]."""
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
        """Note the last, incomplete block as an edge."""
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
        """Keep this appender's bytes of a block."""
        if len(block) > self._others_bytes:
            self.edges.append((self._offset + self._others_bytes, block[self._others_bytes :]))


def edge_blocks(appenders: Sequence[RowAppender]) -> dict[int, NDArray[np.uint8]]:
    """Return the blocks that edges lie in, by offset, filled up with zeros."""
    blocks: dict[int, NDArray[np.uint8]] = {}
    for appender in appenders:
        for offset, content in appender.edges:
            place = offset % BLOCK_BYTES
            block = blocks.setdefault(offset - place, np.zeros(BLOCK_BYTES, np.uint8))
            block[place : place + len(content)] = content
    return blocks

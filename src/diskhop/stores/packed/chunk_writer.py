"""Writing packed batches to a file: pieces at any offset, and rows appended to many chunks at once."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop._native import Engine, File, append_rows
from diskhop.counters import PackingCounts
from diskhop.io.atomic import destination_errors
from diskhop.io.streams import in_pieces
from diskhop.stores.packed.chunk import BLOCK_BYTES
from diskhop.stores.packed.row_lists import ListsOfPartition

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

    def write_staged(self, places: NDArray[np.int64], lengths: NDArray[np.int64], offsets: NDArray[np.int64]) -> None:
        """Write pieces of the free buffer. places: their first bytes there. offsets: those in the file."""
        buffer, _ = self._staged.popleft()
        self._staged.append((buffer, self._submit(buffer, places, lengths, offsets)))

    def write(self, content: NDArray[np.uint8], offset: int) -> None:
        """Write a whole array, which the engine keeps alive."""
        places, lengths = in_pieces(len(content))
        self._writing.append(self._submit(content, places, lengths, places + np.uint64(offset)))
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

    def _submit(
        self, content: NDArray[np.uint8], places: NDArray[Any], lengths: NDArray[Any], offsets: NDArray[Any]
    ) -> int:
        self._counts.bytes_written += int(lengths.sum())
        places, lengths, offsets = (each.astype(np.uint64, copy=False) for each in (places, lengths, offsets))
        with destination_errors(self._path):
            return self._engine.submit_write(self._file, offsets, lengths, content, places)

    def _wait(self, ticket: int) -> None:
        with destination_errors(self._path):
            self._engine.wait(ticket)


class RowAppenders:
    """Appends rows to streams of a file, each from an offset of its own on. Whole blocks are written at once.

    offsets: of the streams.
    is_summed: keep a checksum of each.
    edges: after finish(), offsets and bytes in blocks that other streams have bytes in too, or that are not full.
    """

    def __init__(
        self, writer: ChunkWriter, offsets: Sequence[int], row_bytes: int, threads: int, *, is_summed: bool
    ) -> None:
        self._writer = writer
        self._first_offsets = offsets
        first_offsets = np.array(offsets, np.int64)
        # Bytes of the first block before the first row; 0 once that block is complete.
        self._others_bytes = first_offsets % BLOCK_BYTES
        self._offsets = first_offsets - self._others_bytes
        # What does not fill a block.
        self._rest_bytes = self._others_bytes.copy()
        self._rests = np.zeros((len(offsets), BLOCK_BYTES), np.uint8)
        self._row_bytes = row_bytes
        self._threads = threads
        self._hashers = [xxhash.xxh3_64() for _ in offsets] if is_summed else []
        self.edges: list[tuple[int, NDArray[np.uint8]]] = []

    def checksums(self) -> dict[int, int]:
        """xxh3 of the rows so far, by the offset of the stream; 0 if no checksums are kept."""
        sums = [hasher.intdigest() for hasher in self._hashers] or [0] * len(self._first_offsets)
        return dict(zip(self._first_offsets, sums, strict=True))

    def append(
        self, rows: NDArray[np.uint8], first_id: int, lists: ListsOfPartition, keep_on: Callable[[], None]
    ) -> None:
        """Append the rows of one list to each stream.

        rows: those of the table from first_id on. keep_on: called once per stream; an exception from it ends the work.
        """
        most_rows = (len(self._writer.free_buffer()) - BLOCK_BYTES) // self._row_bytes
        begins, left = lists.begins, lists.counts
        while left.any():
            counts = np.minimum(left, most_rows)
            for streams, places in self._groups(counts):
                for _ in places:
                    keep_on()
                buffer = self._writer.free_buffer()
                rest_bytes = self._rest_bytes[streams].copy()
                ends = rest_bytes + counts[streams] * self._row_bytes
                append_rows(
                    rows,
                    lists.ids,
                    first_id,
                    begins[streams],
                    counts[streams],
                    places,
                    self._rests[streams],
                    self._rest_bytes[streams],
                    buffer,
                    self._threads,
                )
                if self._hashers:
                    for hasher, begin, end in zip(
                        self._hashers[streams], (places + rest_bytes).tolist(), (places + ends).tolist(), strict=True
                    ):
                        hasher.update(buffer[begin:end].data)
                self._write(streams, buffer, places, ends // BLOCK_BYTES * BLOCK_BYTES)
            begins, left = begins + counts, left - counts

    def finish(self) -> None:
        """Note the last, incomplete blocks as edges."""
        for stream, num_bytes in enumerate(self._rest_bytes.tolist()):
            self._note_edge(stream, self._rests[stream, :num_bytes])

    def _groups(self, counts: NDArray[np.int64]) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Yield streams in order, as many as fit a staging buffer, and where each begins there."""
        # A stream without rows keeps its rest.
        num_bytes = np.where(counts > 0, self._rest_bytes + counts * self._row_bytes, 0)
        places = np.cumsum(-(-num_bytes // BLOCK_BYTES) * BLOCK_BYTES)
        buffer_bytes, first, begin = len(self._writer.free_buffer()), 0, 0
        while first < len(counts):
            stop = int(np.searchsorted(places, begin + buffer_bytes, side="right"))
            starts = np.concatenate([[begin], places[first : stop - 1]]) - begin
            yield slice(first, stop), starts
            first, begin = stop, int(places[stop - 1])

    def _write(
        self, streams: slice, buffer: NDArray[np.uint8], places: NDArray[np.int64], whole_bytes: NDArray[np.int64]
    ) -> None:
        """Write the whole blocks of a group of streams, except for those that others have bytes in."""
        offsets, others_bytes = self._offsets[streams], self._others_bytes[streams]
        # A view: later blocks of the stream are its own.
        skipped = np.where((others_bytes > 0) & (whole_bytes > 0), BLOCK_BYTES, 0)
        for index in np.flatnonzero(skipped).tolist():
            place = int(places[index])
            self._note_edge(streams.start + index, buffer[place : place + BLOCK_BYTES].copy())
            others_bytes[index] = 0
        is_written = whole_bytes > skipped
        if is_written.any():
            self._writer.write_staged(
                (places + skipped)[is_written], (whole_bytes - skipped)[is_written], (offsets + skipped)[is_written]
            )
        offsets += whole_bytes

    def _note_edge(self, stream: int, block: NDArray[np.uint8]) -> None:
        """Keep this stream's bytes of the block that comes next."""
        others_bytes = int(self._others_bytes[stream])
        if len(block) > others_bytes:
            self.edges.append((int(self._offsets[stream]) + others_bytes, block[others_bytes:]))


def edge_blocks(edges: Iterable[tuple[int, NDArray[np.uint8]]]) -> dict[int, NDArray[np.uint8]]:
    """Return the blocks that edges lie in, by offset, filled up with zeros."""
    blocks: dict[int, NDArray[np.uint8]] = {}
    for offset, content in edges:
        place = offset % BLOCK_BYTES
        block = blocks.setdefault(offset - place, np.zeros(BLOCK_BYTES, np.uint8))
        block[place : place + len(content)] = content
    return blocks

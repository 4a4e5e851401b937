"""Moves of partitions between memory and files, in pieces.

A piece is read into its memory as soon as that memory is written, so that the disk reads one partition while it writes
another, and checksums are computed meanwhile.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine, File, page_sums
from diskhop.errors import ReadError, WriteError
from diskhop.io.atomic import destination_errors
from diskhop.io.streams import in_pieces

PAGE_BYTES = 4096
WORD = 1 << 64
PIECE_BYTES = 4 << 20
# 32 MiB each way: enough to keep the disk busy while a checksum is computed.
_PIECES_IN_FLIGHT = 8


class LoadedPartition(NamedTuple):
    """A partition's bytes in memory, aligned for direct I/O.

    values: bytes of the embeddings.
    squares: bytes of Adagrad's sums of squares.
    """

    values: NDArray[np.uint8]
    squares: NDArray[np.uint8]


class ContentSums(NamedTuple):
    """Checksums of a partition: of the embeddings, and of Adagrad's sums of squares."""

    values: int
    squares: int


def move(
    engine: Engine, loaded: LoadedPartition, target: tuple[File, Path] | None, source: File | None
) -> tuple[ContentSums, ContentSums]:
    """Write memory to the target, and read the source into it. Returns checksums of what is written and read.

    target: a file and its path; None: nothing is written.
    source: a file; None: nothing is read.
    Raises DestinationError, WriteError or ReadError after all I/O in flight has ended.
    """
    return _Moving(engine, loaded, target, source).run()


class _Piece(NamedTuple):
    """A piece of a partition. part: 0 of the embeddings, 1 of the sums of squares. offset: in the file."""

    part: int
    memory: NDArray[np.uint8]
    offset: int


class _Moving:
    """A move; see move(). A piece takes these steps: checksum, write, wait, read, wait, checksum."""

    def __init__(
        self, engine: Engine, loaded: LoadedPartition, target: tuple[File, Path] | None, source: File | None
    ) -> None:
        self._engine = engine
        self._pieces = list(_pieces_of(loaded))
        self._target = target
        self._source = source
        self._sums = [[0, 0], [0, 0]]  # of what is written, of what is read
        self._writes: deque[tuple[_Piece, int]] = deque()
        self._reads: deque[tuple[_Piece, int]] = deque()

    def run(self) -> tuple[ContentSums, ContentSums]:
        """See move()."""
        try:
            for piece in self._pieces:
                self._write(piece)
                self._finish_writes(_PIECES_IN_FLIGHT)
            self._finish_writes(0)
            self._finish_reads(0)
        finally:
            # The engine may still use the memory: wait until it is done.
            for _, ticket in (*self._writes, *self._reads):
                with contextlib.suppress(OSError, ReadError, WriteError):
                    self._engine.wait(ticket)
        written, read = self._sums
        return ContentSums(*written), ContentSums(*read)

    def _write(self, piece: _Piece) -> None:
        if self._target is None:
            self._read(piece)
            return
        file, path = self._target
        self._add_sum(0, piece)
        with destination_errors(path):
            self._writes.append((piece, _submit(self._engine.submit_write, file, piece)))

    def _finish_writes(self, most: int) -> None:
        while len(self._writes) > most:
            piece, ticket = self._writes.popleft()
            assert self._target is not None, "it was written to"
            with destination_errors(self._target[1]):
                self._engine.wait(ticket)
            self._read(piece)

    def _read(self, piece: _Piece) -> None:
        if self._source is not None:
            self._reads.append((piece, _submit(self._engine.submit_read, self._source, piece)))
            self._finish_reads(_PIECES_IN_FLIGHT)

    def _finish_reads(self, most: int) -> None:
        while len(self._reads) > most:
            piece, ticket = self._reads.popleft()
            self._engine.wait(ticket)
            self._add_sum(1, piece)

    def _add_sum(self, way: int, piece: _Piece) -> None:
        pages = page_sums(piece.memory, piece.offset // PAGE_BYTES)
        self._sums[way][piece.part] = (self._sums[way][piece.part] + pages) % WORD


def _pieces_of(loaded: LoadedPartition) -> Iterator[_Piece]:
    start = 0
    for part, memory in enumerate(loaded):
        for begin in range(0, memory.nbytes, PIECE_BYTES):
            yield _Piece(part, memory[begin : begin + PIECE_BYTES], start + begin)
        start += memory.nbytes


def _submit(submit: Callable[..., int], file: File, piece: _Piece) -> int:
    places, sizes = in_pieces(piece.memory.nbytes)
    return submit(file, places + np.uint64(piece.offset), sizes, piece.memory, places)

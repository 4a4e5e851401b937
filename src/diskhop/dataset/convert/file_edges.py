"""Edges in a file of ids, read anywhere in it with direct I/O."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File
from diskhop.dataset.convert.npy import source_errors

_PAGE_BYTES = 4096
# Several of these at once reach the disk's bandwidth.
_READ_BYTES = 512 << 10
# Fresh memory costs more than a small read.
_KEPT_BYTES = 64 << 20


class FileEdges:
    """See EdgeSource. Ids from first_byte on: all sources, then all destinations, or `by_pairs` one after the other."""

    def __init__(
        self, path: Path, engine: Engine, *, dtype: np.dtype[Any], num_edges: int, first_byte: int, by_pairs: bool
    ) -> None:
        self._path = path
        self._engine = engine
        self._dtype = dtype
        self._num_edges = num_edges
        self._first_byte = first_byte
        self._by_pairs = by_pairs
        self._pool = BufferPool(_KEPT_BYTES)
        with source_errors(str(path)):
            self._file = File(str(path), "read")
            status = path.stat()
        self._identity = (
            f"{path.resolve()}: {status.st_size} bytes of {status.st_mtime_ns}, {num_edges} edges of {dtype.str} "
            f"from {first_byte}, {'by pairs' if by_pairs else 'by ends'}"
        )

    @property
    def num_edges(self) -> int:
        """See EdgeSource."""
        return self._num_edges

    @property
    def identity(self) -> str:
        """See EdgeSource: a file that changes without its time or length changing is not noticed."""
        return self._identity

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """See EdgeSource."""
        if self._by_pairs:
            (pairs,) = self._read_ids([(2 * first, 2 * count)])
            return pairs[0::2], pairs[1::2]
        sources, destinations = self._read_ids([(first, count), (self._num_edges + first, count)])
        return sources, destinations

    def _read_ids(self, runs: list[tuple[int, int]]) -> list[NDArray[Any]]:
        """Runs of ids (first, count), read together; whole pages of the file, each run to a page of its own."""
        offsets: list[int] = []
        lengths: list[int] = []
        required: list[int] = []
        places: list[int] = []
        begins = []
        taken_bytes = 0
        for first, count in runs:
            begin = self._first_byte + first * self._dtype.itemsize
            end = begin + count * self._dtype.itemsize
            page = begin // _PAGE_BYTES * _PAGE_BYTES
            begins.append(taken_bytes + begin - page)
            for offset in range(page, end, _READ_BYTES):
                length = min(_READ_BYTES, -(-(end - offset) // _PAGE_BYTES) * _PAGE_BYTES)
                offsets.append(offset)
                lengths.append(length)
                required.append(min(length, end - offset))
                places.append(taken_bytes + offset - page)
            taken_bytes += -(-(end - page) // _PAGE_BYTES) * _PAGE_BYTES
        buffer = self._pool.take(taken_bytes)
        with source_errors(str(self._path)):
            ticket = self._engine.submit_read(
                self._file,
                np.array(offsets, np.uint64),
                np.array(lengths, np.uint64),
                buffer,
                np.array(places, np.uint64),
                np.array(required, np.uint64),
            )
            self._engine.wait(ticket)
        return [
            buffer[begin : begin + count * self._dtype.itemsize].view(self._dtype)
            for begin, (_, count) in zip(begins, runs, strict=True)
        ]

"""Edges in NumPy arrays: files are read in place, members of archives are unpacked first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File
from diskhop.dataset.edges import ArrayEdges, EdgeSource
from diskhop.dataset.sort.plan import bytes_in_memory
from diskhop.importing.arrays.npy import FileArray, StoredArray
from diskhop.importing.source_file import changed_error, file_identity, source_errors
from diskhop.importing.tools import ImportTools
from diskhop.io.atomic import require_free_space
from diskhop.io.streams import TRANSFER_BYTES, SequentialWriter
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.jobs import Share
from diskhop.runtime.progress import Progress, tracked
from diskhop.runtime.tasks import TaskTools, run_tasks

_PAGE_BYTES = 4096
# Several reads of this size in flight reach the disk's bandwidth.
_READ_BYTES = 512 << 10
# Buffers kept for reuse: new memory costs more than a small read.
_KEPT_BYTES = 64 << 20
_WIDEST_KEY_BYTES = 16
_UNPACKED_NAME = "edge_index"
# Largest reservation of open_edges for an archive's edges that are unpacked to disk.
UNPACKING = "unpacking edges"
UNPACKING_BYTES = 3 * TRANSFER_BYTES


def open_edges(array: StoredArray, work: ImportTools, *, by_rows: bool = False) -> EdgeSource:
    """Open the edges in an array (2, edges) of integers, or `by_rows` (edges, 2).

    Edges in an archive are unpacked into memory if that leaves enough for sorting, else into the work folder.
    """
    budget = work.budget
    num_edges = array.shape[0 if by_rows else 1]
    by_pairs = array.by_columns != by_rows
    if num_edges == 0:
        return ArrayEdges(np.zeros((2, 0), np.int64))
    if isinstance(array, FileArray):
        path, first_byte = array.path, array.header_bytes
    else:
        stored_bytes = array.num_items * array.dtype.itemsize
        if stored_bytes + bytes_in_memory(num_edges, _WIDEST_KEY_BYTES, 1, work.limits.sort) <= budget.available_bytes:
            work.held.enter_context(budget.reserve("edges as stored", stored_bytes))
            items = np.empty(array.num_items, array.dtype)
            filled = 0
            for block in _unpacked(array, work.progress):
                items[filled : filled + len(block)] = block
                filled += len(block)
            return ArrayEdges(items.reshape(-1, 2).T if by_pairs else items.reshape(2, -1))
        path, first_byte = _unpack(array, work), 0
    return FileEdges(
        path,
        work.tools.engine,
        dtype=array.dtype,
        num_edges=num_edges,
        first_byte=first_byte,
        by_pairs=by_pairs,
    )


def _unpack(array: StoredArray, work: ImportTools) -> Path:
    folder = work.stage("unpack", array.identity)
    if not (folder / _UNPACKED_NAME).exists():
        require_free_space(folder, array.num_items * array.dtype.itemsize)
    with work.budget.reserve(UNPACKING, UNPACKING_BYTES):
        run_tasks([_Unpack(_UNPACKED_NAME, array, work.progress)], folder, work.tools, threads=1)
    return folder / _UNPACKED_NAME


@dataclass(frozen=True, slots=True)
class _Unpack:
    """Writes the ids of an archive's array to a file."""

    name: str
    array: StoredArray
    progress: Progress

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task."""
        with SequentialWriter(path, tools.engine, BufferPool(2 * TRANSFER_BYTES)) as writer:
            for block in _unpacked(self.array, self.progress):
                writer.append(block.view(np.uint8))
            writer.finish()


def _unpacked(array: StoredArray, progress: Progress) -> Iterator[NDArray[Any]]:
    """Yield the ids of an array, in stored order."""

    def blocks() -> Iterator[NDArray[Any]]:
        with array.open(any_order=True) as stream:
            for start, stop in row_ranges(array.num_items, TRANSFER_BYTES // array.dtype.itemsize):
                yield stream.take(stop - start)
            stream.finish()

    return tracked(blocks(), progress, UNPACKING, array.num_items)


class FileEdges:
    """EdgeSource in a file.

    path: the file.
    dtype: integer type of the ids.
    num_edges: number of edges.
    first_byte: offset of the first id.
    by_pairs: whether each source is followed by its destination; else all sources precede all destinations.
    kept_bytes: memory of buffers that are kept for reuse.
    """

    def __init__(
        self,
        path: Path,
        engine: Engine,
        *,
        dtype: np.dtype[Any],
        num_edges: int,
        first_byte: int,
        by_pairs: bool,
        kept_bytes: int = _KEPT_BYTES,
    ) -> None:
        self._path = path
        self._engine = engine
        self._dtype = dtype
        self._num_edges = num_edges
        self._first_byte = first_byte
        self._by_pairs = by_pairs
        self._pool = BufferPool(kept_bytes)
        with source_errors(str(path)):
            self._file = File(str(path), "read")
            identity = file_identity(path)
        order = "by pairs" if by_pairs else "by ends"
        self._identity = f"{identity}, {num_edges} edges of {dtype.str} from byte {first_byte}, {order}"

    @property
    def num_edges(self) -> int:
        """See EdgeSource."""
        return self._num_edges

    @property
    def identity(self) -> str:
        """See EdgeSource. A change that keeps the file's time and length goes unnoticed."""
        return self._identity

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """See EdgeSource."""
        if self._by_pairs:
            (pairs,) = self._read_ids([(2 * first, 2 * count)])
            return pairs[0::2], pairs[1::2]
        sources, destinations = self._read_ids([(first, count), (self._num_edges + first, count)])
        return sources, destinations

    def for_workers(self, share: Share) -> partial[FileEdges]:
        """See Workers."""
        return partial(
            _open_again,
            self._identity,
            self._path,
            self._engine,
            dtype=self._dtype,
            num_edges=self._num_edges,
            first_byte=self._first_byte,
            by_pairs=self._by_pairs,
            kept_bytes=_KEPT_BYTES // share.processes,
        )

    def _read_ids(self, runs: list[tuple[int, int]]) -> list[NDArray[Any]]:
        """Read runs of ids (first, count) together, as whole pages, each run into pages of its own in a buffer."""
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


def _open_again(identity: str, path: Path, engine: Engine, **options: Any) -> FileEdges:
    edges = FileEdges(path, engine, **options)
    if edges.identity != identity:
        raise changed_error(path)
    return edges

"""Lists of row ids on the disk while batches are packed: written one by one, read partition by partition.

A list has the ids of one chunk or segment, grouped by partition of the table and in storage order within each.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File
from diskhop.errors import ReadError
from diskhop.io.atomic import destination_errors

_BLOCK_BYTES, _ID_BYTES = 4096, 4
# Lists that are being written; the packer prepares one more meanwhile.
_WRITING = 2


def list_bytes(num_ids: int) -> int:
    """Disk space of a list."""
    return -(-_ID_BYTES * num_ids // _BLOCK_BYTES) * _BLOCK_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class _List:
    """A written list.

    offset: first byte in the file.
    part_offsets: int64 (partitions + 1), first byte of each part in the file, and the end of the last one.
    checksums: xxh3 of each part.
    """

    offset: int
    part_offsets: NDArray[np.int64]
    checksums: list[int]


@dataclass(slots=True, eq=False)
class ListsOfPartition:
    """Parts of all lists for one partition, while they are read; valid after wait().

    ids: uint32, those of all parts, with others between.
    begins, counts: int64 (lists), where each part begins in `ids`, and its ids.
    """

    partition: int
    ids: NDArray[np.uint32]
    begins: NDArray[np.int64]
    counts: NDArray[np.int64]
    ticket: int | None


class RowLists:
    """Lists in a temporary file, which close() removes. Not thread-safe."""

    def __init__(self, path: Path, engine: Engine, pool: BufferPool) -> None:
        self._path = path
        self._engine = engine
        self._pool = pool
        with destination_errors(path):
            self._file = File(str(path), "write")
        self._to_read = File(str(path), "read")
        self._lists: list[_List] = []
        self._num_bytes = 0
        self._writing: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._lists)

    def add(self, ids: NDArray[np.uint32], bounds: NDArray[np.int64]) -> None:
        """Add a list; ids[bounds[p] : bounds[p + 1]] are its part for partition p. Raises as finish()."""
        num_bytes = list_bytes(len(ids))
        checksums = [xxhash.xxh3_64_intdigest(ids[begin:end].data) for begin, end in _pairs(bounds)]
        self._lists.append(_List(self._num_bytes, self._num_bytes + _ID_BYTES * bounds, checksums))
        if num_bytes:
            buffer = self._pool.take(num_bytes)
            buffer[: ids.nbytes] = ids.view(np.uint8)
            buffer[ids.nbytes :] = 0
            where = np.array([self._num_bytes], np.uint64), np.array([num_bytes], np.uint64)
            with destination_errors(self._path):
                self._writing.append(self._engine.submit_write(self._file, *where, buffer, np.zeros(1, np.uint64)))
            self._num_bytes += num_bytes
        if len(self._writing) > _WRITING:
            self._settle()

    def finish(self) -> None:
        """Wait for all writes. Raises DestinationError or WriteError."""
        while self._writing:
            self._settle()

    def begin(self, partition: int) -> ListsOfPartition:
        """Start reading the parts for one partition."""
        # (lists, 2): first byte of each part in the file, and the byte after the last one.
        parts = np.array([each.part_offsets[partition : partition + 2] for each in self._lists], np.int64).reshape(
            -1, 2
        )
        begins, ends = parts[:, 0], parts[:, 1]
        block_begins = begins // _BLOCK_BYTES * _BLOCK_BYTES
        lengths = np.where(ends > begins, -(-ends // _BLOCK_BYTES) * _BLOCK_BYTES - block_begins, 0)
        places = np.cumsum(lengths) - lengths
        buffer = self._pool.take(int(lengths.sum()))
        is_read = lengths > 0
        ticket = None
        if is_read.any():
            ticket = self._engine.submit_read(
                self._to_read,
                block_begins[is_read].astype(np.uint64),
                lengths[is_read].astype(np.uint64),
                buffer,
                places[is_read].astype(np.uint64),
            )
        first_ids = (places + begins - block_begins) // _ID_BYTES
        return ListsOfPartition(partition, buffer.view(np.uint32), first_ids, (ends - begins) // _ID_BYTES, ticket)

    def wait(self, lists: ListsOfPartition) -> None:
        """Wait for parts that begin() started. Raises ReadError, also for a part that differs from what was written."""
        ticket, lists.ticket = lists.ticket, None
        if ticket is not None:
            self._engine.wait(ticket)
        ends = lists.begins + lists.counts
        for each, begin, end in zip(self._lists, lists.begins.tolist(), ends.tolist(), strict=True):
            if xxhash.xxh3_64_intdigest(lists.ids[begin:end].data) != each.checksums[lists.partition]:
                raise ReadError(
                    f"{self._path}: damaged: ids after offset {each.offset} are not those that were written; "
                    "check the disk, then run the same command again"
                )

    def leave(self, lists: ListsOfPartition) -> None:
        """Wait for parts that are no longer needed."""
        ticket, lists.ticket = lists.ticket, None
        if ticket is not None:
            with contextlib.suppress(OSError):
                self._engine.wait(ticket)

    def close(self) -> None:
        """Remove the file."""
        while self._writing:
            with contextlib.suppress(OSError):
                self._engine.wait(self._writing.popleft())
        # Descriptors must not stay open until this object is collected.
        self.__dict__.pop("_file", None)
        self.__dict__.pop("_to_read", None)
        self._path.unlink(missing_ok=True)

    def _settle(self) -> None:
        with destination_errors(self._path):
            self._engine.wait(self._writing.popleft())


def _pairs(bounds: NDArray[np.int64]) -> list[tuple[int, int]]:
    listed = bounds.tolist()
    return list(itertools.pairwise(listed))

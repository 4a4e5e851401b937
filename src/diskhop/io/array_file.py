"""A temporary file of arrays that one run writes and reads back; every read is checked against a checksum."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File
from diskhop.errors import ReadError
from diskhop.io.atomic import allocate, destination_errors

_BLOCK_BYTES = 4096


class _Record(NamedTuple):
    offset: int
    num_bytes: int
    checksum: int
    arrays: tuple[tuple[np.dtype[Any], int], ...]


class ArrayFile:
    """Records of 1-D arrays in a file that is private to this process; close() removes it.

    Takes the bytes of one record from the pool while it is written or read. Not thread-safe.
    """

    def __init__(self, path: Path, engine: Engine, pool: BufferPool) -> None:
        self._path = path
        self._engine = engine
        self._pool = pool
        with destination_errors(path):
            self._file = File(str(path), "write")
        self._to_read = File(str(path), "read")
        self._block_bytes = max(_BLOCK_BYTES, self._file.offset_alignment, self._file.memory_alignment)
        self._records: list[_Record] = []
        self._num_bytes = 0
        self._allocated_bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def allocate(self, array_bytes: int) -> None:
        """Allocate disk space for one more record. Raises DestinationError if the disk is full."""
        num_bytes = self._record_bytes(array_bytes)
        allocate(self._path, self._allocated_bytes, num_bytes)
        self._allocated_bytes += num_bytes

    def append(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Write one record. Raises DestinationError or WriteError; the record then does not exist."""
        num_bytes = sum(array.nbytes for array in arrays)
        record_bytes = self._record_bytes(num_bytes)
        checksum = 0
        if record_bytes:
            buffer = self._pool.take(record_bytes)
            place = 0
            for array in arrays:
                buffer[place : place + array.nbytes] = array.view(np.uint8)
                place += array.nbytes
            buffer[place:] = 0
            checksum = xxhash.xxh3_64_intdigest(buffer[:num_bytes].data)
            where = _numbers(self._num_bytes), _numbers(record_bytes)
            with destination_errors(self._path):
                self._engine.wait(self._engine.submit_write(self._file, *where, buffer, _numbers(0)))
        shapes = tuple((array.dtype, len(array)) for array in arrays)
        self._records.append(_Record(self._num_bytes, num_bytes, checksum, shapes))
        self._num_bytes += record_bytes

    def read(self, index: int) -> list[NDArray[Any]]:
        """Read the arrays of a record, read-only. Raises ReadError if its checksum does not match."""
        record = self._records[index]
        buffer = np.empty(0, np.uint8)
        if record.num_bytes:
            record_bytes = self._record_bytes(record.num_bytes)
            buffer = self._pool.take(record_bytes)
            where = _numbers(record.offset), _numbers(record_bytes)
            self._engine.wait(self._engine.submit_read(self._to_read, *where, buffer, _numbers(0)))
            if xxhash.xxh3_64_intdigest(buffer[: record.num_bytes].data) != record.checksum:
                raise ReadError(
                    f"{self._path}: {record.num_bytes} bytes at offset {record.offset} do not match their "
                    "checksum; check the disk, then run the command again"
                )
        buffer.flags.writeable = False
        arrays = []
        place = 0
        for dtype, length in record.arrays:
            arrays.append(buffer[place : place + length * dtype.itemsize].view(dtype))
            place += length * dtype.itemsize
        return arrays

    def pop(self) -> list[NDArray[Any]]:
        """Read the last record and remove it; the next one overwrites it."""
        arrays = self.read(len(self._records) - 1)
        self._num_bytes = self._records.pop().offset
        return arrays

    def close(self) -> None:
        """Remove the file."""
        # Close the descriptors now, even if this object is still referenced.
        self.__dict__.pop("_file", None)
        self.__dict__.pop("_to_read", None)
        self._path.unlink(missing_ok=True)

    def _record_bytes(self, array_bytes: int) -> int:
        return -(-array_bytes // self._block_bytes) * self._block_bytes


def _numbers(value: int) -> NDArray[np.uint64]:
    return np.array([value], np.uint64)

"""Columns of integers, one per edge for example, in memory or in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import ReadError
from diskhop.io.atomic import allocate, destination_errors


class Column(Protocol):
    """Integers by position."""

    def put(self, starts: NDArray[np.int64], counts: NDArray[np.int64], values: NDArray[np.int64]) -> None:
        """Set the values from each start on: counts[0] of them, then counts[1], and so on."""

    def get(self, start: int, stop: int) -> NDArray[Any]:
        """Return the values from `start` to `stop` (exclusive)."""


class MemoryColumn:
    """Column in memory."""

    def __init__(self, values: NDArray[Any]) -> None:
        self._values = values

    def put(self, starts: NDArray[np.int64], counts: NDArray[np.int64], values: NDArray[np.int64]) -> None:
        """See Column."""
        first = 0
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            self._values[start : start + count] = values[first : first + count]
            first += count

    def get(self, start: int, stop: int) -> NDArray[Any]:
        """See Column."""
        return self._values[start:stop]


class FileColumn:
    """Column in a file, which is overwritten: it is derived from the dataset. Raises DestinationError, ReadError.

    Several processes may set values at the same time.
    """

    def __init__(self, path: Path, num_values: int, dtype: np.dtype[Any]) -> None:
        self._path = path
        self._dtype = dtype
        with destination_errors(path):
            path.touch()
            allocate(path, 0, num_values * dtype.itemsize)

    def put(self, starts: NDArray[np.int64], counts: NDArray[np.int64], values: NDArray[np.int64]) -> None:
        """See Column."""
        stored, first = values.astype(self._dtype), 0
        with destination_errors(self._path), self._path.open("r+b") as file:
            for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
                file.seek(start * self._dtype.itemsize)
                file.write(stored[first : first + count].data)
                first += count

    def get(self, start: int, stop: int) -> NDArray[Any]:
        """See Column."""
        itemsize = self._dtype.itemsize
        values = np.fromfile(self._path, self._dtype, stop - start, offset=start * itemsize)
        if len(values) != stop - start:
            raise ReadError(f"{self._path}: ended before value {stop}; resume with --resume to write the file again")
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeColumns:
    """The int32 columns of sorted edges.

    sources, destinations: rows of the ends in their partitions.
    relations: None without relations.
    """

    sources: Column
    destinations: Column
    relations: Column | None

"""Edges in pair files of a work folder, before they are sorted into lists.

A *pair file* has the edges of one slice: six int64 (number of pairs, largest id or -1, bytes per id; lines of text,
comments and empty lines among them), all sources, then all destinations.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.edges import EdgeSource
from diskhop.errors import ReadError
from diskhop.importing.balance import NO_LINES, LineCounts
from diskhop.importing.numbering.ids import SetOfIds
from diskhop.io.values import read_values

ENDS = ("source", "destination")
_HEADER_ITEMS = 6
_HEADER_BYTES = 8 * _HEADER_ITEMS


def write_pairs(
    path: Path, sources: NDArray[Any], destinations: NDArray[Any], dtype: str, counts: LineCounts = NO_LINES
) -> None:
    """Write the pairs of a slice. dtype: uint32 or int64, of the ids. counts: lines of text that they are from."""
    largest = max((int(ids.max()) for ids in (sources, destinations) if len(ids)), default=-1)
    header = [len(sources), largest, np.dtype(dtype).itemsize, counts.lines, counts.comments, counts.empty]
    with path.open("wb") as file:
        file.write(np.array(header, "<i8").tobytes())
        for ids in (sources, destinations):
            file.write(ids.astype(dtype, copy=False).data)


@dataclass(frozen=True, slots=True)
class PairFile:
    """A pair file, with the values of its header."""

    path: Path
    num_edges: int
    largest: int
    dtype: np.dtype[Any]
    counts: LineCounts = NO_LINES

    @classmethod
    def open(cls, path: Path) -> PairFile:
        """Read the header."""
        num_edges, largest, id_bytes, *counts = read_values(path, "<i8", _HEADER_ITEMS).tolist()
        lines, comments, empty = counts
        dtype = np.dtype("uint32" if id_bytes == 4 else "int64")
        return cls(path, num_edges, largest, dtype, LineCounts(lines=lines, comments=comments, empty=empty))

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Read sources and destinations of pairs first, first + 1, ..."""
        return self._read(first, count), self._read(self.num_edges + first, count)

    def _read(self, first: int, count: int) -> NDArray[Any]:
        offset = _HEADER_BYTES + first * self.dtype.itemsize
        ids = np.fromfile(self.path, self.dtype, count, offset=offset)
        if len(ids) != count:
            raise ReadError(
                f"{self.path}: ends before byte {offset + count * self.dtype.itemsize}; remove "
                f"{self.path.parent.parent} and import again"
            )
        return ids


class PairFiles:
    """EdgeSource that concatenates pair files. identity: text that changes when an edge does."""

    def __init__(self, files: Sequence[PairFile], identity: str) -> None:
        self._files = files
        self._ends = list(accumulate(file.num_edges for file in files))
        self._identity = identity

    @property
    def num_edges(self) -> int:
        """See EdgeSource."""
        return self._ends[-1]

    @property
    def identity(self) -> str:
        """See EdgeSource."""
        return self._identity

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """See EdgeSource."""
        parts = []
        number = bisect_right(self._ends, first)
        while count > 0:
            file = self._files[number]
            begin = first - (self._ends[number] - file.num_edges)
            length = min(count, file.num_edges - begin)
            if length > 0:
                parts.append(file.read(begin, length))
            first, count, number = first + length, count - length, number + 1
        if len(parts) == 1:
            return parts[0]
        empty = np.empty(0, np.uint32)
        return tuple(np.concatenate([part[end] for part in parts] or [empty]) for end in (0, 1))  # type: ignore[return-value]


class RankedEdges:
    """EdgeSource that replaces ids by their ranks in a set."""

    def __init__(self, edges: EdgeSource, ids: SetOfIds) -> None:
        self._edges = edges
        self._ids = ids

    @property
    def num_edges(self) -> int:
        """See EdgeSource."""
        return self._edges.num_edges

    @property
    def identity(self) -> str:
        """See EdgeSource. The edges determine the ranks, so that the set is not part of it."""
        return f"{self._edges.identity}, ranked"

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """See EdgeSource."""
        sources, destinations = self._edges.read(first, count)
        return self._ids.rank(sources), self._ids.rank(destinations)

"""Pairs of ids in files of a work folder, by number: what a list of edges is before it is sorted.

A *pair file* has the pairs of one slice: four int64 (edges that are no loops, loops, largest id or -1, bytes of an id),
the sources, the destinations, and the ids of the loops apart: turned round, a loop is the same edge.
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

from diskhop._native import IdSet
from diskhop.dataset.edges import EdgeSource
from diskhop.errors import ReadError

_HEADER_ITEMS = 4
_HEADER_BYTES = 8 * _HEADER_ITEMS


def write_pairs(path: Path, sources: NDArray[Any], destinations: NDArray[Any], dtype: str) -> None:
    """Write the pairs of a slice; dtype of the ids: uint32 or int64."""
    is_loop = sources == destinations
    is_edge = ~is_loop
    largest = max((int(ids.max()) for ids in (sources, destinations) if len(ids)), default=-1)
    loops = sources[is_loop]
    header = [len(sources) - len(loops), len(loops), largest, np.dtype(dtype).itemsize]
    with path.open("wb") as file:
        file.write(np.array(header, "<i8").tobytes())
        for ids in (sources[is_edge], destinations[is_edge], loops):
            file.write(ids.astype(dtype, copy=False).data)


@dataclass(frozen=True, slots=True)
class PairFile:
    """One pair file, by its header."""

    path: Path
    num_edges: int
    num_loops: int
    largest: int
    dtype: np.dtype[Any]

    @classmethod
    def open(cls, path: Path) -> PairFile:
        """Read the header."""
        num_edges, num_loops, largest, id_bytes = np.fromfile(path, "<i8", _HEADER_ITEMS).tolist()
        return cls(path, num_edges, num_loops, largest, np.dtype("uint32" if id_bytes == 4 else "int64"))

    def sources(self, first: int, count: int) -> NDArray[Any]:
        """Sources of edges that are no loops."""
        return self._read(first, count)

    def destinations(self, first: int, count: int) -> NDArray[Any]:
        """Destinations of edges that are no loops."""
        return self._read(self.num_edges + first, count)

    def loops(self, first: int, count: int) -> NDArray[Any]:
        """Ids of nodes that have an edge to themselves, once for each."""
        return self._read(2 * self.num_edges + first, count)

    def _read(self, first: int, count: int) -> NDArray[Any]:
        offset = _HEADER_BYTES + first * self.dtype.itemsize
        ids = np.fromfile(self.path, self.dtype, count, offset=offset)
        if len(ids) != count:
            raise ReadError(
                f"{self.path}: ends before byte {offset + count * self.dtype.itemsize}; start the import anew"
            )
        return ids


@dataclass(frozen=True, slots=True)
class _Run:
    """Edges that follow each other in a file: as they stand, turned round, or its loops."""

    file: PairFile
    kind: str
    count: int

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        if self.kind == "loops":
            loops = self.file.loops(first, count)
            return loops, loops
        ends = self.file.sources(first, count), self.file.destinations(first, count)
        return ends if self.kind == "edges" else ends[::-1]


class PairFiles:
    """The edges of several pair files: those that are no loops once or both ways, and loops once or not at all."""

    def __init__(self, files: Sequence[PairFile], *, both_ways: bool, with_loops: bool, identity: str) -> None:
        self._runs = []
        for file in files:
            self._runs.append(_Run(file, "edges", file.num_edges))
            if both_ways:
                self._runs.append(_Run(file, "turned", file.num_edges))
            if with_loops:
                self._runs.append(_Run(file, "loops", file.num_loops))
        self._ends = list(accumulate(run.count for run in self._runs))
        self._identity = f"{identity}, both ways: {both_ways}, loops: {with_loops}"

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
            run = self._runs[number]
            begin = first - (self._ends[number] - run.count)
            length = min(count, run.count - begin)
            if length > 0:
                parts.append(run.read(begin, length))
            first, count, number = first + length, count - length, number + 1
        if len(parts) == 1:
            return parts[0]
        empty = np.empty(0, np.uint32)
        return tuple(np.concatenate([part[end] for part in parts] or [empty]) for end in (0, 1))  # type: ignore[return-value]


class RankedEdges:
    """Edges whose ids become 0, 1, ... in ascending order: the ranks that they have in a closed set."""

    def __init__(self, edges: EdgeSource, ids: IdSet) -> None:
        self._edges = edges
        self._ids = ids

    @property
    def num_edges(self) -> int:
        """See EdgeSource."""
        return self._edges.num_edges

    @property
    def identity(self) -> str:
        """See EdgeSource. The ranks are a function of the edges, so that they need no mark of their own."""
        return f"{self._edges.identity}, ranked"

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """See EdgeSource."""
        sources, destinations = self._edges.read(first, count)
        return self._ids.rank(sources), self._ids.rank(destinations)

"""Unsorted edges to import: pairs of ids, addressed by the number of the edge."""

from __future__ import annotations

import secrets
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.runtime.blocks import map_in_order, row_ranges
from diskhop.runtime.progress import Progress

_BLOCK = 1 << 18
# Two ids of up to 8 bytes per edge, plus what the core's buffers may round up.
_BLOCK_BYTES = _BLOCK * 24


class EdgeSource(Protocol):
    """Edges with random access, readable by several threads at once."""

    @property
    def num_edges(self) -> int:
        """Number of edges."""

    @property
    def identity(self) -> str:
        """Text that differs if any edge differs; a resumed build compares it."""

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Read sources and destinations (count each, integers of one dtype) of edges first, first + 1, ...

        The ids are unchecked. Raises SourceError or ReadError.
        """


class ArrayEdges:
    """Edges in memory: integers (2, edges), sources and destinations."""

    def __init__(self, pairs: NDArray[Any]) -> None:
        self._pairs = pairs
        self._token = secrets.token_hex(8)

    @property
    def num_edges(self) -> int:
        """See EdgeSource."""
        return int(self._pairs.shape[1])

    @property
    def identity(self) -> str:
        """See EdgeSource. Unique per object, because an array cannot be recognised in another process."""
        return f"array {self._token}"

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """See EdgeSource."""
        return self._pairs[0, first : first + count], self._pairs[1, first : first + count]


class UndirectedEdges:
    """Edges in both directions: edge e becomes 2 e and, reversed, 2 e + 1. A loop therefore occurs twice."""

    def __init__(self, edges: EdgeSource) -> None:
        self._edges = edges

    @property
    def num_edges(self) -> int:
        """See EdgeSource."""
        return 2 * self._edges.num_edges

    @property
    def identity(self) -> str:
        """See EdgeSource."""
        return f"{self._edges.identity}, both ways"

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """See EdgeSource."""
        begin, end = first // 2, (first + count + 1) // 2
        sources, destinations = self._edges.read(begin, end - begin)
        pairs = np.stack([sources, destinations], axis=1)
        wanted = slice(first - 2 * begin, first - 2 * begin + count)
        return pairs.reshape(-1)[wanted], np.ascontiguousarray(pairs[:, ::-1]).reshape(-1)[wanted]


def highest_ids(edges: EdgeSource, budget: Budget, threads: int, progress: Progress | None = None) -> tuple[int, int]:
    """Return the largest source and the largest destination: -1 without edges, less if all ids are negative."""
    threads = max(1, min(threads, -(-edges.num_edges // _BLOCK), budget.available_bytes // _BLOCK_BYTES))

    def highest(block: tuple[int, int]) -> tuple[int, int, int]:
        sources, destinations = edges.read(block[0], block[1] - block[0])
        return int(sources.max()), int(destinations.max()), block[1]

    found = (-1, -1) if edges.num_edges == 0 else None
    with budget.reserve("finding the highest id", threads * _BLOCK_BYTES):
        for source, destination, done in map_in_order(highest, row_ranges(edges.num_edges, _BLOCK), threads):
            found = (source, destination) if found is None else (max(found[0], source), max(found[1], destination))
            if progress is not None:
                progress("counting nodes", done, edges.num_edges)
    assert found is not None
    return found

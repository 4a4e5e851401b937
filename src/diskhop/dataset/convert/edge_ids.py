"""What nodes are called in a text of edges becomes numbers from 0, in ascending order of what they are called.

Whole numbers that are 0 to N - 1 already stay as they are. Others, and names, are mapped, and what they were is kept:
numbers as original ids, names as names. The result depends on the ids alone, not on which of the two ways made it: a
set with a bit for each number up to the largest, or DuckDB's sorting and joining on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop._native import IdSet
from diskhop.dataset.convert.duck import Duck, quoted
from diskhop.dataset.edges import EdgeSource
from diskhop.dataset.parallel import map_in_order
from diskhop.dataset.progress import Progress, row_ranges

_EDGES_A_BLOCK = 1 << 18
# Of all threads: the more there are, the smaller are their blocks.
_EDGES_AT_ONCE = 1 << 20
_NODES_A_BLOCK = 1 << 16
_NAMES_A_BLOCK = 1 << 9


class Called(Protocol):
    """What nodes were called before they were numbered."""

    def range(self, start: int, stop: int) -> NDArray[Any]:
        """The original ids of nodes start to stop - 1."""

    def select(self, nodes: NDArray[Any]) -> NDArray[Any]:
        """The original ids of some nodes."""


@dataclass(frozen=True, slots=True)
class SetOfIds:
    """Whole numbers below 2^32 that occur, in a closed set."""

    ids: IdSet

    def range(self, start: int, stop: int) -> NDArray[Any]:
        """See Called."""
        return self.ids.select(np.arange(start, stop, dtype=np.uint32))

    def select(self, nodes: NDArray[Any]) -> NDArray[Any]:
        """See Called."""
        return self.ids.select(nodes.astype(np.uint32, copy=False))


class ListedIds:
    """Numbers or names in the file that ListIds made."""

    def __init__(self, path: Path, duck: Duck) -> None:
        self._table = f"read_parquet({quoted(path)})"
        self._duck = duck
        self._all: NDArray[Any] | None = None
        (counts,) = duck.fetch(f"SELECT count(*) FROM {self._table}")
        self.count = int(counts[0])

    @property
    def are_ranks(self) -> bool:
        """Whether they are the numbers 0 to count - 1, which need no list."""
        return self.count > 0 and self.range(self.count - 1, self.count)[0] == self.count - 1

    def range(self, start: int, stop: int) -> NDArray[Any]:
        """See Called."""
        (names,) = self._duck.fetch(f"SELECT name FROM {self._table} WHERE id >= {start} AND id < {stop} ORDER BY id")
        return names

    def select(self, nodes: NDArray[Any]) -> NDArray[Any]:
        """See Called. Holds all of them from now on: 8 bytes each, which the caller reserves."""
        if self._all is None:
            self._all = self.range(0, self.count)
        selected: NDArray[Any] = self._all[nodes]
        return selected

    def lines(self) -> Iterator[NDArray[np.uint8]]:
        """Names as UTF-8 lines, in blocks."""
        # They lie in the order of their ids. Joined by DuckDB they would take several times what they are.
        for rows in self._duck.stream(f"SELECT name FROM {self._table}", _NAMES_A_BLOCK):
            yield np.frombuffer("".join(f"{name}\n" for (name,) in rows).encode(), np.uint8)


def id_set_bytes(limit: int) -> int:
    """What a set of ids below the limit takes."""
    return limit // 8 + limit // 128 + 128


def collecting_bytes(threads: int) -> int:
    """What collect_ids holds beside the set: a block for each thread, as read and as put together."""
    return (threads + 1) * _block_edges(threads) * 16


def collect_ids(edges: EdgeSource, limit: int, threads: int, progress: Progress) -> tuple[IdSet, int]:
    """The ids (uint32, below limit) that occur, and how many. The caller has reserved what it takes."""
    ids = IdSet(limit)

    def collect(block: tuple[int, int]) -> int:
        for end in edges.read(block[0], block[1] - block[0]):
            ids.add(end)
        return block[1]

    for done in map_in_order(collect, row_ranges(edges.num_edges, _block_edges(threads)), threads):
        progress("collecting ids", done, edges.num_edges)
    return ids, ids.close()


def original_ids(called: Called | None, old_numbers: NDArray[Any] | None, num_nodes: int) -> Iterator[NDArray[Any]]:
    """What every node was called, in blocks, in the order of old_numbers, or in their own where that is None."""
    for start, stop in row_ranges(num_nodes, _NODES_A_BLOCK):
        if old_numbers is None:
            assert called is not None, "nodes that were neither mapped nor moved need no original ids"
            yield called.range(start, stop)
        else:
            numbers = old_numbers[start:stop]
            yield numbers if called is None else called.select(numbers)


def _block_edges(threads: int) -> int:
    return min(_EDGES_A_BLOCK, max(1, _EDGES_AT_ONCE // (threads + 1)))

"""What nodes are called in a text of edges becomes numbers from 0, in ascending order of what they are called.

Whole numbers that are 0 to N - 1 already stay as they are. Others, and names, are mapped, and what they were is kept:
numbers as original ids, names as names. The result depends on the ids alone, not on which of the two ways made it: a
set with a bit for each number up to the largest, or DuckDB's sorting and joining on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import IdSet
from diskhop.budget import Budget
from diskhop.dataset.edges import EdgeSource
from diskhop.io.atomic import destination_errors
from diskhop.runtime.blocks import map_in_order, row_ranges
from diskhop.runtime.duck import Duck, quoted
from diskhop.runtime.progress import Progress
from diskhop.runtime.workers import Share

# What DuckDB takes to read names or ids again; names of a kilobyte and more take more.
DUCK_READS_BYTES = 48 << 20
_EDGES_PER_BLOCK = 1 << 18
# The part of the budget that workers' copies of a set of ids may take.
_COPIES_SHARE = 4
# Of all threads: the more there are, the smaller are their blocks.
_EDGES_AT_ONCE = 1 << 20
_NAMES_PER_BLOCK = 1 << 9


@dataclass(frozen=True, slots=True)
class SetOfIds:
    """Whole numbers below a limit of at most 2^32 that occur, in a closed set.

    copies: so many workers may each have the set too.
    """

    ids: IdSet
    limit: int
    count: int
    copies: int = 0
    held_bytes: int = 0
    selecting_bytes: int = 0

    def range(self, start: int, stop: int) -> NDArray[Any]:
        """See Called."""
        return self.ids.select(np.arange(start, stop, dtype=np.uint32))

    def select(self, nodes: NDArray[Any]) -> NDArray[Any]:
        """See Called."""
        return self.ids.select(nodes.astype(np.uint32, copy=False))

    def rank(self, ids: NDArray[Any]) -> NDArray[Any]:
        """The number that each has, in ascending order."""
        return self.ids.rank(ids)

    def for_workers(self, share: Share) -> partial[SetOfIds]:
        """See Workers."""
        if share.processes > self.copies:
            raise TypeError(f"there is no memory for {share.processes} sets of ids")
        path = share.new_file()
        with destination_errors(path), path.open("wb") as file:
            for start, stop in row_ranges(self.count, _EDGES_PER_BLOCK):
                file.write(self.range(start, stop).data)
        return partial(_read_set, path, self.limit)

    def __enter__(self) -> SetOfIds:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class ListedIds:
    """Numbers in the file that ListIds made; a context that opens DuckDB and reserves what it takes."""

    def __init__(self, path: Path, count: int, budget: Budget, spill: Path) -> None:
        self._table = f"read_parquet({quoted(path)})"
        self._count = count
        self._budget = budget
        self._duck = Duck(DUCK_READS_BYTES, 1, spill)
        self._held = ExitStack()
        self._all: NDArray[Any] | None = None

    @property
    def held_bytes(self) -> int:
        """See Called."""
        return DUCK_READS_BYTES

    @property
    def selecting_bytes(self) -> int:
        """See Called."""
        return 8 * self._count

    def range(self, start: int, stop: int) -> NDArray[Any]:
        """See Called."""
        (numbers,) = self._duck.fetch(f"SELECT name FROM {self._table} WHERE id >= {start} AND id < {stop} ORDER BY id")
        return numbers

    def select(self, nodes: NDArray[Any]) -> NDArray[Any]:
        """See Called. Holds all of them from now on."""
        if self._all is None:
            self._held.enter_context(self._budget.reserve("original ids", self.selecting_bytes))
            self._all = self.range(0, self._count)
        selected: NDArray[Any] = self._all[nodes]
        return selected

    def __enter__(self) -> ListedIds:
        self._held.enter_context(self._budget.reserve("names", DUCK_READS_BYTES))
        self._held.enter_context(self._duck)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all = None
        self._held.close()


def count_listed(path: Path, duck: Duck) -> int:
    """How many ids the file that ListIds made has."""
    (counts,) = duck.fetch(f"SELECT count(*) FROM read_parquet({quoted(path)})")
    return int(counts[0])


def are_ranks(path: Path, count: int, duck: Duck) -> bool:
    """Whether the listed numbers are 0 to count - 1, which need no list."""
    (last,) = duck.fetch(f"SELECT name FROM read_parquet({quoted(path)}) WHERE id = {count - 1}")
    return count > 0 and int(last[0]) == count - 1


def name_lines(path: Path, budget: Budget, spill: Path) -> Iterator[NDArray[np.uint8]]:
    """Names in the file that ListIds made, as UTF-8 lines, in blocks; reserves what that takes."""
    duck_bytes = max(DUCK_READS_BYTES, budget.available_bytes // 2)
    with budget.reserve("names", duck_bytes), Duck(duck_bytes, 1, spill) as duck:
        # They lie in the order of their ids. Joined by DuckDB they would take several times what they are.
        for rows in duck.stream(f"SELECT name FROM read_parquet({quoted(path)})", _NAMES_PER_BLOCK):
            yield np.frombuffer("".join(f"{name}\n" for (name,) in rows).encode(), np.uint8)


def _read_set(path: Path, limit: int) -> SetOfIds:
    ids = IdSet(limit)
    with path.open("rb") as file:
        while len(block := np.fromfile(file, np.uint32, _EDGES_PER_BLOCK)):
            ids.add(block)
    return SetOfIds(ids, limit, ids.close())


def copies_of_set(limit: int, processes: int, available_bytes: int) -> int:
    """How many workers may have a set of ids below the limit too: several, or none."""
    copies = min(processes, available_bytes // _COPIES_SHARE // id_set_bytes(limit))
    return copies if copies > 1 else 0


def id_set_bytes(limit: int) -> int:
    """What a set of ids below the limit takes."""
    return limit // 8 + limit // 128 + 128


def collecting_bytes(threads: int) -> int:
    """What collect_ids holds beside the set: a block for each thread, as read and as put together."""
    return (threads + 1) * _block_edges(threads) * 16


def collect_ids(edges: EdgeSource, limit: int, copies: int, threads: int, progress: Progress) -> SetOfIds:
    """The ids (uint32, below limit) that occur. The caller has reserved what it takes, with copies of the set."""
    ids = IdSet(limit)

    def collect(block: tuple[int, int]) -> int:
        for end in edges.read(block[0], block[1] - block[0]):
            ids.add(end)
        return block[1]

    for done in map_in_order(collect, row_ranges(edges.num_edges, _block_edges(threads)), threads):
        progress("collecting ids", done, edges.num_edges)
    return SetOfIds(ids, limit, ids.close(), copies)


def _block_edges(threads: int) -> int:
    return min(_EDGES_PER_BLOCK, max(1, _EDGES_AT_ONCE // (threads + 1)))

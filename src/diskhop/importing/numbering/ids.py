"""Numbers nodes from 0 in ascending order of their ids or names.

Ids that are 0 to N - 1 already stay as they are. Other ids are kept as original ids, and names as names. There are two
ways, a bit set over all ids up to the largest, and DuckDB sorting and joining on disk. Both give the same numbers.
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
from diskhop.dataset.edges import EdgeSource
from diskhop.dataset.name_lines import to_lines
from diskhop.importing.source import NameList
from diskhop.importing.tools import ImportTools
from diskhop.io.atomic import destination_errors
from diskhop.io.values import read_values
from diskhop.runtime.blocks import map_in_order, row_ranges
from diskhop.runtime.duck import Duck, quoted
from diskhop.runtime.jobs import Share

_EDGES_PER_BLOCK = 1 << 18
# Edges in memory of all threads together: the more threads, the smaller their blocks.
_EDGES_AT_ONCE = 1 << 20
_NAMES_PER_BLOCK = 1 << 9


@dataclass(frozen=True, slots=True)
class SetOfIds:
    """OriginalNames in a bit set: the ids that occur in a graph. An id's rank is its node number.

    ids: the closed set.
    limit: all ids are less; at most 2^32.
    count: number of ids.
    copies: number of workers for which a copy of the set is reserved.
    """

    ids: IdSet
    limit: int
    count: int
    copies: int = 0
    ascend: bool = True
    reserved_bytes: int = 0
    selecting_bytes: int = 0

    def range(self, start: int, stop: int) -> NDArray[Any]:
        """See OriginalNames."""
        return self.ids.select(np.arange(start, stop, dtype=np.uint32))

    def select(self, nodes: NDArray[Any]) -> NDArray[Any]:
        """See OriginalNames."""
        return self.ids.select(nodes.astype(np.uint32, copy=False))

    def rank(self, ids: NDArray[Any]) -> NDArray[Any]:
        """Return the node number of each id."""
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
    """OriginalNames in the Parquet file of ListIds or ListNodes. Entering it opens DuckDB and reserves its memory."""

    def __init__(self, path: Path, count: int, work: ImportTools, *, ascend: bool) -> None:
        self.ascend = ascend
        self._table = f"read_parquet({quoted(path)})"
        self._count = count
        self._budget = work.budget
        self._duck_bytes = work.limits.names_bytes
        self._duck = Duck(self._duck_bytes, 1, work.spill)
        self._held = ExitStack()
        self._all: NDArray[Any] | None = None

    @property
    def reserved_bytes(self) -> int:
        """See OriginalNames."""
        return self._duck_bytes

    @property
    def selecting_bytes(self) -> int:
        """See OriginalNames."""
        return 8 * self._count

    def range(self, start: int, stop: int) -> NDArray[Any]:
        """See OriginalNames."""
        (numbers,) = self._duck.fetch(f"SELECT name FROM {self._table} WHERE id >= {start} AND id < {stop} ORDER BY id")
        return numbers

    def select(self, nodes: NDArray[Any]) -> NDArray[Any]:
        """See OriginalNames. All ids stay in memory from the first call on."""
        if self._all is None:
            self._held.enter_context(self._budget.reserve("original ids", self.selecting_bytes))
            self._all = self.range(0, self._count)
        selected: NDArray[Any] = self._all[nodes]
        return selected

    def __enter__(self) -> ListedIds:
        self._held.enter_context(self._budget.reserve("names", self._duck_bytes))
        self._held.enter_context(self._duck)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all = None
        self._held.close()


def count_listed(path: Path, duck: Duck) -> int:
    """Count the ids in a Parquet file of ListIds."""
    (counts,) = duck.fetch(f"SELECT count(*) FROM read_parquet({quoted(path)})")
    return int(counts[0])


def are_ranks(path: Path, count: int, duck: Duck) -> bool:
    """Check whether the listed ids are 0 to count - 1, so that no list is needed."""
    (last,) = duck.fetch(f"SELECT name FROM read_parquet({quoted(path)}) WHERE id = {count - 1}")
    return count > 0 and int(last[0]) == count - 1


def listed_names(path: Path, count: int, work: ImportTools) -> NameList:
    """Return the names in the Parquet file that ListIds made; reading them reserves the memory of DuckDB."""
    return NameList(count=count, lines=partial(_name_lines, path, work), reserved_bytes=work.limits.names_bytes)


def _name_lines(path: Path, work: ImportTools) -> Iterator[NDArray[np.uint8]]:
    duck_bytes = max(work.limits.names_bytes, work.budget.available_bytes // 2)
    with work.budget.reserve("names", duck_bytes), Duck(duck_bytes, 1, work.spill) as duck:
        # The file is in the order of the ids. Joining lines in DuckDB would take several times their length.
        for rows in duck.stream(f"SELECT name FROM read_parquet({quoted(path)})", _NAMES_PER_BLOCK):
            yield to_lines(name for (name,) in rows)


def _read_set(path: Path, limit: int) -> SetOfIds:
    ids = IdSet(limit)
    item_bytes = np.dtype(np.uint32).itemsize
    for start, stop in row_ranges(path.stat().st_size // item_bytes, _EDGES_PER_BLOCK):
        ids.add(read_values(path, np.uint32, stop - start, item_bytes * start))
    return SetOfIds(ids, limit, ids.close())


def collect_ids(edges: EdgeSource, limit: int, work: ImportTools) -> SetOfIds:
    """Collect the ids (uint32, below limit) that occur. The set stays reserved until `work.held` closes."""
    copies = _copies_of_set(limit, work)
    work.held.enter_context(work.budget.reserve("ids", (1 + copies) * _id_set_bytes(limit)))
    ids = IdSet(limit)

    def collect(block: tuple[int, int]) -> int:
        for end in edges.read(block[0], block[1] - block[0]):
            ids.add(end)
        return block[1]

    threads = work.threads
    with work.budget.reserve("collecting ids", _collecting_bytes(threads)):
        for done in map_in_order(collect, row_ranges(edges.num_edges, _block_edges(threads)), threads):
            work.progress("collecting ids", done, edges.num_edges)
    return SetOfIds(ids, limit, ids.close(), copies)


def _copies_of_set(limit: int, work: ImportTools) -> int:
    """Number of workers that may have a copy of a set of ids below the limit: several, or none."""
    share_bytes = work.budget.available_bytes // work.limits.id_copies_share
    copies = min(work.tools.processes, share_bytes // _id_set_bytes(limit))
    return copies if copies > 1 else 0


def _id_set_bytes(limit: int) -> int:
    return limit // 8 + limit // 128 + 128


def _collecting_bytes(threads: int) -> int:
    """Memory of collect_ids next to the set: a block per thread, as read and as concatenated."""
    return (threads + 1) * _block_edges(threads) * 16


def _block_edges(threads: int) -> int:
    return min(_EDGES_PER_BLOCK, max(1, _EDGES_AT_ONCE // (threads + 1)))

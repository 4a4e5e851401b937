"""Sorted in-neighbour lists made tidy while they stream by: loops and duplicates counted, and left out where asked.

Equal neighbours lie side by side in a list, so that a *run* of them is one edge and its duplicates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Lists(Protocol):
    """Sorted in-neighbour lists in blocks, front to back, as often as asked."""

    def indptr(self) -> Iterator[NDArray[np.int64]]:
        """indptr (destinations + 1)."""

    def indices(self) -> Iterator[NDArray[Any]]:
        """Sources (edges)."""

    def edge_ids(self) -> Iterator[NDArray[np.int64]]:
        """Numbers (edges), where edges have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidying:
    """What is left out. both_ways: every edge is in the lists in both directions, a loop therefore twice."""

    both_ways: bool = False
    drop_loops: bool = False
    drop_duplicates: bool = False

    @property
    def leaves_out(self) -> bool:
        """Whether anything may be."""
        return self.both_ways or self.drop_loops or self.drop_duplicates


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeCounts:
    """Edges as they were given, each once: loops, and those that occur again (without loops that are left out)."""

    loops: int = 0
    duplicates: int = 0


class TidyLists:
    """Lists without what is to be left out; of duplicates the one that is first by number stays.

    `counts` are right once indices() has come to its end.
    """

    def __init__(self, lists: Lists, tidying: Tidying) -> None:
        self._lists = lists
        self._tidying = tidying
        self.counts = EdgeCounts()

    def indices(self) -> Iterator[NDArray[Any]]:
        """Sources."""
        num_loops = loop_duplicates = edge_duplicates = 0
        for part in self._parts():
            if isinstance(part, _Part):
                num_loops += int((part.is_given & part.is_loop).sum())
                is_duplicate = part.is_given & part.is_duplicate
                loop_duplicates += int((is_duplicate & part.is_loop).sum())
                edge_duplicates += int((is_duplicate & ~part.is_loop).sum())
                yield part.sources[part.is_kept] if self._tidying.leaves_out else part.sources
        if self._tidying.both_ways:
            edge_duplicates //= 2
        if self._tidying.drop_loops:
            loop_duplicates = 0
        self.counts = EdgeCounts(loops=num_loops, duplicates=loop_duplicates + edge_duplicates)

    def edge_ids(self) -> Iterator[NDArray[np.int64]]:
        """Numbers, in the order of indices()."""
        if not self._tidying.leaves_out:
            yield from self._lists.edge_ids()
            return
        numbers = _Values(self._lists.edge_ids())
        for part in self._parts():
            if isinstance(part, _Part):
                for first, block in numbers.take(len(part.sources)):
                    yield block[part.is_kept[first : first + len(block)]]

    def indptr(self) -> Iterator[NDArray[np.int64]]:
        """Where the lists that indices() yields begin, and the last one ends."""
        if not self._tidying.leaves_out:
            yield from self._lists.indptr()
            return
        num_kept = 0
        for part in self._parts():
            if isinstance(part, _Part):
                kept_before = np.zeros(len(part.sources) + 1, np.int64)
                np.cumsum(part.is_kept, out=kept_before[1:])
                yield num_kept + kept_before[part.starts - part.first]
                num_kept += int(kept_before[-1])
            else:
                yield np.full(len(part), num_kept, np.int64)

    def _parts(self) -> Iterator[_Part | NDArray[np.int64]]:
        """Stretches of the lists with all starts in them, each held by one block of both streams; at last what is left
        of indptr, which lies behind every edge.
        """
        pointers = _Pointers(self._lists.indptr())
        first = 0
        last_source, run_length = None, 0
        for block in self._lists.indices():
            stop = first + len(block)
            taken = 0
            while taken < len(block):
                begins_list = pointers.last == first
                num_before = pointers.num_taken
                starts, is_all = pointers.take(stop)
                end = stop if is_all else int(starts[-1])
                sources = block[taken : taken + end - first]
                if len(sources):
                    goes_on = sources[0] == last_source and not begins_list
                    part = _Part.of(
                        sources, starts, self._tidying, first, num_before, run_length=run_length if goes_on else 0
                    )
                    last_source, run_length = sources[-1], int(part.places[-1]) + 1
                    yield part
                else:
                    yield _Part.of(sources, starts, self._tidying, first, num_before, run_length=0)
                taken += end - first
                first = end
        yield from pointers.rest()


@dataclass(frozen=True, slots=True)
class _Part:
    """Edges from number `first` on, with the values of indptr in them.

    places: of each edge in its run. is_given: not only there because its loop is, the other way. is_duplicate: another
    like it comes before.
    """

    first: int
    sources: NDArray[Any]
    starts: NDArray[np.int64]
    places: NDArray[np.int64]
    is_loop: NDArray[np.bool_]
    is_given: NDArray[np.bool_]
    is_duplicate: NDArray[np.bool_]
    is_kept: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        sources: NDArray[Any],
        starts: NDArray[np.int64],
        tidying: Tidying,
        first: int,
        num_before: int,
        run_length: int,
    ) -> _Part:
        """num_before: values of indptr before. run_length: of the run that the first edge goes on, up to it."""
        begins_run = np.ones(len(sources), np.bool_)
        begins_run[1:] = sources[1:] != sources[:-1]
        begins_run[:1] = run_length == 0
        inner_starts = starts - first
        begins_run[inner_starts[inner_starts < len(sources)]] = True
        positions = np.arange(len(sources))
        places = positions - np.maximum.accumulate(np.where(begins_run, positions, -run_length))
        lists_begun = np.bincount(inner_starts, minlength=len(sources) + 1)[: len(sources)]
        is_loop = sources == num_before - 1 + np.cumsum(lists_begun)
        # Both ways, a loop and its duplicates are in their run twice each, by number: 0 0 1 1 ...
        is_second = is_loop & (places % 2 == 1) if tidying.both_ways else np.zeros(len(sources), np.bool_)
        is_duplicate = places > (is_loop if tidying.both_ways else 0)
        is_kept = ~is_second
        if tidying.drop_loops:
            is_kept &= ~is_loop
        if tidying.drop_duplicates:
            is_kept &= ~is_duplicate
        return cls(first, sources, starts, places, is_loop, ~is_second, is_duplicate, is_kept)


class _Pointers:
    """indptr, taken by value. last: the value taken last."""

    def __init__(self, blocks: Iterator[NDArray[np.int64]]) -> None:
        self._blocks = (block for block in blocks if len(block))
        self._block = next(self._blocks, np.empty(0, np.int64))
        self.num_taken = 0
        self.last = -1

    def take(self, stop: int) -> tuple[NDArray[np.int64], bool]:
        """The next values below stop, as far as one block goes, and whether that is all of them."""
        count = int(np.searchsorted(self._block, stop))
        taken, self._block = self._block[:count], self._block[count:]
        if count:
            self.num_taken += count
            self.last = int(taken[-1])
        is_all = len(self._block) > 0
        if not is_all:
            taken = taken.copy()  # a block is valid until the next is asked for
            self._block = next(self._blocks, self._block)
            is_all = len(self._block) == 0
        return taken, is_all

    def rest(self) -> Iterator[NDArray[np.int64]]:
        """All that was not taken."""
        yield self._block
        yield from self._blocks


class _Values:
    """A stream, taken by count."""

    def __init__(self, blocks: Iterator[NDArray[Any]]) -> None:
        self._blocks = blocks
        self._block: NDArray[Any] = np.empty(0)

    def take(self, count: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """The next `count` values, in pieces, with the place of each piece among them."""
        taken = 0
        while taken < count:
            if len(self._block) == 0:
                self._block = next(self._blocks)
            piece, self._block = self._block[: count - taken], self._block[count - taken :]
            if len(piece):
                yield taken, piece
            taken += len(piece)

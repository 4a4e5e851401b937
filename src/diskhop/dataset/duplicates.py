"""Duplicate edges, counted or left out while sorted in-neighbour lists stream by: equal neighbours lie side by side."""

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


@dataclass(frozen=True, slots=True)
class RepeatCounts:
    """Edges beyond the first from one node to another: loops, and all else."""

    edges: int = 0
    loops: int = 0


class CheckedLists:
    """Lists with each neighbour once, or as they are; `counts` are right once indices() has come to its end."""

    def __init__(self, lists: Lists, *, drop: bool) -> None:
        self._lists = lists
        self._drop = drop
        self.counts = RepeatCounts()

    def indices(self) -> Iterator[NDArray[Any]]:
        """Sources, without repeats where these are dropped."""
        num_repeats = num_loops = 0
        for part in self._parts():
            if isinstance(part, _Part):
                num_repeats += int(part.is_repeat.sum())
                num_loops += part.count_repeated_loops()
                yield part.sources[~part.is_repeat] if self._drop else part.sources
        self.counts = RepeatCounts(edges=num_repeats - num_loops, loops=num_loops)

    def indptr(self) -> Iterator[NDArray[np.int64]]:
        """Where the lists that indices() yields begin, and the last one ends."""
        if not self._drop:
            yield from self._lists.indptr()
            return
        num_kept = 0
        for part in self._parts():
            if isinstance(part, _Part):
                kept_before = np.zeros(len(part.sources) + 1, np.int64)
                np.cumsum(~part.is_repeat, out=kept_before[1:])
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
        last_source = None
        for block in self._lists.indices():
            stop = first + len(block)
            taken = 0
            while taken < len(block):
                begins_list = pointers.last == first
                num_before = pointers.num_taken
                starts, is_all = pointers.take(stop)
                end = stop if is_all else int(starts[-1])
                sources = block[taken : taken + end - first]
                is_repeat = np.zeros(len(sources), np.bool_)
                if len(sources):
                    is_repeat[1:] = sources[1:] == sources[:-1]
                    is_repeat[0] = sources[0] == last_source and not begins_list
                    is_repeat[starts[starts < end] - first] = False
                    last_source = sources[-1]
                yield _Part(first, num_before, sources, starts, is_repeat)
                taken += end - first
                first = end
        yield from pointers.rest()


@dataclass(frozen=True, slots=True)
class _Part:
    """Edges from number `first` on: sources, whether each repeats the one before, and the values of indptr in them.

    num_before: how many values of indptr came before.
    """

    first: int
    num_before: int
    sources: NDArray[Any]
    starts: NDArray[np.int64]
    is_repeat: NDArray[np.bool_]

    def count_repeated_loops(self) -> int:
        positions = np.flatnonzero(self.is_repeat)
        destinations = self.num_before + np.searchsorted(self.starts, self.first + positions, side="right") - 1
        return int((self.sources[positions] == destinations).sum())


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

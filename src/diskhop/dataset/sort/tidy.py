"""Sorted in-neighbour lists made tidy while they stream by: loops and duplicates counted, and left out where asked.

Equal neighbours lie side by side in a list, so that a *run* of them is one edge and its duplicates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.sort.lists import ListBlock


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

    `counts` are right once blocks() has come to its end.
    """

    def __init__(self, blocks: Iterator[ListBlock], tidying: Tidying) -> None:
        self._blocks = blocks
        self._tidying = tidying
        self.counts = EdgeCounts()

    def blocks(self) -> Iterator[ListBlock]:
        """What is left of each block."""
        tidying = self._tidying
        num_loops = loop_duplicates = edge_duplicates = 0
        num_kept = num_starts = run_length = 0
        last_start, last_source = -1, None
        for block in self._blocks:
            goes_on = len(block.indices) > 0 and block.indices[0] == last_source and last_start != block.first
            part = _Part.of(block, tidying, num_starts, run_length=run_length if goes_on else 0)
            num_loops += int((part.is_given & part.is_loop).sum())
            is_duplicate = part.is_given & part.is_duplicate
            loop_duplicates += int((is_duplicate & part.is_loop).sum())
            edge_duplicates += int((is_duplicate & ~part.is_loop).sum())
            num_starts += len(block.starts)
            if len(block.starts):
                last_start = int(block.starts[-1])
            if len(block.indices):
                last_source, run_length = block.indices[-1], int(part.places[-1]) + 1
            if not tidying.leaves_out:
                yield block
                continue
            kept_before = np.zeros(len(block.indices) + 1, np.int64)
            np.cumsum(part.is_kept, out=kept_before[1:])
            yield ListBlock(
                num_kept,
                num_kept + kept_before[block.starts - block.first],
                block.indices[part.is_kept],
                None if block.numbers is None else block.numbers[part.is_kept],
            )
            num_kept += int(kept_before[-1])
        if tidying.both_ways:
            edge_duplicates //= 2
        if tidying.drop_loops:
            loop_duplicates = 0
        self.counts = EdgeCounts(loops=num_loops, duplicates=loop_duplicates + edge_duplicates)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """What is found of the edges of a block.

    places: of each edge in its run. is_given: not only there because its loop is, the other way. is_duplicate: another
    like it comes before.
    """

    places: NDArray[np.int64]
    is_loop: NDArray[np.bool_]
    is_given: NDArray[np.bool_]
    is_duplicate: NDArray[np.bool_]
    is_kept: NDArray[np.bool_]

    @classmethod
    def of(cls, block: ListBlock, tidying: Tidying, num_before: int, run_length: int) -> _Part:
        """num_before: values of indptr before. run_length: of the run that the first edge goes on, up to it."""
        sources = block.indices
        begins_run = np.ones(len(sources), np.bool_)
        begins_run[1:] = sources[1:] != sources[:-1]
        begins_run[:1] = run_length == 0
        starts = block.starts - block.first
        begins_run[starts[starts < len(sources)]] = True
        positions = np.arange(len(sources))
        places = positions - np.maximum.accumulate(np.where(begins_run, positions, -run_length))
        lists_begun = np.bincount(starts, minlength=len(sources) + 1)[: len(sources)]
        is_loop = sources == num_before - 1 + np.cumsum(lists_begun)
        # Both ways, a loop and its duplicates are in their run twice each, by number: 0 0 1 1 ...
        is_second = is_loop & (places % 2 == 1) if tidying.both_ways else np.zeros(len(sources), np.bool_)
        is_duplicate = places > (is_loop if tidying.both_ways else 0)
        is_kept = ~is_second
        if tidying.drop_loops:
            is_kept &= ~is_loop
        if tidying.drop_duplicates:
            is_kept &= ~is_duplicate
        return cls(places, is_loop, ~is_second, is_duplicate, is_kept)

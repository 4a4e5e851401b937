"""Counting and removing loops and duplicates in sorted in-neighbour lists, as a stream.

Equal neighbours are consecutive in a list, so a *run* of them is one edge and its duplicates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.sort.lists import ListBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidying:
    """Edges to leave out.

    both_ways: whether the lists contain every edge in both directions, and therefore every loop twice.
    drop_loops: whether to leave out edges from a node to itself.
    drop_duplicates: whether to leave out repeated edges.
    """

    both_ways: bool = False
    drop_loops: bool = False
    drop_duplicates: bool = False

    @property
    def leaves_out(self) -> bool:
        """Whether any edge may be left out."""
        return self.both_ways or self.drop_loops or self.drop_duplicates


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeCounts:
    """Counts of edges of the source, each counted once.

    loops: edges from a node to itself.
    duplicates: repeated edges, without loops that are left out.
    """

    loops: int = 0
    duplicates: int = 0


class TidyLists:
    """Lists without the edges to leave out; the duplicate with the lowest number stays.

    `counts` are valid once blocks() is exhausted.
    """

    def __init__(self, blocks: Iterator[ListBlock], tidying: Tidying) -> None:
        self._blocks = blocks
        self._tidying = tidying
        self.counts = EdgeCounts()

    def blocks(self) -> Iterator[ListBlock]:
        """Yield the remaining edges of each block."""
        tidying = self._tidying
        num_loops = loop_duplicates = edge_duplicates = 0
        num_kept = num_starts = run_length = 0
        last_start, last_source = -1, None
        for block in self._blocks:
            continues = len(block.indices) > 0 and block.indices[0] == last_source and last_start != block.first
            edges = _BlockEdges.of(block, tidying, num_starts, run_length=run_length if continues else 0)
            num_loops += int((edges.is_given & edges.is_loop).sum())
            is_duplicate = edges.is_given & edges.is_duplicate
            loop_duplicates += int((is_duplicate & edges.is_loop).sum())
            edge_duplicates += int((is_duplicate & ~edges.is_loop).sum())
            num_starts += len(block.starts)
            if len(block.starts):
                last_start = int(block.starts[-1])
            if len(block.indices):
                last_source, run_length = block.indices[-1], int(edges.places[-1]) + 1
            if not tidying.leaves_out:
                yield block
                continue
            kept_before = np.zeros(len(block.indices) + 1, np.int64)
            np.cumsum(edges.is_kept, out=kept_before[1:])
            yield ListBlock(
                num_kept,
                num_kept + kept_before[block.starts - block.first],
                block.indices[edges.is_kept],
                None if block.numbers is None else block.numbers[edges.is_kept],
            )
            num_kept += int(kept_before[-1])
        if tidying.both_ways:
            edge_duplicates //= 2
        if tidying.drop_loops:
            loop_duplicates = 0
        self.counts = EdgeCounts(loops=num_loops, duplicates=loop_duplicates + edge_duplicates)


@dataclass(frozen=True, slots=True, eq=False)
class _BlockEdges:
    """Properties of the edges of a block.

    places: place of each edge in its run, from 0.
    is_loop: whether the edge leads from a node to itself.
    is_given: false for the second copy of a loop in lists of both directions.
    is_duplicate: whether an equal edge comes before.
    is_kept: whether the edge stays in the lists.
    """

    places: NDArray[np.int64]
    is_loop: NDArray[np.bool_]
    is_given: NDArray[np.bool_]
    is_duplicate: NDArray[np.bool_]
    is_kept: NDArray[np.bool_]

    @classmethod
    def of(cls, block: ListBlock, tidying: Tidying, num_before: int, run_length: int) -> _BlockEdges:
        """Classify a block. num_before: values of indptr before it. run_length: edges of the run that it continues."""
        sources = block.indices
        begins_run = np.ones(len(sources), np.bool_)
        begins_run[1:] = sources[1:] != sources[:-1]
        begins_run[:1] = run_length == 0
        starts = block.starts - block.first
        begins_run[starts[starts < len(sources)]] = True
        positions = np.arange(len(sources))
        places = positions - np.maximum.accumulate(np.where(begins_run, positions, -run_length))
        lists_started = np.bincount(starts, minlength=len(sources) + 1)[: len(sources)]
        is_loop = sources == num_before - 1 + np.cumsum(lists_started)
        # In both directions, a loop and its duplicates occur twice each in their run: 0 0 1 1 ...
        is_second = is_loop & (places % 2 == 1) if tidying.both_ways else np.zeros(len(sources), np.bool_)
        is_duplicate = places > (is_loop if tidying.both_ways else 0)
        is_kept = ~is_second
        if tidying.drop_loops:
            is_kept &= ~is_loop
        if tidying.drop_duplicates:
            is_kept &= ~is_duplicate
        return cls(places, is_loop, ~is_second, is_duplicate, is_kept)

"""Duplicates are counted and left out while lists stream by, wherever blocks begin and end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.builder import DatasetBuilder
from diskhop.dataset.duplicates import CheckedLists
from diskhop.dataset.edges import ArrayEdges
from diskhop.dataset.sort_plan import SortLimits
from tests.graphs import folder_bytes, random_pairs, threads_engine


class ReusedBlocks:
    """Lists whose blocks are overwritten as soon as the next is asked for, as those from a disk are."""

    def __init__(self, lists: list[list[int]], num_pointers: list[int], num_edges: list[int]) -> None:
        self._indptr = np.cumsum([0, *map(len, lists)])
        self._indices = np.array([source for each in lists for source in each], np.uint32)
        self._num_pointers = num_pointers
        self._num_edges = num_edges

    def indptr(self) -> Iterator[NDArray[np.int64]]:
        return _blocks(self._indptr, self._num_pointers)

    def indices(self) -> Iterator[NDArray[np.uint32]]:
        return _blocks(self._indices, self._num_edges)


def _blocks(values: NDArray[Any], lengths: list[int]) -> Iterator[NDArray[Any]]:
    start = number = 0
    while start < len(values):
        block = values[start : start + lengths[number % len(lengths)]].copy()
        start, number = start + len(block), number + 1
        yield block
        block[:] = 7_777


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@given(
    lists=st.lists(st.lists(st.integers(0, 6), max_size=9).map(sorted), min_size=1, max_size=12),
    num_pointers=SIZES,
    num_edges=SIZES,
)
def test_each_neighbor_once_or_as_they_are(
    lists: list[list[int]], num_pointers: list[int], num_edges: list[int]
) -> None:
    num_repeats = sum(len(each) - len(set(each)) for each in lists)
    num_loops = sum(max(0, each.count(node) - 1) for node, each in enumerate(lists))
    for drop in (False, True):
        expected = [sorted(set(each)) for each in lists] if drop else lists
        checked = CheckedLists(ReusedBlocks(lists, num_pointers, num_edges), drop=drop)
        indices = [source for block in checked.indices() for source in block.tolist()]
        indptr = [start for block in checked.indptr() for start in block.tolist()]
        assert [indices[start:stop] for start, stop in pairwise(indptr)] == expected
        assert len(indptr) == len(lists) + 1
        assert (checked.counts.edges, checked.counts.loops) == (num_repeats - num_loops, num_loops)


def test_duplicates_are_the_same_by_way_of_the_disk(tmp_path: Path) -> None:
    pairs = random_pairs(num_nodes=300, num_edges=60_000)
    made = {}
    for way, limits in (("memory", SortLimits()), ("disk", SortLimits(in_memory_bytes=0, bucket_keys=5_000))):
        with DatasetBuilder(
            tmp_path / way,
            name="graph",
            engine=threads_engine(),
            budget=Budget(1 << 30),
            threads=2,
            sort_limits=limits,
        ) as builder:
            builder.add_nodes("node", 300)
            counts = builder.add_edge_list("edge", "node", "node", ArrayEdges(pairs), duplicates="drop")
            builder.finish()
        distinct = np.unique(pairs, axis=1)
        loops = pairs[0] == pairs[1]
        num_loops = int(loops.sum()) - len(np.unique(pairs[0, loops]))
        assert (counts.edges, counts.loops) == (pairs.shape[1] - distinct.shape[1] - num_loops, num_loops)
        made[way] = folder_bytes(tmp_path / way)
    assert made["memory"] == made["disk"]

"""Loops and duplicates are counted and left out while lists stream by, wherever blocks begin and end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diskhop.budget import Budget
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.edges import ArrayEdges, UndirectedEdges
from diskhop.dataset.sort.lists import ListBlock
from diskhop.dataset.sort.plan import SortLimits
from diskhop.dataset.sort.tidy import Tidying, TidyLists
from tests.graphs import folder_bytes, random_pairs, threads_engine


def blocks_of(lists: list[list[int]], num_edges: list[int], num_early: list[int]) -> Iterator[ListBlock]:
    """Lists in blocks of so many edges; of the starts that fit two blocks, so many are in the first of them."""
    starts = np.cumsum([0, *map(len, lists)])
    indices = np.array([source for each in lists for source in each], np.uint32)
    first = place = number = 0
    while True:
        end = min(first + num_edges[number % len(num_edges)], len(indices))
        below, most = np.searchsorted(starts, [end, end + 1])
        given = len(starts) if first == len(indices) else min(below + num_early[number % len(num_early)], most)
        given = max(given, place)
        yield ListBlock(first, starts[place:given], indices[first:end], np.arange(first, end))
        first, place, number = end, given, number + 1
        if place == len(starts) and first == len(indices):
            return


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def tidied(lists: list[list[int]], tidying: Tidying) -> tuple[list[list[int]], list[int], tuple[int, int]]:
    """Lists, places of what is left, and counts of loops and duplicates, one edge at a time."""
    left: list[list[int]] = []
    places: list[int] = []
    num_loops = num_loop_duplicates = num_edge_duplicates = place = 0
    for node, each in enumerate(lists):
        left.append([])
        seen: dict[int, int] = {}
        for source in each:
            place, here = place + 1, place
            seen[source] = seen.get(source, 0) + 1
            is_loop = source == node
            if is_loop and tidying.both_ways and seen[source] % 2 == 0:
                continue
            is_duplicate = seen[source] > 1
            num_loops += is_loop
            num_loop_duplicates += is_loop and is_duplicate
            num_edge_duplicates += not is_loop and is_duplicate
            if (is_loop and tidying.drop_loops) or (is_duplicate and tidying.drop_duplicates):
                continue
            left[-1].append(source)
            places.append(here)
    if tidying.both_ways:
        num_edge_duplicates //= 2
    return left, places, (num_loops, num_edge_duplicates + (0 if tidying.drop_loops else num_loop_duplicates))


@given(
    lists=st.lists(st.lists(st.integers(0, 6), max_size=9).map(sorted), min_size=1, max_size=12),
    num_edges=SIZES,
    num_early=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    tidying=st.builds(Tidying, both_ways=st.booleans(), drop_loops=st.booleans(), drop_duplicates=st.booleans()),
)
def test_lists_are_what_is_left_of_each_edge_by_itself(
    lists: list[list[int]], num_edges: list[int], num_early: list[int], tidying: Tidying
) -> None:
    expected, places, counts = tidied(lists, tidying)
    tidy = TidyLists(blocks_of(lists, num_edges, num_early), tidying)
    blocks = list(tidy.blocks())
    indices = [source for block in blocks for source in block.indices.tolist()]
    indptr = [start for block in blocks for start in block.starts.tolist()]
    assert [indices[start:stop] for start, stop in pairwise(indptr)] == expected
    assert len(indptr) == len(lists) + 1
    numbers = [block.numbers for block in blocks if block.numbers is not None]
    assert [number for block in numbers for number in block.tolist()] == places
    assert (tidy.counts.loops, tidy.counts.duplicates) == counts


def test_what_is_left_is_the_same_by_way_of_the_disk(tmp_path: Path) -> None:
    pairs = random_pairs(num_nodes=300, num_edges=60_000)
    weights = np.arange(60_000, dtype=np.float32)
    tidying = Tidying(both_ways=True, drop_duplicates=True)
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
            counts = builder.add_edge_list(
                "edge",
                "node",
                "node",
                UndirectedEdges(ArrayEdges(pairs)),
                tidying=tidying,
                edge_id_dtype="int64",
                weights=weights,
            )
            dataset = builder.finish()
        made[way] = folder_bytes(tmp_path / way)
        both_ways = np.concatenate([pairs, pairs[::-1]], axis=1)
        distinct = np.unique(both_ways, axis=1)
        assert dataset.num_edges == distinct.shape[1]
        loops = pairs[0] == pairs[1]
        assert counts.loops == int(loops.sum())
        num_loop_duplicates = counts.loops - len(np.unique(pairs[0, loops]))
        num_twice = both_ways.shape[1] - distinct.shape[1] - counts.loops - num_loop_duplicates
        assert counts.duplicates == num_loop_duplicates + num_twice // 2
        kept = np.fromfile(tmp_path / way / "edges/edge/weights.bin", "<f4")
        assert (kept == np.fromfile(tmp_path / way / "edges/edge/edge_ids.bin", "<i8")).all()
        first: dict[tuple[int, int], int] = {}
        for number, (source, destination) in enumerate(pairs.T.tolist()):
            first.setdefault((source, destination), number)
            first.setdefault((destination, source), number)
        by_list = sorted(first.items(), key=lambda item: item[0][::-1])
        assert kept.tolist() == [number for _, number in by_list]
    assert made["memory"] == made["disk"]

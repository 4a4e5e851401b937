"""Sorted in-neighbour lists against the plainest way to make them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop.dataset.csc import EdgeSorter
from diskhop.errors import ConfigError, SourceError


def lists_of(sorter: EdgeSorter) -> tuple[NDArray[np.int64], NDArray[Any]]:
    indices = [np.zeros(0, np.uint32), *sorter.index_blocks()]
    return np.concatenate(list(sorter.indptr_blocks())), np.concatenate(indices[1:] or indices)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, int, list[tuple[int, int]]]:
    # The large counts make a pair of ids not fit 64 bits.
    num_sources = draw(st.sampled_from([1, 2, 7, 2**31, 2**32, 2**32 + 1, 2**62]))
    num_destinations = draw(st.integers(1, 9))
    pair = st.tuples(
        st.sampled_from([0, num_sources - 1]) | st.integers(0, num_sources - 1), st.integers(0, num_destinations - 1)
    )
    return num_sources, num_destinations, draw(st.lists(pair, max_size=30))


@given(graph=graphs(), data=st.data())
def test_lists_are_the_sources_of_each_destination_sorted(
    graph: tuple[int, int, list[tuple[int, int]]], data: st.DataObject
) -> None:
    num_sources, num_destinations, pairs = graph
    sorter = EdgeSorter(len(pairs), num_sources, num_destinations, "test")
    sources = np.array([source for source, _ in pairs], np.int64)
    destinations = np.array([destination for _, destination in pairs], np.int64)
    cut = data.draw(st.integers(0, len(pairs)))
    sorter.put_destinations(cut, destinations[cut:])
    sorter.put_sources(0, sources[:cut])
    sorter.put_sources(cut, sources[cut:])
    sorter.put_destinations(0, destinations[:cut])

    if data.draw(st.booleans()):
        numbers = sorter.sort_and_number()
        expected = sorted(range(len(pairs)), key=lambda edge: (pairs[edge][1], pairs[edge][0], edge))
        assert numbers.tolist() == expected
    else:
        sorter.sort()
    indptr, indices = lists_of(sorter)
    assert len(indptr) == num_destinations + 1
    for node in range(num_destinations):
        in_neighbours = sorted(source for source, destination in pairs if destination == node)
        assert indices[indptr[node] : indptr[node + 1]].tolist() == in_neighbours
    if pairs:
        assert indices.dtype == (np.uint32 if num_sources < 2**32 else np.int64)


@pytest.mark.parametrize("bad", [-1, 5, 2**40])
@pytest.mark.parametrize("end", ["source", "destination"])
def test_the_first_id_out_of_range_is_named(end: str, bad: int) -> None:
    sorter = EdgeSorter(10, 5, 5, "graph.npz")
    put = sorter.put_sources if end == "source" else sorter.put_destinations
    with pytest.raises(SourceError, match=rf"graph.npz: edge 8 has {end} {bad}, .* 0 to 4"):
        put(6, np.array([0, 4, bad, bad]))


def test_ids_beyond_int64_are_refused_not_wrapped() -> None:
    sorter = EdgeSorter(1, 5, 5, "graph.npz")
    with pytest.raises(SourceError, match=str(2**64 - 1)):
        sorter.put_sources(0, np.array([2**64 - 1], np.uint64))


def test_more_edges_than_memory_is_one_line() -> None:
    with pytest.raises(ConfigError, match="memory"):
        EdgeSorter(1 << 58, 5, 5, "graph.npz")

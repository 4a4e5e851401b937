"""Counts beyond 31 and 32 bits: edges are read, told apart and planned for where an int32 would have gone round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from diskhop.dataset.edges import UndirectedEdges
from diskhop.dataset.sort.hot_order import hot_order_bytes
from diskhop.dataset.sort.keys import EdgeShape
from diskhop.dataset.sort.plan import SortLimits, plan_spills, smallest_sort_bytes, split_threads
from diskhop.importing.arrays.edges import FileEdges
from diskhop.importing.arrays.npy import file_array
from diskhop.importing.numbering.pairs import PairFile, PairFiles
from diskhop.runtime.blocks import row_ranges
from tests.graphs import threads_engine

AROUND = [2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1, 2**32, 2**32 + 1]


def sparse_edges(path: Path, num_edges: int, dtype: Any, values: dict[int, tuple[int, int]]) -> FileEdges:
    """edge_index (2, edges) of a .npy that is nearly all hole, with a few edges in it."""
    item_bytes = np.dtype(dtype).itemsize
    with path.open("wb") as file:
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (2, num_edges)}
        np.lib.format.write_array_header_1_0(file, header)
        first_byte = file.tell()
        file.truncate(first_byte + 2 * num_edges * item_bytes)
        for edge, ends in values.items():
            for row, value in enumerate(ends):
                file.seek(first_byte + (row * num_edges + edge) * item_bytes)
                file.write(np.array([value], dtype).tobytes())
    array = file_array(path)
    assert array.shape == (2, num_edges)
    return FileEdges(
        path,
        threads_engine(),
        dtype=array.dtype,
        num_edges=num_edges,
        first_byte=array.header_bytes,
        by_pairs=False,
    )


@pytest.mark.parametrize("num_edges", AROUND)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_last_edges_of_a_large_file_are_read(tmp_path: Path, num_edges: int, dtype: str) -> None:
    values = {num_edges - 1: (3, 7), num_edges - 2: (5, 1), num_edges // 2: (2, 9)}
    edges = sparse_edges(tmp_path / "edge_index.npy", num_edges, dtype, values)
    for first, count in ((num_edges - 3, 3), (num_edges // 2 - 1, 3)):
        sources, destinations = edges.read(first, count)
        expected = [values.get(edge, (0, 0)) for edge in range(first, first + count)]
        assert list(zip(sources.tolist(), destinations.tolist(), strict=True)) == expected
    both = UndirectedEdges(edges)
    assert both.num_edges == 2 * num_edges
    sources, destinations = both.read(2 * num_edges - 2, 2)
    assert (sources.tolist(), destinations.tolist()) == ([3, 7], [7, 3])


class Numbers:
    """A pair file that holds its own numbers, of any length."""

    def __init__(self, first: int, num_edges: int) -> None:
        self.num_edges = num_edges
        self._first = first

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        assert first + count <= self.num_edges
        numbers = self._first + first + np.arange(count)
        return numbers, numbers + 1


@pytest.mark.parametrize("boundary", AROUND)
def test_edges_of_many_files_are_told_apart(boundary: int) -> None:
    lengths = [boundary - 5, 3, 0, 2**33, 1]
    starts = np.cumsum([0, *lengths])
    files: list[Any] = [Numbers(int(start), length) for start, length in zip(starts, lengths, strict=False)]
    typed: list[PairFile] = files
    edges = PairFiles(typed, "")
    assert edges.num_edges == sum(lengths)
    for first in (0, boundary - 7, boundary, edges.num_edges - 4):
        sources, destinations = edges.read(first, 4)
        assert sources.tolist() == list(range(first, first + 4))
        assert destinations.tolist() == list(range(first + 1, first + 5))


@pytest.mark.parametrize("num_edges", AROUND)
@pytest.mark.parametrize("is_numbered", [False, True])
def test_sorting_is_planned_for_any_count(num_edges: int, is_numbered: bool) -> None:
    shape = EdgeShape(
        num_sources=2**32 + 1, num_destinations=2**31, num_edges=num_edges, is_numbered=is_numbered, origin=""
    )
    limits = SortLimits()
    key_bytes = shape.layout().key_bytes
    assert key_bytes == (16 if is_numbered else 8)
    smallest = smallest_sort_bytes(num_edges, key_bytes, limits)
    assert smallest < 1 << 30, "more edges take more disk, not more memory"
    for memory_bytes in (smallest, 1 << 30, 16 << 30):
        spills = plan_spills(num_edges, key_bytes, memory_bytes, 2, limits)
        split = split_threads(spills, num_edges, key_bytes, memory_bytes, 2, limits)
        assert max(split.spill_bytes, split.sort_bytes) <= memory_bytes
        spilled = [stop - start for start, stop in row_ranges(num_edges, spills.spill_edges)]
        assert sum(spilled) == num_edges
    assert shape.list_bytes == num_edges * (8 + 8 * is_numbered) + 8 * (2**31 + 1)


@pytest.mark.parametrize("num_edges", AROUND)
def test_neighbours_are_counted_in_as_many_bits_as_it_takes(num_edges: int) -> None:
    counts = 4 if num_edges < 2**32 else 8
    assert hot_order_bytes(1000, num_edges, 1) - hot_order_bytes(0, num_edges, 1) == (counts + 8) * 1000

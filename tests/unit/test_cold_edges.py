"""Accesses by lists, counted a few pieces at a time, and the file of cold edges' sources, against NumPy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from diskhop.errors import ReadError
from diskhop.hops.make.cold_edges import (
    SourceCounts,
    cold_file_bytes,
    count_sources,
    open_cold_edges,
    write_cold_sources,
)
from diskhop.hops.make.passes import Lists
from diskhop.io.engine import open_engine
from diskhop.runtime.tasks import TaskTools

PIECE_EDGES = 16_384


def lists_of(folder: Path, indices: np.ndarray, index_bytes: Literal[4, 8]) -> Lists:
    """Lists whose indices begin at byte 24 of their file."""
    path = folder / "indices"
    path.write_bytes(b"?" * 24 + indices.astype("<u4" if index_bytes == 4 else "<i8").tobytes())
    return Lists(
        indptr_path=folder / "indptr",
        indptr_offset=0,
        indices_path=path,
        indices_offset=24,
        index_bytes=index_bytes,
        num_nodes=1000,
        num_edges=len(indices),
    )


@pytest.mark.parametrize("index_bytes", [4, 8])
@pytest.mark.parametrize("num_edges", [0, 1, PIECE_EDGES, 3 * PIECE_EDGES + 5])
@pytest.mark.parametrize("memory_bytes", [1 << 20, 1 << 27])
def test_cold_edges_are_those_from_late_nodes(
    tmp_path: Path, index_bytes: Literal[4, 8], num_edges: int, memory_bytes: int
) -> None:
    indices = np.random.default_rng(0).integers(0, 900, num_edges)
    lists = lists_of(tmp_path, indices, index_bytes)
    pieces = [indices[start : start + PIECE_EDGES] for start in range(0, num_edges, PIECE_EDGES)]
    for first_cold in (0, 800, 899, 900):
        counts = [int(np.sum(piece >= first_cold)) for piece in pieces]
        assert count_sources(lists, first_cold, memory_bytes) == SourceCounts(
            num_sources=int(indices.max(initial=-1)) + 1,
            first_cold=first_cold,
            num_cold=sum(counts),
            most_per_piece=max(counts, default=0),
        )
        path = tmp_path / f"cold-{first_cold}"
        write_cold_sources(lists, first_cold, memory_bytes, path, TaskTools(open_engine("threads").engine))
        cold = open_cold_edges(lists, first_cold, path, tmp_path / "values")
        np.testing.assert_array_equal(cold.before, np.concatenate([[0], np.cumsum(counts)]))
        assert path.stat().st_size == cold_file_bytes(num_edges, cold.num_edges, index_bytes)
        found = np.fromfile(path, "<u4" if index_bytes == 4 else "<i8", cold.num_edges)
        np.testing.assert_array_equal(found, indices[indices >= first_cold])


def test_of_lists_that_are_cut_short_nothing_is_made(tmp_path: Path) -> None:
    lists = replace(lists_of(tmp_path, np.arange(100), 4), num_edges=101)
    with pytest.raises(ReadError, match=r"indices: has 100 of 101 edges"):
        count_sources(lists, 50, 1 << 20)

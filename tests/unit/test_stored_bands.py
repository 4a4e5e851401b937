"""Tables of bands that store only the rows with edges: they come back, and no other bytes are moved."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from diskhop._native import BufferPool
from diskhop.hops.stream.parts import BandReader, Bands, BandShape, BandWriter, stored_rows
from diskhop.hops.tables import TILE_ROWS
from diskhop.predicting.streamed.passes import to_be_stored, with_edges
from tests.graphs import threads_engine

NUM_ROWS, WIDTHS, SHARES = 3 * TILE_ROWS + 300, (8, 20), (1.0, 0.4, 0.0, 0.5)


@pytest.fixture
def indptr() -> NDArray[np.int64]:
    """Lists of four groups: all have edges, some, none, and some of few rows."""
    rng = np.random.default_rng(0)
    shares = np.repeat(SHARES, TILE_ROWS)[:NUM_ROWS]
    lengths = rng.integers(1, 5, NUM_ROWS) * (rng.random(NUM_ROWS) < shares)
    return np.concatenate([[0], np.cumsum(lengths)])


def with_edges_of_groups(indptr: NDArray[np.int64]) -> NDArray[np.int32]:
    has_edges = np.diff(indptr) > 0
    return np.array([has_edges[first : first + TILE_ROWS].sum() for first in range(0, NUM_ROWS, TILE_ROWS)], np.int32)


def test_rows_to_be_stored_have_the_edges_of_all(indptr: NDArray[np.int64]) -> None:
    counts = with_edges_of_groups(indptr)
    assert stored_rows(counts).tolist() == [4096, -(-int(counts[1]) // 256) * 256, 0, 256]
    for part_rows in (TILE_ROWS, 2 * TILE_ROWS, 16 * TILE_ROWS):
        for first in range(0, NUM_ROWS, part_rows):
            part = indptr[first : first + part_rows + 1]
            stored = to_be_stored(part)
            groups = slice(first // TILE_ROWS, -(-(first + part_rows) // TILE_ROWS))
            assert len(stored) - 1 == stored_rows(counts[groups]).sum()
            np.testing.assert_array_equal(with_edges(stored), with_edges(part))
            assert (stored[0], stored[-1]) == (part[0], part[-1])


def test_stored_rows_come_back_and_nothing_else_is_moved(tmp_path: Path, indptr: NDArray[np.int64]) -> None:
    """A row's values are its first edge and the columns behind it. Writers have two groups in a part, readers one."""
    shape = BandShape(NUM_ROWS, WIDTHS, stored_rows(with_edges_of_groups(indptr)))
    path, engine = tmp_path / "rows", threads_engine()
    path.write_bytes(b"\xff" * shape.num_bytes)
    for band, width in enumerate(WIDTHS):
        with BandWriter(Bands(path, shape, band, band + 1), 2 * TILE_ROWS, engine, BufferPool(0)) as writer:
            for first in range(0, NUM_ROWS, 2 * TILE_ROWS):
                begins = to_be_stored(indptr[first : first + 2 * TILE_ROWS + 1])[:-1]
                writer.rows(len(begins))[0][:] = begins[:, None] + np.arange(width)
                writer.write(first, min(2 * TILE_ROWS, NUM_ROWS - first))
    both, firsts = Bands(path, shape, 0, 2), range(0, NUM_ROWS, TILE_ROWS)
    parts = BandReader(both, TILE_ROWS, engine, BufferPool(0)).parts(firsts, NUM_ROWS)
    for first, rows in zip(firsts, parts, strict=True):
        begins = with_edges(indptr[first : first + TILE_ROWS + 1])[:-1]
        for width, band_rows in zip(WIDTHS, rows, strict=True):
            assert len(band_rows) == shape.num_stored(first, TILE_ROWS)
            np.testing.assert_array_equal(band_rows[: len(begins)], begins[:, None] + np.arange(width))
    assert shape.stored is not None
    moved = sum(int(both.transfers(first, TILE_ROWS, TILE_ROWS)[1].sum()) for first in firsts)
    assert moved == 4 * sum(WIDTHS) * shape.stored.sum()
    written = np.fromfile(path, np.uint8)
    ends = [*(shape.offset(first, 0) for first in firsts), shape.num_bytes]
    untouched = [int((written[start:end] == 255).sum()) for start, end in pairwise(ends)]
    assert untouched[2] == shape.group_bytes
    assert untouched[1] >= shape.group_bytes - 4 * sum(WIDTHS) * shape.stored[1]

"""Claims about orders of rows and the reads that bring them, whatever the rows and the shape of the table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop._native import untile_rows
from diskhop.errors import ConfigError
from diskhop.hops.read.order import SHUFFLES, order_bytes, row_order
from diskhop.hops.read.strips import plan_strips, reads_in_place, runs_of, slot_bytes
from diskhop.hops.tables import PAGE_BYTES, TILE_ROWS, TableShape
from tests.hop_tables import table_bytes

ORDERS = {
    "num_rows": st.integers(0, 200),
    "chunk_rows": st.integers(1, 60),
    "batch_size": st.integers(1, 50),
    "seed": st.integers(0, 9),
    "epoch": st.integers(0, 3),
}


@pytest.mark.parametrize("shuffle", SHUFFLES)
@given(**ORDERS)
def test_an_epoch_visits_each_row_exactly_once(
    shuffle: str, num_rows: int, chunk_rows: int, batch_size: int, seed: int, epoch: int
) -> None:
    order = row_order(num_rows, shuffle, chunk_rows=chunk_rows, seed=seed, epoch=epoch)
    batches = [order.positions(start, start + batch_size) for start in range(0, num_rows, batch_size)]
    visited = np.concatenate([*batches, np.empty(0, np.int64)])
    np.testing.assert_array_equal(np.sort(visited), np.arange(num_rows))
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert order.num_bytes == order_bytes(num_rows, shuffle, chunk_rows)


@given(**ORDERS)
def test_chunks_stay_whole_and_begin_at_multiples(
    num_rows: int, chunk_rows: int, batch_size: int, seed: int, epoch: int
) -> None:
    order = row_order(num_rows, "chunks", chunk_rows=chunk_rows, seed=seed, epoch=epoch)
    visited = order.positions(0, num_rows)
    starts = np.flatnonzero(visited % chunk_rows == 0)
    assert len(starts) == -(-num_rows // chunk_rows)
    for chunk in np.split(visited, starts[1:]):
        np.testing.assert_array_equal(chunk, np.arange(len(chunk)) + (chunk[0] if len(chunk) else 0))
    parts = [order.positions(start, start + batch_size) for start in range(0, num_rows, batch_size)]
    np.testing.assert_array_equal(np.concatenate([*parts, visited[:0]]), visited)


@given(**ORDERS)
def test_chunks_of_one_row_are_rows(num_rows: int, chunk_rows: int, batch_size: int, seed: int, epoch: int) -> None:
    chunks, rows = (row_order(num_rows, name, chunk_rows=1, seed=seed, epoch=epoch) for name in ("chunks", "rows"))
    np.testing.assert_array_equal(chunks.positions(0, num_rows), rows.positions(0, num_rows))


def test_every_epoch_has_an_order_of_its_own() -> None:
    orders = [row_order(50, "chunks", chunk_rows=5, seed=seed, epoch=epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order.positions(0, 50)) for order in orders}) == 4


def test_an_unknown_shuffle_and_empty_chunks_are_refused() -> None:
    with pytest.raises(ConfigError, match="shuffle 'all' is unknown; choose one of none, rows, chunks"):
        row_order(5, "all", chunk_rows=1, seed=0, epoch=0)
    with pytest.raises(ConfigError, match="--chunk-rows must be at least 1, got 0"):
        row_order(5, "chunks", chunk_rows=0, seed=0, epoch=0)


SHAPES = st.builds(
    lambda num_rows, dim, dtype, is_tiled: TableShape(
        num_rows=num_rows, dim=dim, dtype=dtype, tile_columns=4 if is_tiled else dim
    ),
    num_rows=st.one_of(st.integers(1, 60), st.integers(TILE_ROWS - 2, TILE_ROWS + 60)),
    dim=st.integers(1, 9),
    dtype=st.sampled_from(("float32", "bfloat16")),
    is_tiled=st.booleans(),
)


@st.composite
def shapes_and_rows(draw: st.DrawFn) -> tuple[TableShape, np.ndarray]:
    shape = draw(SHAPES)
    numbers = np.random.default_rng(draw(st.integers(0, 99)))
    rows = numbers.permutation(shape.num_rows)[: draw(st.integers(0, 300))]
    if draw(st.booleans()):
        rows = np.sort(rows)
    if draw(st.booleans()):
        rows = np.arange(rows.min(), rows.max() + 1) if len(rows) else rows
    return shape, rows


@given(case=shapes_and_rows(), max_gap_bytes=st.sampled_from((0, 40, 5000)), alignment=st.sampled_from((1, 512, 4096)))
def test_strips_have_every_row_once_in_aligned_reads(
    case: tuple[TableShape, np.ndarray], max_gap_bytes: int, alignment: int
) -> None:
    shape, rows = case
    values = np.random.default_rng(0).integers(0, 99, (shape.num_rows, shape.dim)).astype(np.float32)
    content = table_bytes(values, shape)
    whole = table_bytes(
        values, TableShape(num_rows=shape.num_rows, dim=shape.dim, dtype=shape.dtype, tile_columns=shape.dim)
    )
    expected = whole[: shape.num_rows * shape.row_bytes].reshape(shape.num_rows, -1)[rows]
    out = np.full((len(rows), shape.row_bytes), 255, np.uint8)
    slot = np.full(slot_bytes(shape), 255, np.uint8)
    seen = []
    for strip in plan_strips(rows, shape, max_gap_bytes=max_gap_bytes, alignment=alignment):
        assert all(((reads | shape.tile_bytes) & np.uint64(alignment - 1) == 0).all() for reads in strip.reads)
        for offset, num_bytes, place in zip(*strip.reads, strict=True):
            assert offset + num_bytes <= shape.num_bytes
            slot[int(place) : int(place + num_bytes)] = content[int(offset) : int(offset + num_bytes)]
        tiles = slot[: shape.num_tiles * strip.tile_bytes].reshape(shape.num_tiles, strip.tile_bytes)
        tiles = tiles[:, strip.skipped_bytes :][:, : (int(strip.rows[-1]) + 1) * shape.tile_row_bytes]
        untile_rows(np.ascontiguousarray(tiles), shape.tile_row_bytes, strip.rows, out, 1, strip.to_rows)
        seen.append(strip.to_rows)
    np.testing.assert_array_equal(np.sort(np.concatenate([*seen, rows[:0]])), np.arange(len(rows)))
    np.testing.assert_array_equal(out, expected)


@given(case=shapes_and_rows(), alignment=st.sampled_from((1, 16, 512, 4096)))
def test_reads_in_place_bring_rows_to_their_places(case: tuple[TableShape, np.ndarray], alignment: int) -> None:
    shape, rows = case
    reads = reads_in_place(rows, shape, alignment)
    if reads is None:
        first_rows, lengths = runs_of(rows)
        is_odd = (
            (first_rows | (lengths - np.eye(1, len(lengths), len(lengths) - 1, dtype=int)[0] * lengths))
            * shape.row_bytes
        ) % alignment
        assert not shape.is_row_major or is_odd.any()
        return
    content = table_bytes(np.random.default_rng(1).random((shape.num_rows, shape.dim)), shape)
    batch = np.zeros(-(-len(rows) * shape.row_bytes // PAGE_BYTES) * PAGE_BYTES, np.uint8)
    for offset, num_bytes, place in zip(*reads, strict=True):
        assert all(int(each) % alignment == 0 for each in (offset, num_bytes, place))
        batch[int(place) : int(place + num_bytes)] = content[int(offset) : int(offset + num_bytes)]
    expected = content[: shape.num_rows * shape.row_bytes].reshape(shape.num_rows, -1)[rows]
    np.testing.assert_array_equal(batch[: expected.size], expected.reshape(-1))


def test_gaps_that_cost_less_than_a_read_are_read_over() -> None:
    shape = TableShape(num_rows=4000, dim=128, dtype="float32", tile_columns=128)
    rows = np.arange(0, 2000, 20)
    for max_gap_bytes, num_strips in ((19 * 512 - 1, 100), (19 * 512, 1)):
        assert len(plan_strips(rows, shape, max_gap_bytes=max_gap_bytes, alignment=512)) == num_strips

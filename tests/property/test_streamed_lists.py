"""Sums over streamed lists against NumPy in float64 and against a pass: any graph, any division into calls, threads."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import BufferPool, ColumnBlock, Engine, File, PropagationPass, add_neighbor_sums
from diskhop.errors import FormatError
from tests.examples import examples
from tests.streamed import Lists, block_of, lists

GROUP_ROWS = 4096
TILE_COLUMNS = 4


def streamed_sums(case: Lists, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    out = np.full((case.num_rows, rows.shape[1] + 3), np.nan, np.float32)[:, : rows.shape[1]]
    block = block_of(rows)
    for targets, indptr, indices, first_edge in case.calls():
        add_neighbor_sums(block, indptr, indices, first_edge, out[targets], case.num_threads)
    return out


@examples(40)
@given(case=lists(), tiles=st.integers(1, 8))
def test_streamed_sums_equal_the_sums_in_float64(case: Lists, tiles: int) -> None:
    rows = np.random.default_rng(1).standard_normal((case.num_sources, TILE_COLUMNS * tiles), np.float32)
    sums = streamed_sums(case, rows)
    expected = np.zeros((case.num_rows, rows.shape[1]))
    sizes = np.zeros_like(expected)
    np.add.at(expected, case.targets, rows[case.indices].astype(np.float64))
    np.add.at(sizes, case.targets, np.abs(rows[case.indices]).astype(np.float64))
    assert np.all(np.abs(sums - expected) <= 1e-5 * sizes)


def sums_of_a_pass(case: Lists, rows: NDArray[np.float32], folder: Path) -> NDArray[np.float32]:
    """Return the sums of a pass over the same lists, which have as many sources as rows."""
    num_tiles = rows.shape[1] // TILE_COLUMNS
    num_groups = -(-len(rows) // GROUP_ROWS)
    padded = np.zeros((num_groups * GROUP_ROWS, rows.shape[1]), np.float32)
    padded[: len(rows)] = rows
    case.indptr.tofile(folder / "indptr")
    case.indices.tofile(folder / "indices")
    padded.reshape(num_groups, GROUP_ROWS, num_tiles, TILE_COLUMNS).swapaxes(1, 2).tofile(folder / "features")
    files = {name: File(str(folder / name), "read") for name in ("indptr", "indices", "features")}
    product = PropagationPass(
        Engine("threads", 8),
        files["indptr"],
        0,
        files["indices"],
        0,
        4 if case.indices.dtype == np.uint32 else 8,
        case.num_rows,
        len(case.indices),
        2,
        1 << 20,
    )
    block = ColumnBlock(BufferPool(0).take(rows.nbytes).view(np.float32), *rows.shape)
    product.load(files["features"], "float32", num_tiles, 0, block, None)
    out = File(str(folder / "out"), "write")
    product.run(block, out, "float32", num_tiles, 0, row_scale=None, product_scale=1.0, self_weight=0.0)
    tiles = np.fromfile(folder / "out", np.float32).reshape(num_groups, num_tiles, GROUP_ROWS, TILE_COLUMNS)
    return tiles.swapaxes(1, 2).reshape(-1, rows.shape[1])[: len(rows)]


@examples(15)
@given(case=lists().filter(lambda case: case.num_sources == case.num_rows), tiles=st.integers(1, 6))
def test_streamed_sums_have_the_bits_of_a_pass(case: Lists, tiles: int) -> None:
    rows = np.random.default_rng(1).standard_normal((case.num_rows, TILE_COLUMNS * tiles), np.float32)
    with TemporaryDirectory() as folder:
        expected = sums_of_a_pass(case, rows, Path(folder))
    np.testing.assert_array_equal(streamed_sums(case, rows).view(np.uint32), expected.view(np.uint32))


def test_bad_arguments_are_refused() -> None:
    block = block_of(np.zeros((5, 4), np.float32))
    indptr, indices = np.array([0, 1, 2]), np.array([0, 5], np.uint32)
    out = np.zeros((2, 4), np.float32)
    with pytest.raises(FormatError, match="one of edges 0 to 1 comes from node 5, must be less than 5"):
        add_neighbor_sums(block, indptr, indices, 0, out, 1)
    with pytest.raises(FormatError, match="do not follow each other"):
        add_neighbor_sums(block, np.array([0, 3, 2]), indices, 0, out, 1)
    with pytest.raises(ValueError, match="uint32 or int64"):
        add_neighbor_sums(block, indptr, indices.astype(np.int32), 0, out, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rows of the lists"):
        add_neighbor_sums(block, indptr, indices, 0, out[:1], 1)
    with pytest.raises(TypeError):
        add_neighbor_sums(block, indptr, indices, 0, out.astype(np.float64), 1)

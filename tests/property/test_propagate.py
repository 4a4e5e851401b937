"""The streaming product against NumPy in float64: any graph, any columns, any formula, any staging and threads.

A *table* is laid out in tiles here, apart from how the package does it: groups of 4096 rows, tiles of 4 columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import BufferPool, ColumnBlock, Engine, File, PropagationPass
from tests.examples import examples

GROUP_ROWS = 4096
TILE_COLUMNS = 4
PIECE_EDGES = 16_384


@dataclass(frozen=True, kw_only=True)
class Case:
    """index_bytes and the rest as PropagationPass takes them; tiles: how many at a time; num_padded: rows.

    num_resident: rows in the block; edges from later ones are cold.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    features: NDArray[np.float32]
    scales: NDArray[np.float32]
    index_bytes: int
    self_weight: float
    addend_scale: float
    tiles: int
    num_padded: int
    num_resident: int
    num_threads: int
    staging_bytes: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_nodes = draw(st.one_of(st.integers(1, 40), st.integers(4090, 9000)))
    lengths = rng.poisson(draw(st.sampled_from([0.1, 3.0, 12.0])), num_nodes)
    for _ in range(draw(st.integers(0, 3))):
        lengths[rng.integers(num_nodes)] = rng.integers(60_000)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    dim = draw(st.integers(1, 30))
    self_weight = draw(st.sampled_from([0.0, 1.0]))
    tiles = draw(st.integers(1, 8))
    num_resident = num_nodes
    if self_weight == 0 and num_nodes > GROUP_ROWS and draw(st.booleans()):
        num_resident = GROUP_ROWS
        dim, tiles = draw(st.sampled_from([(4, 1), (16, 1), (16, 2), (16, 4), (32, 8)]))
    return Case(
        indptr=indptr,
        indices=rng.integers(0, num_nodes, indptr[-1]),
        features=rng.standard_normal((num_nodes, dim), np.float32),
        scales=rng.random(num_nodes, np.float32),
        index_bytes=draw(st.sampled_from([4, 8])),
        self_weight=self_weight,
        addend_scale=draw(st.sampled_from([0.0, 0.1])),
        tiles=tiles,
        num_padded=draw(st.one_of(st.just(0), st.integers(0, 9000))),
        num_resident=num_resident,
        num_threads=draw(st.integers(1, 3)),
        staging_bytes=draw(st.sampled_from([1 << 20, 4 << 20])),
    )


def to_tiles(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    num_groups, num_tiles = -(-len(rows) // GROUP_ROWS), -(-rows.shape[1] // TILE_COLUMNS)
    padded = np.zeros((num_groups * GROUP_ROWS, num_tiles * TILE_COLUMNS), np.float32)
    padded[: len(rows), : rows.shape[1]] = rows
    return padded.reshape(num_groups, GROUP_ROWS, num_tiles, TILE_COLUMNS).transpose(0, 2, 1, 3).copy()


def from_tiles(path: Path, num_rows: int, dim: int) -> NDArray[np.float32]:
    num_tiles = -(-dim // TILE_COLUMNS)
    tiles = np.fromfile(path, np.float32).reshape(-1, num_tiles, GROUP_ROWS, TILE_COLUMNS)
    return tiles.transpose(0, 2, 1, 3).reshape(-1, num_tiles * TILE_COLUMNS)[:num_rows, :dim]


def propagate(case: Case, folder: Path) -> NDArray[np.float32]:
    num_nodes, dim = case.features.shape
    case.indptr.tofile(folder / "indptr")
    case.indices.astype(np.uint32 if case.index_bytes == 4 else np.int64).tofile(folder / "indices")
    to_tiles(case.features).tofile(folder / "features")
    padded_scales = np.zeros(-(-num_nodes // 1024) * 1024, np.float32)
    padded_scales[:num_nodes] = case.scales
    padded_scales.tofile(folder / "scales")
    files = {name: File(str(folder / name), "read") for name in ("indptr", "indices", "features", "scales")}
    out = File(str(folder / "out"), "write")
    product = PropagationPass(
        Engine("threads", 8),
        files["indptr"],
        0,
        files["indices"],
        0,
        4 if case.index_bytes == 4 else 8,
        num_nodes,
        len(case.indices),
        case.num_threads,
        case.staging_bytes,
    )
    pool = BufferPool(0)
    num_sources = int(case.indices.max(initial=-1)) + 1
    is_cold = case.indices >= case.num_resident
    case.indices[is_cold].astype(np.uint32 if case.index_bytes == 4 else np.int64).tofile(folder / "cold-sources")
    piece_starts = np.append(np.arange(0, len(is_cold), PIECE_EDGES), len(is_cold))
    cold_before = np.concatenate([[0], np.cumsum(is_cold)]).astype(np.uint64)[piece_starts]
    num_tiles = -(-dim // TILE_COLUMNS)
    for first in range(0, num_tiles, case.tiles):
        columns = TILE_COLUMNS * min(case.tiles, num_tiles - first)
        num_spare = 3 * PIECE_EDGES if is_cold.any() else 0
        num_values = (num_nodes + num_spare) * columns + 4 * case.num_padded
        memory = pool.take(4 * num_values).view(np.float32)
        num_rows = num_nodes if case.self_weight else num_sources
        if is_cold.any():
            rows = ColumnBlock(memory, num_nodes - case.num_resident, columns)
            product.load(files["features"], "float32", num_tiles, first, rows, files["scales"], case.num_resident)
            sources, values = File(str(folder / "cold-sources"), "read"), File(str(folder / "cold-values"), "write")
            product.write_cold_values(sources, int(is_cold.sum()), rows, case.num_resident, values)
            num_rows = case.num_resident
        block = ColumnBlock(memory, num_rows, columns)
        product.load(files["features"], "float32", num_tiles, first, block, files["scales"])
        counts = product.run(
            block,
            out,
            "float32",
            num_tiles,
            first,
            row_scale=files["scales"],
            product_scale=0.5,
            self_weight=case.self_weight,
            addend=files["features"] if case.addend_scale else None,
            addend_scale=case.addend_scale,
            cold_values=File(str(folder / "cold-values"), "read") if is_cold.any() else None,
            cold_before=cold_before if is_cold.any() else None,
        )
        assert (counts.num_sources, counts.num_bad_rows) == (num_sources, 0)
    return from_tiles(folder / "out", num_nodes, dim)


@examples(25)
@given(case=cases())
def test_a_pass_equals_the_product_in_float64(case: Case) -> None:
    with TemporaryDirectory() as folder:
        product = propagate(case, Path(folder))
    rows = case.scales[:, None].astype(np.float64) * case.features
    targets = np.repeat(np.arange(len(rows)), np.diff(case.indptr))
    sums, sizes = case.self_weight * rows, case.self_weight * np.abs(rows)
    np.add.at(sums, targets, rows[case.indices])
    np.add.at(sizes, targets, np.abs(rows[case.indices]))
    scales = 0.5 * case.scales[:, None].astype(np.float64)
    expected = scales * sums + case.addend_scale * case.features
    # Of what was added up: a sum near zero cannot be better than its parts.
    size = scales * sizes + case.addend_scale * np.abs(case.features)
    assert np.all(np.abs(product - expected) <= 1e-5 * size + 1e-30)

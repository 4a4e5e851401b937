"""Claims about hop tables on the disk: what is written is what is opened, and damage is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop._native import tile_rows, untile_rows
from diskhop.derived.clean import TABLES_FILE
from diskhop.errors import ConfigError, FormatError, ReadError
from diskhop.hops.tables import TILE_ROWS, TableOperator, TableShape, TableSum, open_hop_tables
from diskhop.protocols import NodeRows
from tests.hop_tables import table_bytes, write_hop_tables


def arrays(count: int, num_rows: int, dim: int) -> list[np.ndarray]:
    values = np.arange(count * num_rows * dim, dtype=np.float32).reshape(count, num_rows, dim)
    return list(values)


@given(
    num_rows=st.integers(0, 300),
    dim=st.integers(1, 21),
    item_bytes=st.sampled_from((1, 2, 4)),
    tile_columns=st.integers(1, 9),
    extra_rows=st.integers(0, 5),
    num_threads=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_tiles_hold_columns_and_give_rows_back(
    num_rows: int, dim: int, item_bytes: int, tile_columns: int, extra_rows: int, num_threads: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    rows = draw.integers(0, 256, (num_rows, dim * item_bytes), np.uint8)
    num_tiles, part_bytes, tile_height = -(-dim // tile_columns), tile_columns * item_bytes, num_rows + extra_rows
    tiles = np.full((num_tiles, tile_height * part_bytes), 7, np.uint8)
    tile_rows(rows, tiles, part_bytes, num_threads)
    padded = np.zeros((tile_height, num_tiles * part_bytes), np.uint8)
    padded[:num_rows, : rows.shape[1]] = rows
    expected = padded.reshape(tile_height, num_tiles, part_bytes).swapaxes(0, 1).reshape(num_tiles, -1)
    np.testing.assert_array_equal(tiles, expected)

    picked = draw.integers(0, num_rows, 50) if num_rows else np.empty(0, np.int64)
    for chosen in (None, picked):
        wanted = rows if chosen is None else rows[chosen]
        out = np.full(wanted.shape, 9, np.uint8)
        untile_rows(tiles, part_bytes, chosen, out, num_threads)
        np.testing.assert_array_equal(out, wanted)


def test_a_row_outside_the_tiles_is_refused() -> None:
    tiles, out = np.zeros((2, 10 * 4), np.uint8), np.zeros((1, 8), np.uint8)
    for row in (-1, 10):
        with pytest.raises(IndexError, match="outside tiles of 10 rows"):
            untile_rows(tiles, 4, np.array([row]), out)
    with pytest.raises(ValueError, match="tiles must be"):
        untile_rows(tiles, 4, np.array([0]), np.zeros((1, 12), np.uint8))
    with pytest.raises(ValueError, match="cannot hold 11"):
        tile_rows(np.zeros((11, 8), np.uint8), tiles, 4)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_tile_and_file_is_whole_pages(dtype: str) -> None:
    for dim, tile_columns in ((128, 4), (7, 4), (7, 7)):
        shape = TableShape(num_rows=TILE_ROWS + 1, dim=dim, dtype=dtype, tile_columns=tile_columns)
        assert shape.tile_bytes % 4096 == 0
        assert shape.num_bytes % 4096 == 0


@pytest.mark.parametrize("tile_columns", [4, 6], ids=["tiled", "whole-rows"])
def test_checksums_come_of_pages_in_any_order(tile_columns: int) -> None:
    shape = TableShape(num_rows=TILE_ROWS * 2 + 5, dim=6, dtype="float16", tile_columns=tile_columns)
    content = table_bytes(np.ones((shape.num_rows, 6), np.float32), shape)
    whole, parts, damaged = TableSum(), TableSum(), TableSum()
    whole.add(0, content)
    for offset in reversed(range(0, len(content), shape.tile_bytes)):
        parts.add(offset, content[offset : offset + shape.tile_bytes])
    assert parts.checksum == whole.checksum
    content[-1] ^= 1
    damaged.add(0, content)
    assert damaged.checksum != whole.checksum


def test_pages_that_changed_places_have_another_checksum() -> None:
    content = np.random.default_rng(1).integers(256, size=3 * 4096).astype(np.uint8)
    sums = []
    for order in ([0, 1, 2], [0, 2, 1], [1, 0, 2]):
        table = TableSum()
        table.add(0, content.reshape(3, 4096)[order].reshape(-1))
        sums.append(table.checksum)
    assert len(set(sums)) == 3


def test_tables_are_opened_as_written(tmp_path: Path) -> None:
    operators = tuple(TableOperator(name=name, parameters={"alpha": 0.1}) for name in ("ppr", "row"))
    rows = np.array([3, 5, 9])
    tables = write_hop_tables(tmp_path / "t", arrays(5, 3, 6), rows=rows, operators=operators)
    assert [file.name for file in tables.files] == [
        "hop-0.bin",
        "ppr-hop-1.bin",
        "ppr-hop-2.bin",
        "row-hop-1.bin",
        "row-hop-2.bin",
    ]
    assert (tables.operators, tables.hops, tables.num_tables, tables.num_bytes) == (operators, 2, 5, 5 * 4096)
    np.testing.assert_array_equal(tables.row_of(NodeRows(np.array([9, 3]))), [2, 0])


@pytest.mark.parametrize(("nodes", "missing"), [([3, 4], 4), ([-1], -1), ([3, 10, 11], 10)])
@pytest.mark.parametrize("has_rows", [True, False], ids=["some-nodes", "all-nodes"])
def test_a_node_without_a_row_is_named(tmp_path: Path, nodes: list[int], missing: int, has_rows: bool) -> None:
    rows = np.array([3, 5, 9]) if has_rows else None
    tables = write_hop_tables(tmp_path / "t", arrays(2, 3 if has_rows else 4, 4), rows=rows)
    with pytest.raises(ConfigError, match=f"no row for node {missing}"):
        tables.row_of(NodeRows(np.array(nodes)))


def test_tables_of_another_state_of_the_dataset_are_refused(tmp_path: Path) -> None:
    write_hop_tables(tmp_path / "t", arrays(2, 3, 4), dataset_hash="aaaa")
    with pytest.raises(ConfigError, match=r"another version of the dataset .*run 'diskhop propagate' again"):
        open_hop_tables(tmp_path / "t", "bbbb")


def test_damage_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    with pytest.raises(ReadError, match="cannot be read"):
        open_hop_tables(folder)
    write_hop_tables(folder, arrays(2, 3, 4), rows=np.array([3, 5, 9]))
    manifest = (folder / TABLES_FILE).read_bytes()
    for content, message in (
        (b"{", "not JSON"),
        (b"{}", "not a manifest of hop tables of version 2"),
        (manifest.replace(b'"hops": 1', b'"hops": 2'), "its checksum does not match"),
    ):
        (folder / TABLES_FILE).write_bytes(content)
        with pytest.raises(FormatError, match=message):
            open_hop_tables(folder)
    (folder / TABLES_FILE).write_bytes(manifest)
    with (folder / "rows.bin").open("r+b") as file:
        file.write(b"\1")
    with pytest.raises(FormatError, match=r"rows\.bin: is damaged"):
        open_hop_tables(folder)


def test_a_truncated_table_is_told(tmp_path: Path) -> None:
    write_hop_tables(tmp_path / "t", arrays(2, 3, 4))
    with (tmp_path / "t" / "sign-hop-1.bin").open("r+b") as file:
        file.truncate(4095)
    with pytest.raises(FormatError, match=r"sign-hop-1\.bin"):
        open_hop_tables(tmp_path / "t")

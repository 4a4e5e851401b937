"""Hop tables: a folder with features aggregated over 0 to R hops by each of K operators (PP-GNN).

tables.json               manifest with a checksum; written last
hop-0.bin                 the features, shared by all operators
OPERATOR-hop-R.bin        the features after R hops
rows.bin                  int64, ascending: the dataset's row of each row; missing if they are equal
ids.bin                   int64: the id in the source of the node of each row; missing if ids are the dataset's rows
positions.bin             int64: its position in the source; missing if positions are ids, or the dataset's rows

Rows are stored in *groups* of TILE_ROWS. A group is divided into *tiles* of tile_columns columns, stored one after the
other; the values of a tile are stored row by row. A tile as wide as the table makes rows contiguous. Unused columns and
rows are zeros. A *block* is the range of the file that one tile occupies. TableSum defines the checksum of a file.
"""

from __future__ import annotations

import reprlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop._native import page_sums
from diskhop.config.hop import TABLE_DTYPES
from diskhop.dataset.encoding import row_bytes
from diskhop.dataset.fields import TYPE_NAME
from diskhop.dataset.files import check_length, map_array
from diskhop.dataset.manifest import MOST_COLUMNS, MOST_COUNT
from diskhop.derived.clean import TABLES_FILE
from diskhop.errors import ConfigError, FormatError
from diskhop.io.manifests import encode_manifest, read_manifest
from diskhop.protocols import Bytes, NodeRows, SourceIds

VERSION = 2
# Rows per tile: one column of float16 is whole pages, so that direct I/O can read every tile.
TILE_ROWS = 4096
# Columns per tile while tables are built by columns: one vector register of float32.
TILE_COLUMNS = 4
# Files end on whole pages, so that direct reads never reach past the end.
PAGE_BYTES = 4096
ROWS_FILE, IDS_FILE, POSITIONS_FILE = "rows.bin", "ids.bin", "positions.bin"
# Where the positions of nodes in the source are.
BY_ROWS, BY_IDS, STORED = "rows", "ids", "stored"
_REMEDY = "remove the folder and run 'diskhop propagate' again"


def whole_pages(num_bytes: int) -> int:
    """Round bytes up to whole pages."""
    return -(-num_bytes // PAGE_BYTES) * PAGE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """Layout of a table's file.

    num_rows: number of rows.
    dim: values per row.
    dtype: one of config.hop.TABLE_DTYPES.
    tile_columns: columns per tile.
    """

    num_rows: int
    dim: int
    dtype: str
    tile_columns: int

    @property
    def item_bytes(self) -> int:
        """Bytes per value."""
        return row_bytes(self.dtype, 1)

    @property
    def row_bytes(self) -> int:
        """Bytes per row."""
        return row_bytes(self.dtype, self.dim)

    @property
    def is_row_major(self) -> bool:
        """Whether rows are stored contiguously, up to a page. Rows of TILE_COLUMNS values are, but in whole tiles."""
        return self.tile_columns == self.dim != TILE_COLUMNS

    @property
    def num_groups(self) -> int:
        """Number of groups; the last one may have fewer rows."""
        return -(-self.num_rows // TILE_ROWS)

    @property
    def num_tiles(self) -> int:
        """Tiles per group."""
        return -(-self.dim // self.tile_columns)

    @property
    def tile_row_bytes(self) -> int:
        """Bytes of one row of a tile."""
        return self.tile_columns * self.item_bytes

    @property
    def tile_bytes(self) -> int:
        """Bytes of one tile of TILE_ROWS rows."""
        return TILE_ROWS * self.tile_row_bytes

    @property
    def num_bytes(self) -> int:
        """Bytes of the file: whole tiles, or whole pages if rows are contiguous."""
        if self.is_row_major:
            return whole_pages(self.num_rows * self.row_bytes)
        return self.num_groups * self.num_tiles * self.tile_bytes

    def tile_offset(self, group: int, tile: int) -> int:
        """Return the offset of a tile in the file."""
        return (group * self.num_tiles + tile) * self.tile_bytes


class TableSum:
    """Checksum of a table: the sum over its pages, in any order, of the core's page_sums."""

    def __init__(self) -> None:
        self._total = 0

    def add(self, offset: int, content: Bytes) -> None:
        """Add consecutive whole pages (1-D) at an offset of the file."""
        self.add_sum(page_sums(content, offset // PAGE_BYTES))

    def add_sum(self, pages: int) -> None:
        """Add the sum of pages."""
        self._total = (self._total + pages) % (1 << 64)

    @property
    def total(self) -> int:
        """Sum of the added pages."""
        return self._total

    @property
    def checksum(self) -> str:
        """Checksum of the whole file as 16 hex digits."""
        return f"{self._total:016x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOperator:
    """An operator in the manifest.

    name: prefix of its files.
    parameters: kind, parameters and direction, as JSON.
    """

    name: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A table's file.

    name: name in the folder.
    num_bytes: length.
    checksum: see TableSum.
    """

    name: str
    num_bytes: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HopTables:
    """An open folder of hop tables: the content of tables.json.

    path: the folder.
    dataset_hash: hash of the dataset.
    operators: operators, in the order of files.
    hops: hops per operator.
    shape: layout of every table.
    files: hop 0, then hops 1 to R of the first operator, of the second, and so on.
    num_nodes: number of nodes of the dataset.
    rows: int64, ascending, mapped: the dataset's row of each row; None if they are equal.
    ids: int64, mapped: id in the source of each row's node; None if ids are the dataset's rows.
    positions: int64, mapped: position in the source of each row's node; None if positions are the dataset's rows.
    """

    path: Path
    dataset_hash: str
    operators: tuple[TableOperator, ...]
    hops: int
    shape: TableShape
    files: tuple[TableFile, ...]
    num_nodes: int
    rows: NodeRows | None
    ids: SourceIds | None = None
    positions: NDArray[np.int64] | None = None

    @property
    def num_rows(self) -> int:
        """Rows per table."""
        return self.shape.num_rows

    @property
    def dim(self) -> int:
        """Values per row."""
        return self.shape.dim

    @property
    def dtype(self) -> str:
        """Dtype of values: float32, float16 or bfloat16."""
        return self.shape.dtype

    @property
    def num_tables(self) -> int:
        """Number of tables, K * R + 1."""
        return len(self.files)

    @property
    def num_bytes(self) -> int:
        """Bytes of all tables."""
        return sum(file.num_bytes for file in self.files)

    def table_path(self, table: int) -> Path:
        """Return the path of a table by its index in `files`."""
        return self.path / self.files[table].name

    def row_of(self, nodes: NodeRows) -> NDArray[np.int64]:
        """Return the rows of nodes, int64. Raises ConfigError for the first node without a row."""
        if self.rows is None:
            found: NDArray[np.int64] = nodes
            is_missing = (nodes < 0) | (nodes >= self.num_rows)
        else:
            found = np.searchsorted(self.rows, nodes).astype(np.int64, copy=False)
            is_missing = self.rows[np.minimum(found, self.num_rows - 1)] != nodes
        if is_missing.any():
            raise self.no_row(int(nodes[np.argmax(is_missing)]))
        return found

    def no_row(self, number: int, what: str = "node") -> ConfigError:
        """Return the error for a node without a row. number: its id, or another number that `what` names."""
        return ConfigError(
            f"{self.path}: has no row for {what} {number}; run 'diskhop propagate --rows all', or with a .npy of ids "
            "that includes it"
        )


def table_names(operators: tuple[TableOperator, ...], hops: int) -> tuple[str, ...]:
    """Return the names of the files in their order."""
    return (
        "hop-0.bin",
        *(f"{operator.name}-hop-{hop}.bin" for operator in operators for hop in range(1, hops + 1)),
    )


def encode_hop_tables(tables: HopTables) -> bytes:
    """Return the content of tables.json."""
    content = {
        "dataset_hash": tables.dataset_hash,
        "operators": [asdict(operator) for operator in tables.operators],
        "hops": tables.hops,
        "shape": asdict(tables.shape),
        "files": [asdict(file) for file in tables.files],
        "num_nodes": tables.num_nodes,
        "rows_checksum": None if tables.rows is None else _hash_ids(tables.rows),
        "ids_checksum": None if tables.ids is None else _hash_ids(tables.ids),
        "positions": BY_ROWS if tables.positions is None else BY_IDS if tables.positions is tables.ids else STORED,
        "positions_checksum": None if tables.positions is None else _hash_ids(tables.positions),
    }
    return encode_manifest(content, VERSION)


def open_hop_tables(path: Path, dataset_hash: str | None = None) -> HopTables:
    """Open a folder of hop tables. dataset_hash: hash of the dataset that they must belong to, None for any.

    Raises ReadError, FormatError if the folder is damaged, ConfigError if the dataset has changed since.
    """
    content = read_manifest(path / TABLES_FILE, VERSION, "hop tables", _REMEDY)
    try:
        tables = _parse_tables(path, content)
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{path / TABLES_FILE}: is not a manifest of hop tables ({error!r}); {_REMEDY}") from error
    if dataset_hash is not None and tables.dataset_hash != dataset_hash:
        raise ConfigError(
            f"{path}: was built from another version of the dataset (hash {tables.dataset_hash}, now {dataset_hash}); "
            "run 'diskhop propagate' again"
        )
    for file in tables.files:
        check_length(path / file.name, file.num_bytes)
    return tables


def _parse_tables(path: Path, content: dict[str, Any]) -> HopTables:
    """Check the content of tables.json and open the arrays that it names. Whoever wrote it computed its checksum."""
    shape = TableShape(**content["shape"])
    files = tuple(TableFile(**file) for file in content["files"])
    for name, count, least, most in (
        ("num_rows", shape.num_rows, 0, MOST_COUNT),
        ("num_nodes", content["num_nodes"], 0, MOST_COUNT),
        ("hops", content["hops"], 0, MOST_COLUMNS),
        ("dim", shape.dim, 1, MOST_COLUMNS),
        ("tile_columns", shape.tile_columns, 1, MOST_COLUMNS),
    ):
        if type(count) is not int or not least <= count <= most:
            raise _invalid(path, name, f"a whole number from {least} to {most}", count)
    if shape.dtype not in TABLE_DTYPES:
        raise _invalid(path, "dtype", f"one of {', '.join(TABLE_DTYPES)}", shape.dtype)
    if not files:
        raise _invalid(path, "files", "at least one", 0)
    for file in files:
        if not isinstance(file.name, str) or not TYPE_NAME.fullmatch(file.name):
            raise _invalid(path, "files", "names of files in the folder", file.name)
        if file.num_bytes != shape.num_bytes:
            raise _invalid(path, file.name, f"of {shape.num_bytes} bytes, as its shape says", file.num_bytes)
    num_rows = shape.num_rows
    ids = _open_numbers(path / IDS_FILE, num_rows, content["ids_checksum"])
    positions = ids
    if content["positions"] != BY_IDS:
        positions = _open_numbers(path / POSITIONS_FILE, num_rows, content["positions_checksum"])
    rows = _open_numbers(path / ROWS_FILE, num_rows, content["rows_checksum"])
    return HopTables(
        path=path,
        dataset_hash=content["dataset_hash"],
        operators=tuple(TableOperator(**operator) for operator in content["operators"]),
        hops=content["hops"],
        shape=shape,
        files=files,
        num_nodes=content["num_nodes"],
        rows=None if rows is None else NodeRows(rows),
        ids=None if ids is None else SourceIds(ids),
        positions=positions,
    )


def _invalid(path: Path, name: str, rule: str, value: object) -> FormatError:
    return FormatError(f"{path / TABLES_FILE}: {name} must be {rule}, got {reprlib.repr(value)}; {_REMEDY}")


def _open_numbers(path: Path, num_rows: int, checksum: str | None) -> NDArray[np.int64] | None:
    if checksum is None:
        return None
    numbers: NDArray[np.int64] = map_array(path, "<i8", num_rows)
    if _hash_ids(numbers) != checksum:
        raise FormatError(f"{path}: is damaged (its checksum is {_hash_ids(numbers)}, not {checksum}); {_REMEDY}")
    return numbers


def _hash_ids(rows: NDArray[np.int64]) -> str:
    return f"{xxhash.xxh3_64_intdigest(np.ascontiguousarray(rows, '<i8').data):016x}"

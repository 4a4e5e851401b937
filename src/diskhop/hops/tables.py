"""Hop tables: a folder with the features of nodes, aggregated over 0 to R hops by each of K operators (PP-GNN).

tables.json               what they are of, with a checksum; written last
hop-0.bin                 the features themselves, which all operators share
OPERATOR-hop-R.bin        those after R hops
rows.bin                  int64, ascending: the node of each row; not there where row i is node i

A table's rows are cut into *groups* of TILE_ROWS, a group into *tiles* of tile_columns columns, one after the other:
values of a tile lie row by row. Tiles of all columns make rows that lie one after the other. What columns and rows do
not fill is zeros. A *block* is the part of a file that a tile takes; of a file's checksum see TableSum.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop._native import page_sums
from diskhop.dataset.encoding import row_bytes
from diskhop.dataset.files import check_length, map_array
from diskhop.derived.clean import TABLES_FILE
from diskhop.errors import ConfigError, FormatError, ReadError
from diskhop.io.checksums import json_checksum
from diskhop.protocols import Bytes, NodeIds

VERSION = 1
# Rows of a tile: one column of float16 is whole pages, so that direct I/O takes every tile.
TILE_ROWS = 4096
# Columns of a tile where tables are written column by column: a vector register's worth of float32.
TILE_COLUMNS = 4
# Files end on whole pages: direct reads need none that reach past the end.
PAGE_BYTES = 4096
ROWS_FILE = "rows.bin"
_REMEDY = "remove its folder and run 'diskhop propagate' again"


def whole_pages(num_bytes: int) -> int:
    """The fewest bytes of whole pages that are so many."""
    return -(-num_bytes // PAGE_BYTES) * PAGE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """How a table's rows lie in its file. dim: values of a row, of one of config.train.TABLE_DTYPES."""

    num_rows: int
    dim: int
    dtype: str
    tile_columns: int

    @property
    def item_bytes(self) -> int:
        """Bytes of a value."""
        return row_bytes(self.dtype, 1)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row's values."""
        return row_bytes(self.dtype, self.dim)

    @property
    def is_row_major(self) -> bool:
        """Whether rows lie whole, one after the other, up to a page; those of TILE_COLUMNS values do in whole tiles."""
        return self.tile_columns == self.dim != TILE_COLUMNS

    @property
    def num_groups(self) -> int:
        """Groups of TILE_ROWS, the last of which may be short of rows."""
        return -(-self.num_rows // TILE_ROWS)

    @property
    def num_tiles(self) -> int:
        """Tiles of a group."""
        return -(-self.dim // self.tile_columns)

    @property
    def tile_row_bytes(self) -> int:
        """Bytes of a row in a tile."""
        return self.tile_columns * self.item_bytes

    @property
    def tile_bytes(self) -> int:
        """Bytes of a tile: TILE_ROWS rows of it."""
        return TILE_ROWS * self.tile_row_bytes

    @property
    def num_bytes(self) -> int:
        """Bytes of the file: whole tiles; of rows that lie whole, whole pages."""
        if self.is_row_major:
            return whole_pages(self.num_rows * self.row_bytes)
        return self.num_groups * self.num_tiles * self.tile_bytes

    def tile_offset(self, group: int, tile: int) -> int:
        """Where a tile begins in the file."""
        return (group * self.num_tiles + tile) * self.tile_bytes


class TableSum:
    """A table's checksum: the sum of what its pages add to it (see the core's page_sums), which come in any order."""

    def __init__(self) -> None:
        self._total = 0

    def add(self, offset: int, content: Bytes) -> None:
        """Take whole pages that lie one after the other (1-D) from an offset of the file on."""
        self.add_sum(page_sums(content, offset // PAGE_BYTES))

    def add_sum(self, pages: int) -> None:
        """Take pages by what they add."""
        self._total = (self._total + pages) % (1 << 64)

    @property
    def total(self) -> int:
        """Of the pages that were taken."""
        return self._total

    @property
    def checksum(self) -> str:
        """Of the whole file, as 16 hex digits."""
        return f"{self._total:016x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOperator:
    """What tables were made with. name: that their files begin with. parameters: of the operator, as JSON has them."""

    name: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A table's file in the folder. checksum: see TableSum."""

    name: str
    num_bytes: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HopTables:
    """What tables.json says.

    files: hop 0, then hops 1 to R of each operator in turn. rows: int64, ascending, mapped: the node of each row; None:
    row i is node i.
    """

    path: Path
    dataset_hash: str
    operators: tuple[TableOperator, ...]
    hops: int
    shape: TableShape
    files: tuple[TableFile, ...]
    rows: NodeIds | None

    @property
    def num_rows(self) -> int:
        """Rows of each table."""
        return self.shape.num_rows

    @property
    def dim(self) -> int:
        """Values of a row."""
        return self.shape.dim

    @property
    def dtype(self) -> str:
        """Of values: float32, float16 or bfloat16."""
        return self.shape.dtype

    @property
    def num_tables(self) -> int:
        """K * R + 1."""
        return len(self.files)

    @property
    def num_bytes(self) -> int:
        """Of all tables."""
        return sum(file.num_bytes for file in self.files)

    def table_path(self, table: int) -> Path:
        """Where a table is, by its place in `files`."""
        return self.path / self.files[table].name

    def row_of(self, nodes: NodeIds) -> NDArray[np.int64]:
        """The rows of nodes, int64. Raises ConfigError naming the first that has none."""
        if self.rows is None:
            found = nodes
            is_missing = (nodes < 0) | (nodes >= self.num_rows)
        else:
            found = np.searchsorted(self.rows, nodes).astype(np.int64, copy=False)
            is_missing = self.rows[np.minimum(found, self.num_rows - 1)] != nodes
        if is_missing.any():
            raise ConfigError(
                f"{self.path}: has no row for node {nodes[np.argmax(is_missing)]}; "
                "run 'diskhop propagate' with --rows that has it"
            )
        return found


def table_names(operators: tuple[TableOperator, ...], hops: int) -> tuple[str, ...]:
    """The names of tables' files, in their order."""
    return (
        "hop-0.bin",
        *(f"{operator.name}-hop-{hop}.bin" for operator in operators for hop in range(1, hops + 1)),
    )


def encode_hop_tables(tables: HopTables) -> bytes:
    """The content of tables.json."""
    content = {
        "dataset_hash": tables.dataset_hash,
        "operators": [asdict(operator) for operator in tables.operators],
        "hops": tables.hops,
        "shape": asdict(tables.shape),
        "files": [asdict(file) for file in tables.files],
        "rows_checksum": None if tables.rows is None else _hash_ids(tables.rows),
    }
    content = {"version": VERSION, **content}
    return (json.dumps({**content, "checksum": json_checksum(content)}, indent=1) + "\n").encode()


def open_hop_tables(path: Path, dataset_hash: str | None = None) -> HopTables:
    """Open a folder of hop tables; dataset_hash: of the dataset that they are to be of, None for any.

    Raises ReadError; FormatError for a folder that is damaged, ConfigError for one of another state of the dataset.
    """
    manifest = path / TABLES_FILE
    content = _read_manifest(manifest)
    shape = TableShape(**content["shape"])
    tables = HopTables(
        path=path,
        dataset_hash=content["dataset_hash"],
        operators=tuple(TableOperator(**operator) for operator in content["operators"]),
        hops=content["hops"],
        shape=shape,
        files=tuple(TableFile(**file) for file in content["files"]),
        rows=_open_rows(path / ROWS_FILE, shape.num_rows, content["rows_checksum"]),
    )
    if dataset_hash is not None and tables.dataset_hash != dataset_hash:
        raise ConfigError(
            f"{path}: was made from another state of the dataset ({tables.dataset_hash}, which now is {dataset_hash}); "
            "run 'diskhop propagate' again"
        )
    for file in tables.files:
        check_length(path / file.name, file.num_bytes)
    return tables


def _read_manifest(manifest: Path) -> dict[str, Any]:
    try:
        content = json.loads(manifest.read_bytes())
    except OSError as error:
        raise ReadError(f"{manifest}: cannot be read: {error.strerror}; name a folder of hop tables") from error
    except ValueError:
        raise FormatError(f"{manifest}: damaged: it is not JSON; {_REMEDY}") from None
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise FormatError(f"{manifest}: is not of hop tables of version {VERSION}; {_REMEDY}")
    checksum = content.pop("checksum", None)
    if checksum != json_checksum(content):
        raise FormatError(f"{manifest}: damaged: its checksum does not fit; {_REMEDY}")
    return content


def _open_rows(path: Path, num_rows: int, checksum: str | None) -> NodeIds | None:
    if checksum is None:
        return None
    rows: NodeIds = map_array(path, "<i8", num_rows)
    if _hash_ids(rows) != checksum:
        raise FormatError(f"{path}: damaged: its checksum is {_hash_ids(rows)}, not {checksum}; {_REMEDY}")
    return rows


def _hash_ids(rows: NodeIds) -> str:
    return f"{xxhash.xxh3_64_intdigest(np.ascontiguousarray(rows, '<i8').data):016x}"

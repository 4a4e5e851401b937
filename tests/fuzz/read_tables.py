"""tables.json of a folder of hop tables, with the checksum that its content calls for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from diskhop.derived.clean import TABLES_FILE
from diskhop.errors import FormatError, ReadError
from diskhop.hops.tables import open_hop_tables
from tests.fuzz.forge import with_json_checksum
from tests.fuzz.target import Target
from tests.hop_tables import write_hop_tables

_ARRAYS = [np.zeros((4, 2), np.float32)] * 2


def read(content: bytes, folder: Path) -> None:
    for name in ("hop-0.bin", "sign-hop-1.bin"):
        (folder / name).write_bytes(bytes(4096))
    (folder / "rows.bin").write_bytes(np.arange(4, dtype="<i8").tobytes())
    (folder / TABLES_FILE).write_bytes(with_json_checksum(content))
    tables = open_hop_tables(folder)
    assert tables.num_rows >= 0
    assert tables.num_bytes == sum(tables.table_path(each).stat().st_size for each in range(tables.num_tables))


def seeds(folder: Path) -> Sequence[bytes]:
    write_hop_tables(folder / "plain", _ARRAYS)
    write_hop_tables(folder / "rows", _ARRAYS, rows=np.arange(4))
    return [(folder / name / TABLES_FILE).read_bytes() for name in ("plain", "rows")]


TARGET = Target(
    name="tables",
    read=read,
    errors=(FormatError, ReadError),
    seeds=seeds,
    words=(b'"stored"', b'"ids"', b'"rows.bin"', b'"../x"', b'"dim": 4'),
)

"""Arrays of NumPy to import: .npz archives, and .npy files."""

from __future__ import annotations

import io
import itertools
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import SourceError
from diskhop.importing.arrays.npy import archive_arrays, archive_text, file_array
from tests.fuzz.target import Target

_MOST_BLOCKS = 4


def read(content: bytes, folder: Path) -> None:
    path = folder / ("data.npz" if content[:2] == b"PK" else "array.npy")
    path.write_bytes(content)
    arrays = archive_arrays(path) if path.suffix == ".npz" else {"array": file_array(path)}
    for name, array in arrays.items():
        assert array.num_items >= 0
        if array.shape and not array.by_columns:
            for block in itertools.islice(array.blocks(), _MOST_BLOCKS):
                assert block.dtype == array.dtype
        if path.suffix == ".npz" and name == "text":
            archive_text(path, name)


def seeds(folder: Path) -> Sequence[bytes]:
    made = []
    arrays: dict[str, NDArray[Any]] = {
        "edge_index": np.arange(8).reshape(2, 4),
        "x": np.ones((3, 2), np.float32),
        "text": np.array("name"),
    }
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", compression) as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, array)
        made.append(packed.getvalue())
    for array in (np.arange(6).reshape(2, 3), np.asfortranarray(np.ones((3, 2))), np.array(7)):
        plain = io.BytesIO()
        np.save(plain, array)
        made.append(plain.getvalue())
    return made


TARGET = Target(
    name="arrays",
    read=read,
    errors=(SourceError,),
    seeds=seeds,
    words=(b"'descr': '|O'", b"'shape': (", b"True", b"'<f8'", b"'>i2'", b"(" * 200, b"-1,", b"PK\x01\x02"),
)

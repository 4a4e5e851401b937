"""Writes arrays and names to files that NumPy and `diskhop import` read."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.build.files import DatasetFiles
from diskhop.dataset.name_lines import read_plain


def write_npy(
    files: DatasetFiles, relative: str, dtype: Any, shape: tuple[int, ...], blocks: Iterable[NDArray[Any]]
) -> None:
    """Write a .npy file from blocks of consecutive elements."""
    stored = np.dtype(dtype).newbyteorder("<")
    header = BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": np.lib.format.dtype_to_descr(stored), "fortran_order": False, "shape": shape}
    )

    def contents() -> Iterator[NDArray[Any]]:
        yield np.frombuffer(header.getvalue(), np.uint8)
        for block in blocks:
            yield block.astype(stored, copy=False)

    num_bytes = files.write(relative, contents())
    assert num_bytes == len(header.getvalue()) + int(np.prod(shape)) * stored.itemsize, "the shape says how many"


def write_number(files: DatasetFiles, relative: str, value: int) -> None:
    """Write a .npy file of one number."""
    write_npy(files, relative, np.int64, (), [np.array([value])])


def write_names(files: DatasetFiles, relative: str, path: Path) -> None:
    """Write the names in a dataset's file as plain lines in gzip, with the same bytes every time.

    Raises ConfigError for a name with a line feed.
    """
    files.write(relative, _packed(path))


def _packed(path: Path) -> Iterator[NDArray[np.uint8]]:
    packed = BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as stream:
        for block in read_plain(path):
            stream.write(block.data)
            yield _taken(packed)
    yield _taken(packed)


def _taken(packed: BytesIO) -> NDArray[np.uint8]:
    content = np.frombuffer(packed.getvalue(), np.uint8)
    packed.seek(0)
    packed.truncate()
    return content

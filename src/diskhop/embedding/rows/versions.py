"""Versions of a file of learned rows: whole copies with a checksum, which checkpoints refer to by number.

A copy is durable before a checkpoint refers to it, and stays until no checkpoint does. A crash at any instant
therefore leaves what the last checkpoint needs.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray
from torch import Tensor

from diskhop._native import BufferPool, Engine, File
from diskhop.embedding.rows.layout import RowLayout
from diskhop.errors import ReadError
from diskhop.io.atomic import Injector, announce, destination_errors, sync_directory, sync_file
from diskhop.io.streams import TRANSFER_BYTES, SequentialWriter, read_in_order
from diskhop.nn.typed.embeddings import initial_blocks

_WRITE_BYTES = 1 << 20
# A file is read and written in two buffers each.
COPYING_BYTES = 2 * (TRANSFER_BYTES + _WRITE_BYTES)
# Initial rows are drawn for this many bytes of pages at a time.
_DRAWN_BYTES = 1 << 20


def version_path(folder: Path, name: str, number: int) -> Path:
    """Return the file of a version of a type's rows."""
    return folder / f"{name}.{number}.bin"


def work_path(folder: Path, name: str) -> Path:
    """Return the file of a type's rows that is in use."""
    return folder / f"{name}.work.bin"


def write_initial(path: Path, layout: RowLayout, engine: Engine, seed: int, key: int) -> None:
    """Write the rows as they are before training; see NodeEmbeddings. Raises DestinationError or WriteError."""
    rows_at_once = max(1, _DRAWN_BYTES // layout.page_bytes) * layout.rows_per_page
    with SequentialWriter(_created(path), engine, BufferPool(0), buffer_bytes=_WRITE_BYTES) as writer:
        for values in initial_blocks(layout.num_rows, layout.dim, seed, key, rows_at_once):
            writer.append(_pages_of(values, layout))
        writer.finish()


def copy_rows(source: Path, destination: Path, layout: RowLayout, engine: Engine, injector: Injector | None) -> int:
    """Copy a file and return its checksum; the copy is durable. Raises ReadError, WriteError and DestinationError."""
    announce(injector, "write", destination)
    checksum = xxhash.xxh3_64()
    pool = BufferPool(0)
    with SequentialWriter(_created(destination), engine, pool, buffer_bytes=_WRITE_BYTES) as writer:
        for part in read_in_order(_opened(source, layout), layout.file_bytes, engine, pool):
            checksum.update(part.data)
            writer.append(part)
        writer.finish()
    sync_file(destination, injector)
    sync_directory(destination.parent, injector)
    return checksum.intdigest()


def restore_rows(source: Path, destination: Path, layout: RowLayout, engine: Engine, checksum: int) -> None:
    """Overwrite a file with a version. Raises ReadError for a damaged one."""
    if copy_rows(source, destination, layout, engine, None) != checksum:
        raise damaged(source)


def remove_versions(folder: Path, name: str, kept: Collection[int]) -> None:
    """Remove all versions of a type's rows except some."""
    wanted = {version_path(folder, name, number) for number in kept}
    with destination_errors(folder):
        for path in folder.iterdir():
            stem, _, number = path.stem.rpartition(".")
            if path not in wanted and path.suffix == ".bin" and stem == name and number.isdigit():
                path.unlink()


def read_rows(path: Path, layout: RowLayout, engine: Engine, first: int, stop: int) -> NDArray[np.float32]:
    """Return rows first to stop - 1 of a file, float32 (rows, dim). Raises ReadError."""
    first_page, last_page = first // layout.rows_per_page, -(-stop // layout.rows_per_page)
    num_bytes = (last_page - first_page) * layout.page_bytes
    buffer = BufferPool(0).take(num_bytes)
    zero, length = np.zeros(1, np.uint64), np.array([num_bytes], np.uint64)
    offset = np.array([first_page * layout.page_bytes], np.uint64)
    engine.wait(engine.submit_read(_opened(path, layout), offset, length, buffer, zero))
    pages = buffer.view(np.float32).reshape(-1, layout.page_bytes // 4)
    records = pages[:, : layout.rows_per_page * layout.record_floats].reshape(-1, layout.record_floats)
    start = first - first_page * layout.rows_per_page
    return records[start : start + stop - first, :-1].copy()


class RowsOfVersion:
    """The rows of a version, read where they are asked for.

    shape: (rows, dim).
    checksum: of the whole file, which is compared by check().
    """

    def __init__(self, path: Path, layout: RowLayout, engine: Engine, checksum: int) -> None:
        self._path, self._layout, self._engine = path, layout, engine
        self.checksum = checksum % (1 << 64)
        self.shape = layout.num_rows, layout.dim

    def __getitem__(self, part: slice) -> Tensor:
        """Return consecutive rows, float32 (rows, dim). Raises ReadError."""
        first, stop, _ = part.indices(self._layout.num_rows)
        return torch.from_numpy(read_rows(self._path, self._layout, self._engine, first, stop))

    def check(self) -> None:
        """Read the whole file. Raises ReadError for a damaged one."""
        if checksum_of(self._path, self._layout, self._engine) != self.checksum:
            raise damaged(self._path)


def checksum_of(path: Path, layout: RowLayout, engine: Engine) -> int:
    """Return the checksum of a file. Raises ReadError."""
    checksum = xxhash.xxh3_64()
    for part in read_in_order(_opened(path, layout), layout.file_bytes, engine, BufferPool(0)):
        checksum.update(part.data)
    return checksum.intdigest()


def damaged(path: Path) -> ReadError:
    """Return the error of a version that is missing, short or changed."""
    return ReadError(
        f"{path}: is damaged (its checksum or size is wrong): check the disk, copy the run again, or train again in a "
        "new folder"
    )


def _opened(path: Path, layout: RowLayout) -> File:
    file = File(str(path), "read")
    if file.num_bytes != layout.file_bytes:
        raise damaged(path)
    return file


def _created(path: Path) -> Path:
    with destination_errors(path):
        path.touch()
    return path


def _pages_of(values: NDArray[np.float32], layout: RowLayout) -> NDArray[np.uint8]:
    """Lay out rows without any gradient yet, the first of which begins a page, as whole pages."""
    num_pages = -(-len(values) // layout.rows_per_page)
    records = np.zeros((num_pages * layout.rows_per_page, layout.record_floats), np.float32)
    records[: len(values), :-1] = values
    pages = np.zeros((num_pages, layout.page_bytes // 4), np.float32)
    pages[:, : layout.rows_per_page * layout.record_floats] = records.reshape(num_pages, -1)
    return pages.view(np.uint8).reshape(-1)

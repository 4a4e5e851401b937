"""Reading the files of a dataset, checked for length and checksum."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop.dataset.manifest import CHECKSUMS_NAME, MANIFEST_NAME, MOST_MANIFEST_BYTES, FileEntry, Manifest
from diskhop.dataset.manifest_file import parse_manifest
from diskhop.errors import FormatError, ReadError
from diskhop.io.checksums import BLOCK_BYTES, sum_file
from diskhop.io.mapping import map_file

# Smaller files are checked completely whenever a dataset is opened.
SMALL_FILE_BYTES = 64 << 20
# Rows that are read at a time.
_ROWS_BYTES = 4 << 20


def read_manifest(path: Path) -> Manifest:
    """Read and check the manifest of a dataset. Raises FormatError if there is no dataset."""
    manifest_path = path / MANIFEST_NAME
    try:
        if not path.is_dir():
            state = "is not a folder" if path.exists() else "does not exist"
            raise FormatError(f"{path}: {state}; give the folder of a dataset that 'diskhop import' wrote")
        if not manifest_path.is_file():
            raise FormatError(
                f"{path}: is not a diskhop dataset (it has no {MANIFEST_NAME}); run 'diskhop import' first"
            )
        with manifest_path.open("rb") as file:
            num_bytes = os.fstat(file.fileno()).st_size
            content = file.read(
                min(num_bytes, MOST_MANIFEST_BYTES + 1)
            )  # one more byte, so that a file that is too long is refused
    except OSError as error:
        raise _read_error(manifest_path, error) from error
    return parse_manifest(content, str(manifest_path))


def dataset_files(manifest: Manifest) -> Iterator[tuple[str, FileEntry]]:
    """Yield the path and entry of every file in the manifest, including the block checksums."""
    yield from sorted(manifest.files.items())
    yield CHECKSUMS_NAME, manifest.checksums


def require_inside(root: Path, folder: Path, manifest: Manifest) -> None:
    """Raise FormatError for a file of a dataset that a symbolic link leads out of its folder.

    A dataset from elsewhere could name any file of this machine, which an update would then write to. root: the
    dataset. folder: of the files.
    """
    real_root = root.resolve()
    inside: set[Path] = set()
    for relative, _ in dataset_files(manifest):
        path = folder / relative
        if path.parent not in inside and path.parent.resolve().is_relative_to(real_root):
            inside.add(path.parent)
        if path.parent not in inside or (path.is_symlink() and not path.resolve().is_relative_to(real_root)):
            raise FormatError(
                f"{path}: is a symbolic link that leads out of the dataset, to {path.resolve()}; copy the file there, "
                "or import the graph to that disk"
            )


def check_length(path: Path, num_bytes: int) -> None:
    """Raise FormatError unless `path` is a regular file of this length.

    A feature table may be longer: an update appends rows to it, which belong to the next generation of the dataset.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise FormatError(f"{path}: is missing; the copy is incomplete: run 'diskhop import' again") from None
    except OSError as error:
        raise _read_error(path, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise FormatError(f"{path}: is not a regular file; run 'diskhop import' again")
    if status.st_size != num_bytes and not (status.st_size > num_bytes and _may_grow(path)):
        raise FormatError(
            f"{path}: is {status.st_size} bytes, the manifest says {num_bytes}; "
            "the copy is incomplete: run 'diskhop import' again"
        )


def _may_grow(path: Path) -> bool:
    return path.name == "features.bin" and path.parent.parent.name == "nodes"


def read_whole(path: Path, entry: FileEntry) -> NDArray[np.uint8]:
    """Read a whole file and check it. Raises FormatError if length or checksum differ from the manifest."""
    check_length(path, entry.num_bytes)
    try:
        content = np.fromfile(path, np.uint8, entry.num_bytes)
    except OSError as error:
        raise _read_error(path, error) from error
    if len(content) != entry.num_bytes or f"{sum_file(content).digest:016x}" != entry.xxh3_64:
        raise FormatError(
            f"{path}: does not match its checksum, so its content has changed; "
            "'diskhop verify' names the damaged blocks: copy or import the dataset again"
        )
    return content


def read_rows(
    path: Path, row_bytes: int, num_rows: int, at_once: int | None = None, starts: Iterable[int] | None = None
) -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes (rows, row_bytes) of a file in blocks of a few MiB, or of at_once rows.

    starts: first rows of the blocks to read, ascending; None: of all. Raises FormatError if the file has another
    length, ReadError.
    """
    check_length(path, num_rows * row_bytes)
    rows = at_once or max(1, _ROWS_BYTES // row_bytes)
    try:
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            for start in range(0, num_rows, rows) if starts is None else starts:
                num_bytes = min(rows, num_rows - start) * row_bytes
                file.seek(start * row_bytes)
                block = np.fromfile(file, np.uint8, num_bytes)
                if len(block) < num_bytes:
                    raise damaged(path)
                yield block.reshape(-1, row_bytes)
    except OSError as error:
        raise _read_error(path, error) from error


def damaged(path: Path) -> FormatError:
    """Return the error of a damaged file."""
    return FormatError(
        f"{path}: is damaged; run 'diskhop verify' to list the damaged blocks, and copy or import the dataset again"
    )


def read_blocks(path: Path, num_bytes: int | None = None) -> Iterator[NDArray[np.uint8]]:
    """Yield a file from front to back in blocks of BLOCK_BYTES; each overwrites the previous one.

    num_bytes: what is read of it; None: all.
    """
    block = np.empty(BLOCK_BYTES, np.uint8)
    left_bytes = sys.maxsize if num_bytes is None else num_bytes
    try:
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while True:
                filled, wanted = 0, min(BLOCK_BYTES, left_bytes)
                while filled < wanted and (got := file.readinto(block[filled:wanted].data)):
                    filled += got
                left_bytes -= filled
                if filled:
                    yield block[:filled]
                if filled < BLOCK_BYTES:
                    return
    except OSError as error:
        raise _read_error(path, error) from error


def checksum_of(path: Path, num_bytes: int | None = None) -> int:
    """Return the xxh3_64 of the first bytes of a file, by default of all. Raises ReadError."""
    hasher = xxhash.xxh3_64()
    for block in read_blocks(path, num_bytes):
        hasher.update(block.data)
    return hasher.intdigest()


def map_array(path: Path, dtype: Any, count: int) -> NDArray[Any]:
    """Map a file as a read-only array for random access."""
    num_bytes = count * np.dtype(dtype).itemsize
    check_length(path, num_bytes)
    return map_file(path, num_bytes).view(dtype)


def drop_cached_pages(path: Path) -> None:
    """Drop a file from the page cache if possible, so that the next read shows the state of the disk."""
    with contextlib.suppress(OSError):
        # Opening a pipe in place of the file would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.fsync(descriptor)  # dirty pages cannot be dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _read_error(path: Path, error: OSError) -> ReadError:
    return ReadError(f"{path}: cannot be read: {error.strerror or error}; check its permissions and the disk")


class StoredArrays:
    """The arrays of a dataset that are read whole, checked against their checksums. path: the dataset."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self._manifest = manifest

    def read(self, relative: str, dtype: Any) -> NDArray[Any]:
        """Read one file of the dataset, checked against its checksum."""
        return read_whole(self.path / relative, self._manifest.files[relative]).view(dtype)

    def read_numbers(self, relative: str, least: int, limit: int, what: str) -> NDArray[np.int64]:
        """Read a file of numbers, which must be in [least, limit): a checksum does not prove that they are valid."""
        numbers = self.read(relative, np.int64)
        for number in (numbers.min(initial=least), numbers.max(initial=least)):
            if not least <= number < limit:
                raise FormatError(
                    f"{self.path / relative}: has {what} {number}, must be from {least} to {limit - 1}; "
                    "import the graph again"
                )
        return numbers

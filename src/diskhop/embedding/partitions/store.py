"""Partitions on disk: of each the committed version and a newer one, in two files that take turns.

A version that a commit names is never written over before another commit: whatever ends the process, all committed
partitions are there, and their content sums tell so. Who commits writes down record() (runs/embedding/run.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File, page_sums
from diskhop.embedding.partitions.layout import ROWS_STEP, PartitionLayout
from diskhop.errors import ReadError
from diskhop.io.atomic import (
    Injector,
    allocate,
    announce,
    destination_errors,
    make_directories,
    require_free_space,
    sync_directory,
    sync_file,
)
from diskhop.io.streams import in_pieces

_PAGE_BYTES = 4096
_NUM_VERSIONS = 2
_WORD = 1 << 64
# Of rows that are looked for: much less than a partition may be.
PIECE_BYTES = 4 << 20


class Version(NamedTuple):
    """Which of a partition's files has it, and the content sums of its embeddings and of its sums of squares."""

    file: int
    values_sum: int
    squares_sum: int


class LoadedPartition(NamedTuple):
    """A partition's memory: bytes of the embeddings and of the sums of squares, each aligned for direct reads."""

    values: NDArray[np.uint8]
    squares: NDArray[np.uint8]


class PartitionStore:
    """Partitions in a folder. For one thread at a time. partitions_read, partitions_written: so far, whole."""

    def __init__(
        self,
        folder: Path,
        layout: PartitionLayout,
        engine: Engine,
        committed: Sequence[Version] = (),
        injector: Injector | None = None,
    ) -> None:
        self._folder = folder
        self._layout = layout
        self._engine = engine
        self._injector = injector
        self._committed = list(committed)
        self._current = list(committed)
        self._unsynced: set[Path] = set()
        self.partitions_read = 0
        self.partitions_written = 0

    def require_room(self, other_bytes: int) -> None:
        """Refuse up front a disk that does not hold all versions of all partitions and so much besides.

        Raises DestinationError.
        """
        layout, folder = self._layout, self._folder.absolute()
        existing = next(each for each in (folder, *folder.parents) if each.exists())
        num_bytes = _NUM_VERSIONS * layout.num_partitions * layout.partition_bytes
        kept_bytes = sum(512 * path.stat().st_blocks for path in folder.glob("*.bin"))
        what = "two versions of all partitions" + (" and the edges" if other_bytes else "")
        require_free_space(existing, num_bytes - kept_bytes + other_bytes, what)

    def create(self) -> None:
        """Make the folder with all its room. Raises DestinationError where the disk has less."""
        layout = self._layout
        make_directories(self._folder, self._injector)
        for partition in range(layout.num_partitions):
            for file in range(_NUM_VERSIONS):
                path = self._path(partition, file)
                with destination_errors(path):
                    announce(self._injector, "write", path)
                    path.touch()
                    allocate(path, 0, layout.partition_bytes)
                    sync_file(path, self._injector)
        sync_directory(self._folder, self._injector)
        self._committed = [Version(1, 0, 0)] * layout.num_partitions
        self._current = list(self._committed)

    def read(self, partition: int, held: LoadedPartition, version: Version | None = None) -> None:
        """Read a version, the newest by default. Raises ReadError, also for what is not as it was written."""
        version = version or self._current[partition]
        self._transfer(self._engine.submit_read, self._open(partition, version), held)
        self.partitions_read += 1
        self._require_sums(partition, version, _content_sums(held))

    def write(self, partition: int, held: LoadedPartition) -> None:
        """Write a new version where the committed one is not. Raises DestinationError, WriteError."""
        number = 1 - self._committed[partition].file
        path = self._path(partition, number)
        self._current[partition] = Version(number, *_content_sums(held))
        with destination_errors(path):
            self._transfer(self._engine.submit_write, File(str(path), "write"), held)
        self._unsynced.add(path)
        self.partitions_written += 1

    def read_pieces(self, partition: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """The newest version's embeddings, (rows, dim) from a row on, a piece at a time; good until the next.

        Raises ReadError, also, after the last piece, for what is not as it was written.
        """
        layout = self._layout
        step_rows = min(layout.stride_rows, max(1, PIECE_BYTES // (4 * layout.dim * ROWS_STEP)) * ROWS_STEP)
        version = self._current[partition]
        file = self._open(partition, version)
        buffer = BufferPool(0).take(4 * step_rows * layout.dim)
        values_sum = 0
        for start in range(0, layout.stride_rows, step_rows):
            piece = buffer[: 4 * min(step_rows, layout.stride_rows - start) * layout.dim]
            offset = 4 * start * layout.dim
            self._transfer(self._engine.submit_read, file, [piece], offset)
            values_sum = (values_sum + page_sums(piece, offset // _PAGE_BYTES)) % _WORD
            yield start, piece.view(np.float32).reshape(-1, layout.dim)
        self._require_sums(partition, version, (values_sum, version.squares_sum))

    def read_rows(self, partition: int, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Embeddings of some rows, (rows, dim), of the newest version, which is read once. See read_pieces()."""
        found = np.empty((len(rows), self._layout.dim), np.float32)
        for start, piece in self.read_pieces(partition):
            chosen = (rows >= start) & (rows < start + len(piece))
            found[chosen] = piece[rows[chosen] - start]
        return found

    def sync(self) -> None:
        """Return once all newest versions are on the disk."""
        for path in sorted(self._unsynced):
            sync_file(path, self._injector)
        self._unsynced.clear()

    def record(self) -> list[Version]:
        """The newest version of each partition."""
        return list(self._current)

    def committed(self) -> None:
        """What record() said is written down: from now on it is what is kept."""
        self._committed = list(self._current)

    def _path(self, partition: int, file: int) -> Path:
        return self._folder / f"{partition:05}-{'ab'[file]}.bin"

    def _open(self, partition: int, version: Version) -> File:
        path = self._path(partition, version.file)
        file = File(str(path), "read")
        if file.num_bytes != self._layout.partition_bytes:
            raise _damage(path)
        return file

    def _require_sums(self, partition: int, version: Version, sums: tuple[int, int]) -> None:
        if sums != (version.values_sum, version.squares_sum):
            raise _damage(self._path(partition, version.file))

    def _transfer(
        self, submit: Callable[..., int], file: File, parts: Iterable[NDArray[np.uint8]], offset: int = 0
    ) -> None:
        """Read or write parts that lie one after the other in a file, from an offset on.

        Waits for all of them, whichever fails: the memory is somebody's again.
        """
        tickets = []
        for part in parts:
            places, sizes = in_pieces(part.nbytes)
            tickets.append(submit(file, places + np.uint64(offset), sizes, part, places))
            offset += part.nbytes
        error: BaseException | None = None
        for ticket in tickets:
            try:
                self._engine.wait(ticket)
            except BaseException as failure:
                error = error or failure
        if error is not None:
            raise error


def _damage(path: Path) -> ReadError:
    return ReadError(
        f"{path}: is not what was written: check the disk, then go on with --resume from the last commit, or train "
        "again in a new folder"
    )


def _content_sums(held: LoadedPartition) -> tuple[int, int]:
    return page_sums(held.values, 0), page_sums(held.squares, held.values.nbytes // _PAGE_BYTES)

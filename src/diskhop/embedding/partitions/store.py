"""Partitions on disk, each in two files that alternate between the committed version and the newest one.

A committed version is not overwritten before the next commit. All committed partitions therefore survive a crash, and
checksums verify their content. A commit saves record() (see runs/embedding/loop.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File, page_sums
from diskhop.embedding.partitions.layout import ROWS_STEP, PartitionLayout
from diskhop.embedding.partitions.loaded import PAGE_BYTES, PIECE_BYTES, WORD, ContentSums, LoadedPartition
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

_NUM_VERSIONS = 2


class Version(NamedTuple):
    """One version of a partition.

    file: number of its file, 0 or 1.
    values_sum: checksum of the embeddings.
    squares_sum: checksum of Adagrad's sums of squares.
    """

    file: int
    values_sum: int
    squares_sum: int


class PartitionStore:
    """Partitions in a folder, for one thread at a time.

    partitions_read: whole partitions read so far.
    partitions_written: whole partitions written so far.
    """

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
        self._committed = list(committed) or [Version(1, 0, 0)] * layout.num_partitions
        self._current = list(self._committed)
        self._written: dict[int, Version] = {}
        self._unsynced: set[Path] = set()
        self.partitions_read = 0
        self.partitions_written = 0

    def require_room(self, other_bytes: int) -> None:
        """Check that the disk has space for two versions of all partitions plus other_bytes.

        Raises DestinationError.
        """
        layout, folder = self._layout, self._folder.absolute()
        existing = next(each for each in (folder, *folder.parents) if each.exists())
        num_bytes = _NUM_VERSIONS * layout.num_partitions * layout.partition_bytes
        kept_bytes = sum(512 * path.stat().st_blocks for path in folder.glob("*.bin"))
        what = "two versions of all partitions" + (" and the edges" if other_bytes else "")
        require_free_space(existing, num_bytes - kept_bytes + other_bytes, what)

    def create(self) -> None:
        """Create the folder and allocate all files. Raises DestinationError if the disk has too little space."""
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

    def read(self, partition: int, loaded: LoadedPartition, version: Version | None = None) -> None:
        """Read a version of a partition, by default the newest. Raises ReadError, also for a wrong checksum."""
        version = version or self._current[partition]
        _, sums = self._engine.exchange(loaded, None, self._open(partition, version))
        self._keep_read(partition, version, sums)

    def write(self, partition: int, loaded: LoadedPartition) -> None:
        """Write a new version to the file that is not committed. Raises DestinationError, WriteError."""
        sums, _ = self._engine.exchange(loaded, self._target(partition), None)
        self._keep_written(partition, sums)

    def exchange(self, leaving: int, loads: int, loaded: LoadedPartition) -> None:
        """Write a new version of a partition and read the newest of another one into the same memory, piece by piece.

        Raises DestinationError, WriteError, ReadError, also for a wrong checksum.
        """
        version = self._current[loads]
        written, read = self._engine.exchange(loaded, self._target(leaving), self._open(loads, version))
        self._keep_written(leaving, written)
        self._keep_read(loads, version, read)

    def read_pieces(self, partition: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Stream the newest version's embeddings: yield the first row and the embeddings (rows, dim) of each piece.

        A piece is valid until the next one is requested.
        Raises ReadError, also for a wrong checksum after the last piece.
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
            places, sizes = in_pieces(piece.nbytes)
            self._engine.wait(self._engine.submit_read(file, places + np.uint64(offset), sizes, piece, places))
            values_sum = (values_sum + page_sums(piece, offset // PAGE_BYTES)) % WORD
            yield start, piece.view(np.float32).reshape(-1, layout.dim)
        self._require_sums(partition, version, ContentSums(values_sum, version.squares_sum))

    def read_rows(self, partition: int, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the newest version's embeddings at rows, (rows, dim). Streams the partition; see read_pieces()."""
        found = np.empty((len(rows), self._layout.dim), np.float32)
        for start, piece in self.read_pieces(partition):
            chosen = (rows >= start) & (rows < start + len(piece))
            found[chosen] = piece[rows[chosen] - start]
        return found

    def sync(self) -> None:
        """Flush all newest versions to the disk."""
        for path in sorted(self._unsynced):
            sync_file(path, self._injector)
        self._unsynced.clear()

    def take_written(self) -> dict[int, Version]:
        """Return the newest versions that this process has written since the last call."""
        written, self._written = self._written, {}
        return written

    def learn(self, versions: Mapping[int, Version]) -> None:
        """Take the newest versions that other processes have written."""
        for partition, version in versions.items():
            self._current[partition] = version

    def record(self) -> list[Version]:
        """Return the newest version of each partition."""
        return list(self._current)

    def committed(self) -> None:
        """Mark the newest versions as committed. Call this after a commit has saved record()."""
        self._committed = list(self._current)

    def _path(self, partition: int, file: int) -> Path:
        return self._folder / f"{partition:05}-{'ab'[file]}.bin"

    def _open(self, partition: int, version: Version) -> File:
        path = self._path(partition, version.file)
        file = File(str(path), "read")
        if file.num_bytes != self._layout.partition_bytes:
            raise _damage(path)
        return file

    def _target(self, partition: int) -> File:
        """Return the file of a partition that is not committed."""
        return File(str(self._path(partition, 1 - self._committed[partition].file)), "write")

    def _keep_written(self, partition: int, sums: Sequence[int]) -> None:
        number = 1 - self._committed[partition].file
        self._current[partition] = self._written[partition] = Version(number, *ContentSums(*sums))
        self._unsynced.add(self._path(partition, number))
        self.partitions_written += 1

    def _keep_read(self, partition: int, version: Version, sums: Sequence[int]) -> None:
        self.partitions_read += 1
        self._require_sums(partition, version, ContentSums(*sums))

    def _require_sums(self, partition: int, version: Version, sums: ContentSums) -> None:
        if sums != (version.values_sum, version.squares_sum):
            raise _damage(self._path(partition, version.file))


def _damage(path: Path) -> ReadError:
    return ReadError(
        f"{path}: is damaged (its checksum or size is wrong): check the disk, then resume from the last commit with "
        "--resume, or train again in a new folder"
    )

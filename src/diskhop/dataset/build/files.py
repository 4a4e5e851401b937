"""Files of a dataset under construction: written through the engine, hashed while written, synced at the end."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine
from diskhop.dataset.files import read_blocks
from diskhop.dataset.manifest import CHECKSUMS_NAME, FileEntry
from diskhop.errors import FormatError
from diskhop.io.atomic import Injector, announce, destination_errors, link, sync_file
from diskhop.io.checksums import BlockHasher, FileSums
from diskhop.io.streams import TRANSFER_BYTES, SequentialWriter

# Memory of DatasetFiles.
WRITER_BYTES = 2 * TRANSFER_BYTES
# Memory of each further file that is written at the same time.
SIDE_WRITER_BYTES = 2 << 20
# What a file system that has no link for a file answers.
NO_LINKS = (errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class DatasetFiles:
    """Writes files below a folder and collects their checksums."""

    def __init__(self, folder: Path, engine: Engine, injector: Injector | None) -> None:
        self.folder = folder
        self._engine = engine
        self._injector = injector
        self.pool = BufferPool(WRITER_BYTES)
        self._sums: dict[str, FileSums] = {}

    def write(self, relative: str, blocks: Iterable[NDArray[Any]]) -> int:
        """Write arrays to a new file, which is then durable. Returns its length in bytes."""
        with self.open(relative) as file:
            for block in blocks:
                file.append(block)
        return self._sums[relative].num_bytes

    @contextmanager
    def open(self, relative: str, memory_bytes: int = WRITER_BYTES) -> Iterator[DatasetFile]:
        """Open a new file to append to; it is durable and hashed when the context ends without an error."""
        path = self._make_folder(relative)
        with SequentialWriter(path, self._engine, self.pool, buffer_bytes=memory_bytes // 2) as writer:
            file = DatasetFile(writer)
            yield file
            writer.finish()
        sync_file(path, self._injector)
        self._sums[relative] = file.sums()

    def add(self, relative: str, path: Path, sums: FileSums) -> None:
        """Add a durable file by a hard link, or by renaming it where the file system has no links."""
        destination = self._make_folder(relative)
        link(path, destination, self._injector)
        self._sums[relative] = sums

    def share(self, relative: str, path: Path, sums: FileSums) -> None:
        """Add a file of another dataset, which stays, by a hard link, or by a copy where there can be none.

        Raises FormatError for a file that a copy shows to be damaged.
        """
        destination = self._make_folder(relative)
        announce(self._injector, "rename", destination)
        with destination_errors(destination):
            try:
                os.link(path, destination)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                self.write(relative, read_blocks(path, sums.num_bytes))
                if self._sums[relative].digest != sums.digest:
                    raise FormatError(
                        f"{path}: does not match its checksum; 'diskhop verify' names the damaged blocks: copy or "
                        "import the dataset again"
                    ) from None
        self._sums[relative] = sums

    def sums(self, relative: str) -> FileSums:
        """Return the checksums of a file."""
        return self._sums[relative]

    def set_sums(self, relative: str, sums: FileSums) -> None:
        """Record the checksums of a durable file that was made otherwise."""
        self._sums[relative] = sums

    def write_checksums(self) -> FileEntry:
        """Write the block checksums of all files: uint64 each, files in the order of their paths."""
        self.write(CHECKSUMS_NAME, [self._sums[path].blocks for path in sorted(self._sums)])
        return FileEntry.of(self._sums.pop(CHECKSUMS_NAME))

    def entries(self) -> dict[str, FileEntry]:
        """Return the manifest entries of all files."""
        return {path: FileEntry.of(self._sums[path]) for path in sorted(self._sums)}

    def _make_folder(self, relative: str) -> Path:
        path = self.folder / relative
        with destination_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        return path


class DatasetFile:
    """A file to append to."""

    def __init__(self, writer: SequentialWriter) -> None:
        self._writer = writer
        self._hasher = BlockHasher()
        self.num_bytes = 0

    def append(self, block: NDArray[Any]) -> None:
        """Append the bytes of an array."""
        content = np.ascontiguousarray(block).reshape(-1).view(np.uint8)
        self._hasher.update(content)
        self._writer.append(content)
        self.num_bytes += len(content)

    def sums(self) -> FileSums:
        """Return the checksums; nothing may be appended afterwards."""
        return self._hasher.finish()

"""Files of a dataset under construction: written through the engine, hashed on the way, synced at the end."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine
from diskhop.dataset.checksums import BlockHasher, FileSums
from diskhop.dataset.manifest import CHECKSUMS_NAME, FileEntry
from diskhop.io.atomic import Injector, destination_errors, sync_file
from diskhop.io.stream import TRANSFER_BYTES, SequentialWriter

# Held by DatasetFiles.
WRITER_BYTES = 2 * TRANSFER_BYTES


class DatasetFiles:
    """Writes files below a folder and remembers their sums."""

    def __init__(self, folder: Path, engine: Engine, injector: Injector | None) -> None:
        self.folder = folder
        self._engine = engine
        self._injector = injector
        self._pool = BufferPool(WRITER_BYTES)
        self._sums: dict[str, FileSums] = {}

    def write(self, relative: str, blocks: Iterable[NDArray[Any]]) -> int:
        """Write the arrays' bytes to a new file and return their number; they are then on the disk."""
        sums = self._write(relative, blocks)
        self._sums[relative] = sums
        return sums.num_bytes

    def write_checksums(self) -> FileEntry:
        """Write the block sums of all files so far: uint64 each, files in the order of their paths."""
        return _entry(self._write(CHECKSUMS_NAME, (self._sums[path].blocks for path in sorted(self._sums))))

    def entries(self) -> dict[str, FileEntry]:
        """What the manifest says of the files so far."""
        return {path: _entry(self._sums[path]) for path in sorted(self._sums)}

    def _write(self, relative: str, blocks: Iterable[NDArray[Any]]) -> FileSums:
        path = self.folder / relative
        with destination_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        hasher = BlockHasher()
        with SequentialWriter(path, self._engine, self._pool) as writer:
            for block in blocks:
                content = np.ascontiguousarray(block).reshape(-1).view(np.uint8)
                hasher.update(content)
                writer.append(content)
            writer.finish()
        sync_file(path, self._injector)
        return hasher.finish()


def _entry(sums: FileSums) -> FileEntry:
    return FileEntry(num_bytes=sums.num_bytes, xxh3_64=f"{sums.digest:016x}")

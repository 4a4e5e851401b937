"""Files of predictions as tasks: each is written once, durable, with its checksum.

The output of a task is a small description of its file: bytes, rows and checksum. The file itself lies next to it under
a name with a dot, and is durable before the description gets a name. So if there is a description, its file is whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from diskhop.dataset.build.files import DatasetFile
from diskhop.io.atomic import sync_directory, sync_file
from diskhop.io.manifests import encode_manifest, read_manifest
from diskhop.io.streams import SequentialWriter
from diskhop.predicting.sizes import WRITING_BYTES
from diskhop.predicting.table import ID, PredictionTable
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.tasks import TaskTools

_DESCRIPTION = 1
_WHAT = "files of predictions"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionFile:
    """A file to write.

    name: its name.
    first: number of its first node in the table.
    stop: number of its last node + 1.
    words: its columns, by their words; ID for the ids.
    """

    name: str
    first: int
    stop: int
    words: tuple[str, ...]


class ByteSink:
    """A file that bytes are appended to, as Python's files are; closing it does nothing."""

    closed = False

    def __init__(self, file: DatasetFile) -> None:
        self._file = file

    def write(self, content: Any) -> int:
        """Append bytes, or a contiguous array."""
        values = np.frombuffer(content, np.uint8)
        self._file.append(values)
        return len(values)

    def tell(self) -> int:
        """Return the number of bytes so far."""
        return self._file.num_bytes

    def flush(self) -> None:
        """Do nothing: the owner of the file writes it."""

    def close(self) -> None:
        """Do nothing: the owner of the file closes it."""


class Format(Protocol):
    """A format, opened for one table and work: Format(table, work)."""

    @property
    def most_threads(self) -> int | None:
        """Threads that may be used; None: any number."""

    @property
    def files(self) -> Sequence[PredictionFile]:
        """The files to write."""

    def write(self, file: PredictionFile, sink: ByteSink, threads: int) -> None:
        """Write the content of a file. threads: groups that are computed at the same time."""


@dataclass(frozen=True, slots=True, eq=False)
class FileTask:
    """Writes one file (see the module).

    file: the file.
    format: writes its content.
    threads: threads of this task.
    """

    file: PredictionFile
    format: Format
    threads: int

    @property
    def name(self) -> str:
        """See Task."""
        return self.file.name

    def write(self, path: Path, tools: TaskTools) -> None:
        """Write the file, then its description (see Task)."""
        content = data_path(path.parent, self.name)
        content.unlink(missing_ok=True)  # left by a killed run
        with SequentialWriter(content, tools.engine, tools.pool, buffer_bytes=WRITING_BYTES // 2) as writer:
            file = DatasetFile(writer)
            self.format.write(self.file, ByteSink(file), self.threads)
            writer.finish()
        sync_file(content, tools.injector)
        sync_directory(path.parent, tools.injector)
        sums = file.sums()
        entry = {"bytes": sums.num_bytes, "xxh3_64": f"{sums.digest:016x}", "rows": self.file.stop - self.file.first}
        path.write_bytes(encode_manifest(entry, _DESCRIPTION))


def data_path(folder: Path, name: str) -> Path:
    """Return the path of a file in the folder of its stage."""
    return folder / f".{name}"


def read_entry(folder: Path, name: str) -> dict[str, Any]:
    """Read the description of a file in the folder of its stage: bytes, xxh3_64 and rows."""
    return read_manifest(folder / name, _DESCRIPTION, _WHAT, "remove the folder and run the same command again")


def part_files(table: PredictionTable, suffix: str) -> list[PredictionFile]:
    """Divide the nodes into parts of whole groups, with all columns: part-00000 and so on."""
    words = (ID, *(column.name for column in table.columns))
    return [
        PredictionFile(name=f"part-{number:05}{suffix}", first=first, stop=stop, words=words)
        for number, (first, stop) in enumerate(row_ranges(table.count, table.sizes.part_rows))
    ]

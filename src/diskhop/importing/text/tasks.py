"""Tasks of an import of edges. Each writes a file of the work folder, with the same bytes when repeated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from diskhop.dataset.manifest import index_dtype
from diskhop.importing.numbering.pairs import write_pairs
from diskhop.importing.source_file import SourceFile, source_errors
from diskhop.importing.text.layout import RowLayout
from diskhop.importing.text.packing import unpacked
from diskhop.importing.text.rows import Slice, parse_integers, write_rows
from diskhop.importing.text.streams import damage_errors, read_text
from diskhop.runtime.duck import Duck
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools

_READ_BYTES = 1 << 20


class IdsFarApartError(Exception):
    """An id is too large for a bit set."""


class ByteCounter:
    """Adds up the bytes that several tasks have read, and reports progress."""

    def __init__(self, progress: Progress, stage: str, num_bytes: int) -> None:
        self._progress = progress
        self._stage = stage
        self._num_bytes = num_bytes
        self._done = 0
        self._lock = Lock()

    def add(self, num_bytes: int) -> None:
        """Count and report more bytes."""
        with self._lock:
            self._done += num_bytes
            self._progress(self._stage, self._done, self._num_bytes)


@dataclass(frozen=True)
class Unpack:
    """Unpack a compressed file, so that its slices can be parsed in parallel, and again after a crash."""

    name: str
    file: SourceFile
    packing: str

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task; counts compressed bytes. Raises SourceError, with the first incomplete line, for a damaged file."""
        num_lines = 0
        num_read = 0
        with source_errors(str(self.file.path)), damage_errors(self.file.path):
            raw = self.file.path.open("rb")
            packed = unpacked(raw, self.packing, self.file.path)
        with packed, path.open("wb") as text:
            while block := read_text(packed, _READ_BYTES, self.file.path, num_lines):
                text.write(block)
                tools.count(raw.tell() - num_read)
                num_read = raw.tell()
                num_lines += block.count(b"\n")


@dataclass(frozen=True)
class ParsePairs:
    """Write the pair file of a slice of whole numbers.

    num_nodes: ids must be less, if given.
    limit: without num_nodes, an id of this or more raises IdsFarApartError.
    """

    name: str
    piece: Slice
    layout: RowLayout
    num_nodes: int | None
    limit: int
    duck: Duck

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task. Raises SourceError with file and line."""
        dtype = index_dtype(self.limit)
        ids, counts = parse_integers(self.piece, self.layout, self.num_nodes, dtype, self.duck)
        if self.num_nodes is None and any(int(end.max(initial=0)) >= self.limit for end in ids):
            raise IdsFarApartError
        write_pairs(path, *ids, dtype, counts)


@dataclass(frozen=True)
class ParseRows:
    """Write the rows of a slice as Parquet (source, destination), with the ids unchanged."""

    name: str
    piece: Slice
    layout: RowLayout
    duck: Duck

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task. Raises SourceError with file and line."""
        write_rows(self.piece, self.layout, self.duck, path)

"""Fuzz targets: a reader with inputs to begin with, and how one input is tried."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A reader, and inputs to begin with.

    name: folder of its corpus.
    read: reads an input; it has an empty folder to write files to.
    errors: errors by which the reader may refuse an input. Any other exception is a finding.
    seeds: makes inputs from real files; it has an empty folder.
    words: parts of inputs, for mutations.
    """

    name: str
    read: Callable[[bytes, Path], object]
    errors: tuple[type[Exception], ...]
    seeds: Callable[[Path], Sequence[bytes]]
    words: Sequence[bytes] = ()

    def findings(self) -> list[Path]:
        """Return earlier findings, in the repository: files that the reader must refuse by its own error."""
        return sorted((CORPUS / self.name).glob("*"))

    def inputs(self) -> list[bytes]:
        """Return earlier findings, and inputs made from real files."""
        with scratch_folder() as folder:
            return [*(path.read_bytes() for path in self.findings()), *self.seeds(folder)]

    def try_input(self, content: bytes) -> bool:
        """Read an input. Return whether it was accepted; raise what the reader may not raise."""
        with scratch_folder() as folder:
            try:
                self.read(content, folder)
            except self.errors as error:
                if not str(error).strip():
                    raise AssertionError(f"{self.name}: an error without words") from error
                return False
            return True


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder, in memory if there is one, that is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="diskhop-fuzz-", dir=_MEMORY if _MEMORY.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)

"""A file of a source, by what changes when it does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from diskhop.errors import SourceError
from diskhop.importing.arrays.npy import source_errors


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was when it was looked at."""

    path: Path
    num_bytes: int
    modified_ns: int

    @classmethod
    def look_at(cls, path: Path) -> SourceFile:
        """Raises SourceError for what is no regular file."""
        with source_errors(str(path)):
            if not path.is_file():
                raise SourceError(f"{path}: is not a regular file; give a file")
            status = path.stat()
        return cls(path, status.st_size, status.st_mtime_ns)

    def require_unchanged(self) -> None:
        """Raise SourceError if the file is not as it was when it was looked at."""
        with source_errors(str(self.path)):
            status = self.path.stat()
        if (status.st_size, status.st_mtime_ns) != (self.num_bytes, self.modified_ns):
            raise changed_error(self.path)

    @property
    def identity(self) -> str:
        """What changes when the file does."""
        return f"{self.path.resolve()} {self.num_bytes} bytes, modified {self.modified_ns}"


def changed_error(shown: object) -> SourceError:
    """What ends the reading of a file that is no longer what it was."""
    return SourceError(f"{shown}: must not change while it is read, and it did; import it again")

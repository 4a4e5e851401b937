"""Files of a source, and how changes and damage of them become errors."""

from __future__ import annotations

import contextlib
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from diskhop.errors import SourceError


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was when the source was opened.

    path: the file.
    num_bytes: its length.
    modified_ns: time of its last change, in nanoseconds.
    """

    path: Path
    num_bytes: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> SourceFile:
        """Record the state of a file. Raises SourceError unless it is a regular file."""
        with source_errors(str(path)):
            if not path.is_file():
                raise SourceError(f"{path}: is not a regular file; give a file")
            status = path.stat()
        return cls(path, status.st_size, status.st_mtime_ns)

    def require_unchanged(self) -> None:
        """Raise SourceError if the file has changed since this was made."""
        with source_errors(str(self.path)):
            status = self.path.stat()
        if (status.st_size, status.st_mtime_ns) != (self.num_bytes, self.modified_ns):
            raise changed_error(self.path)

    @property
    def identity(self) -> str:
        """Text that changes when the file does."""
        return f"{self.path.resolve()} {self.num_bytes} bytes, modified {self.modified_ns}"


def changed_error(shown: object) -> SourceError:
    """Return the error for a file that changed while it was read."""
    return SourceError(f"{shown}: changed while it was read; import it again")


@contextlib.contextmanager
def source_errors(where: str) -> Iterator[None]:
    """Turn any exception of reading a damaged file into a SourceError of one line."""
    try:
        yield
    except SourceError:
        raise
    except (OSError, EOFError, ValueError, RuntimeError, struct.error, zlib.error, lzma.LZMAError) as error:
        raise _unreadable(where, error) from error
    except (zipfile.BadZipFile, NotImplementedError, KeyError, OverflowError) as error:
        raise _unreadable(where, error) from error


@contextlib.contextmanager
def described_layout(description: object) -> Iterator[None]:
    """Leave options out of errors about a text whose layout other files describe: no option changes it."""
    try:
        yield
    except SourceError as error:
        rule, _, next_step = str(error).partition("; ")
        if "--" not in next_step:
            raise
        raise SourceError(f"{rule}; correct the file, or what {description} says of it") from error


def file_identity(path: Path) -> str:
    """Return text that changes when a file does, as far as its time or length shows."""
    status = path.stat()
    return f"{path.resolve()}: {status.st_size} bytes of {status.st_mtime_ns}"


def _unreadable(where: str, error: Exception) -> SourceError:
    if isinstance(error, OSError) and error.strerror:
        return SourceError(f"{where}: cannot be read: {error.strerror}; check its permissions and the disk")
    reason = " ".join(str(error).split()) or type(error).__name__
    return SourceError(
        f"{where}: cannot be read: {reason}; it is damaged, or packed in a way that is not read: save it again"
    )

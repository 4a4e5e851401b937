"""A file of a source, by what changes when it does."""

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


@contextlib.contextmanager
def source_errors(where: str) -> Iterator[None]:
    """Turn whatever reading a damaged file raises into one line."""
    try:
        yield
    except SourceError:
        raise
    except (OSError, EOFError, ValueError, RuntimeError, struct.error, zlib.error, lzma.LZMAError) as error:
        raise _unreadable(where, error) from error
    except (zipfile.BadZipFile, NotImplementedError, KeyError, OverflowError) as error:
        raise _unreadable(where, error) from error


def file_identity(path: Path) -> str:
    """Text that differs wherever a file's content does, as far as a change shows in its time or length."""
    status = path.stat()
    return f"{path.resolve()}: {status.st_size} bytes of {status.st_mtime_ns}"


def _unreadable(where: str, error: Exception) -> SourceError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    return SourceError(f"{where}: cannot be read: {' '.join(reason.split())}; check the file or save it again")

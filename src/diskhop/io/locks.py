"""Locks on folders and files, which the kernel releases when their process ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from diskhop.errors import BusyError, DestinationError, ReadError


def lock_directory(path: Path, shown: Path) -> int:
    """Lock a directory until this process ends, or until the returned descriptor is closed.

    Raises BusyError, naming the process that has the lock; `shown` is the destination to name in the message.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(descriptor, path, shown)
    except BusyError:
        os.close(descriptor)
        raise
    return descriptor


def lock_made_directory(path: Path, shown: Path, make: Callable[[], object]) -> int:
    """Make a directory where there is none and lock it as lock_directory(), though others may remove it in between.

    make: makes it, unless another process has in the meantime. Raises DestinationError for anything else at the path.
    """
    while True:
        if path.is_file() or (path.is_symlink() and not path.exists()):
            found = "a file" if path.is_file() else "a symbolic link to nothing"
            raise DestinationError(f"{shown}: {path} is {found}; remove it with: rm {shlex.quote(str(path))}")
        make()
        with contextlib.suppress(FileNotFoundError):
            descriptor = lock_directory(path, shown)
            if is_at(descriptor, path):
                return descriptor
            os.close(descriptor)


@contextlib.contextmanager
def locked_file(path: Path, shown: Path | None = None) -> Iterator[None]:
    """Make a file where there is none and lock it for the duration of a context, which may rename or remove it.

    shown: destination to name in the BusyError while another writer has the file; None waits for the other writer.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(descriptor, path, shown)
            if is_at(descriptor, path):
                yield
                return
        finally:
            os.close(descriptor)


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether a path names the open file or directory, which may have been removed before it was locked."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def shared_directory(path: Path) -> Iterator[None]:
    """Protect a directory from `diskhop clean` for the duration of a context. Raises ReadError for a missing one."""
    descriptor = _open_directory(path)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: `diskhop clean` removes nothing there
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


class SharedLock:
    """Protection of a directory from `diskhop clean` until it is freed. Raises ReadError for a missing directory.

    A copy, as one in another process, locks the directory itself.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = _open_directory(path)
        with contextlib.suppress(OSError):  # see shared_directory()
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def __reduce__(self) -> tuple[type[SharedLock], tuple[Path]]:
        return SharedLock, (self._path,)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # the directory was missing
            os.close(self._descriptor)


def keep_directory(path: Path) -> SharedLock:
    """Lock a directory of derived files. Raises ReadError for a missing one."""
    return SharedLock(path)


def _open_directory(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ReadError(
            f"{path}: cannot be opened: {error.strerror}; repeat the command, and it is made again"
        ) from error


def _lock(descriptor: int, path: Path, shown: Path | None) -> None:
    """Lock what is open for its only writer; see lock_directory() and locked_file()."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if shown is None else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BusyError(
            f"{shown}: {_lock_holder(os.fstat(descriptor))} is writing to it (in {path}); "
            "wait until it ends or choose another destination"
        ) from None
    except OSError:
        pass  # A file system without locks: of two writers, the one that renames last is refused.


def _lock_holder(status: os.stat_result) -> str:
    """Find the process that locks a directory in the kernel's table, keyed by device (hexadecimal) and inode."""
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "FLOCK" in fields and place in fields:
                return f"process {fields[fields.index(place) - 1]}"
    return "another process"

"""Atomic files and directories: they appear complete or not at all.

A *change* is a write, an fsync, a rename or a removal. Every change is announced to an optional *injector* first, so
that tests can make it fail or simulate a crash before it. Destinations that users name are in io/destinations.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Protocol

from diskhop.budget import format_bytes
from diskhop.errors import DestinationError, DiskhopError, WriteError
from diskhop.io.locks import locked_file

_NEXT_STEPS = {
    errno.ENOSPC: "free some space or choose another destination",
    errno.EDQUOT: "free some of your quota or choose another destination",
    errno.EFBIG: "choose a destination on a file system that supports files of this size",
    errno.ENOENT: "choose a destination where files can be created",
    errno.EROFS: "choose a destination that can be written to",
    errno.EACCES: "choose a destination that can be written to",
    errno.EPERM: "choose a destination that can be written to",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOTEMPTY: "it was created in the meantime: choose another destination or remove it",
    errno.EEXIST: "it was created in the meantime: choose another destination or remove it",
    errno.ENOTDIR: "choose a destination in a directory",
    errno.EBUSY: "choose a destination that is not a mount point",
}
# Of renameat2(2): the folder that relative paths start from, flags, and errors of file systems without them.
_FROM_HERE, _NO_REPLACE, _EXCHANGE = -100, 1, 2
_NO_SUCH_RENAME = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


class Injector(Protocol):
    """Decides whether a change happens; _native.FaultInjector implements it."""

    def check(self, kind: Literal["write", "fsync", "rename"], path: str) -> None:
        """Raise OSError or CrashError to prevent the change that is announced (a removal counts as a rename)."""


def announce(injector: Injector | None, kind: Literal["write", "fsync", "rename"], path: Path) -> None:
    """Announce a change to the injector, if there is one."""
    if injector is not None:
        injector.check(kind, str(path))


@contextlib.contextmanager
def destination_errors(path: Path) -> Iterator[None]:
    """Convert errors of the operating system into a DestinationError or WriteError that names the destination."""
    try:
        yield
    except DestinationError:
        raise
    except OSError as error:
        next_step = _NEXT_STEPS.get(error.errno or 0)
        reason = os.strerror(error.errno) if error.errno else str(error)
        if next_step is not None:
            raise DestinationError(f"{path}: cannot be written: {reason}; {next_step}") from error
        if isinstance(error, DiskhopError):
            raise
        raise WriteError(f"{path}: cannot be written: {reason}") from error


def require_parent(destination: Path) -> Path:
    """Return the folder of a destination. Raises DestinationError if it does not exist."""
    parent = resolve_destination(destination).parent
    with destination_errors(destination):
        if not parent.is_dir():
            raise DestinationError(
                f"{destination}: the folder {parent} does not exist; create it first with: mkdir -p {parent}"
            )
    return parent


def resolve_destination(path: Path) -> Path:
    """Return the absolute path of a destination, which need not exist. Raises DestinationError for an invalid one."""
    try:
        with destination_errors(path):
            resolved = path.resolve()
    except RuntimeError:
        raise DestinationError(f"{path}: is a symbolic link to itself; choose another destination") from None
    if not resolved.name:
        raise DestinationError(f"{path}: is the root folder; choose a destination in it")
    return resolved


def require_free_space(directory: Path, num_bytes: int, what: str = "the result") -> None:
    """Raise DestinationError unless num_bytes are free on the disk. what: names the data in the message."""
    with destination_errors(directory):
        free_bytes = shutil.disk_usage(directory).free
    if num_bytes > free_bytes:
        raise DestinationError(
            f"{directory}: {what} takes {format_bytes(num_bytes)}, only {format_bytes(free_bytes)} are free; "
            "free some space or choose another destination"
        )


def allocate(path: Path, offset: int, num_bytes: int) -> None:
    """Allocate disk space for a range of a file. Raises DestinationError if the disk is full."""
    if num_bytes == 0:
        return
    with destination_errors(path):
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.posix_fallocate(descriptor, offset, num_bytes)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def removed_on_error(path: Path, injector: Injector | None = None) -> Iterator[None]:
    """Remove a file that is incomplete, should an exception leave the context."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            announce(injector, "rename", path)
            path.unlink()
        raise


def create_allocated(path: Path, num_bytes: int, injector: Injector | None = None) -> None:
    """Create a file of num_bytes with all its disk space allocated; return once file and name are durable.

    Raises DestinationError if the disk is full; no file is then left.
    """
    create_unsynced(path, num_bytes, injector)
    with destination_errors(path):
        with removed_on_error(path, injector):
            sync_file(path, injector)
        sync_directory(path.parent, injector)


def create_unsynced(path: Path, num_bytes: int, injector: Injector | None = None) -> None:
    """Create a file as create_allocated(), which is durable once the file and its directory are synced."""
    with destination_errors(path), removed_on_error(path, injector):
        announce(injector, "write", path)
        path.touch()
        allocate(path, 0, num_bytes)


def write_file(path: Path, content: bytes, injector: Injector | None = None) -> None:
    """Replace a small file atomically, after another writer that is replacing it."""
    partial = path.with_name(f".{path.name}.partial")
    with destination_errors(path):
        announce(injector, "write", partial)
        with locked_file(partial), removed_on_error(partial, injector):
            partial.write_bytes(content)
            sync_file(partial, injector)
            rename(partial, path, injector)
        sync_directory(path.parent, injector)


def make_directories(path: Path, injector: Injector | None = None) -> None:
    """Create a directory and its missing parents; return once all their names are durable."""
    missing = []
    with destination_errors(path):
        while not path.exists():
            missing.append(path)
            path = path.parent
        for directory in reversed(missing):
            directory.mkdir(exist_ok=True)
            sync_directory(directory.parent, injector)


def sync_file(path: Path, injector: Injector | None = None) -> None:
    """Make the content of a file durable. Its name is durable only after sync_directory."""
    _sync(path, os.O_RDONLY, injector)


@contextlib.contextmanager
def syncing(path: Path, injector: Injector | None = None) -> Iterator[None]:
    """Sync a file with several writers at the end of a context, in which one of them writes.

    The file stays open in between: the kernel reports a failed write only to descriptors that were open at that time.
    """
    with destination_errors(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            yield
            announce(injector, "fsync", path)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_directory(path: Path, injector: Injector | None = None) -> None:
    """Make the names in a directory durable."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY, injector)


def rename(source: Path, destination: Path, injector: Injector | None = None) -> None:
    """Rename a file or directory, replacing the destination. Durable only after sync_directory."""
    announce(injector, "rename", destination)
    with destination_errors(destination):
        source.rename(destination)


def rename_new(source: Path, destination: Path, injector: Injector | None = None) -> None:
    """Rename a file to a destination that must not exist. Durable only after sync_directory."""
    announce(injector, "rename", destination)
    with destination_errors(destination):
        try:
            _rename_with(_NO_REPLACE, source, destination)
        except OSError as error:
            if error.errno not in _NO_SUCH_RENAME:
                raise
            source.rename(destination)


def exchange(source: Path, destination: Path, injector: Injector | None = None) -> None:
    """Swap the names of two files or directories. Durable only after sync_directory."""
    announce(injector, "rename", destination)
    with destination_errors(destination):
        try:
            _rename_with(_EXCHANGE, source, destination)
        except OSError as error:
            if error.errno not in _NO_SUCH_RENAME:
                raise
            raise DestinationError(
                f"{destination}: its file system cannot replace a folder in one step; remove it first: "
                f"rm -r {shlex.quote(str(destination))}"
            ) from error


def link(source: Path, destination: Path, injector: Injector | None = None) -> None:
    """Give a file a second name (a hard link); rename it where the file system has no hard links.

    The destination must not exist. Durable only after sync_directory.
    """
    announce(injector, "rename", destination)
    with destination_errors(destination):
        try:
            os.link(source, destination)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise
            source.rename(destination)


def remove_tree(path: Path, injector: Injector | None = None) -> None:
    """Remove a directory with its content, if it exists."""
    if path.exists():
        announce(injector, "rename", path)
        shutil.rmtree(path)


def _sync(path: Path, flags: int, injector: Injector | None) -> None:
    announce(injector, "fsync", path)
    with destination_errors(path):
        descriptor = os.open(path, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _rename_with(flags: int, source: Path, destination: Path) -> None:
    """Call renameat2(2), which the standard library lacks."""
    paths = (_FROM_HERE, os.fsencode(source), _FROM_HERE, os.fsencode(destination))
    if ctypes.CDLL(None, use_errno=True).renameat2(*paths, flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(destination))

"""Files and directories that become visible whole, or not at all.

A *change* is a write, an fsync, a rename or a removal. Every change made here is announced to the injector first, if
there is one, so that tests can fail it or stop the world before it. A *staged directory* is built under a temporary
name beside its destination and renamed once everything in it is on the disk.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol

from diskhop.budget import format_bytes
from diskhop.errors import DestinationError, DiskhopError, WriteError

_NEXT_STEPS = {
    errno.ENOSPC: "free some space or choose another destination",
    errno.EDQUOT: "free some of your quota or choose another destination",
    errno.EFBIG: "choose a destination whose file system takes files of this size",
    errno.EROFS: "choose a destination that can be written to",
    errno.EACCES: "choose a destination that can be written to",
    errno.EPERM: "choose a destination that can be written to",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOTEMPTY: "it was made meanwhile: choose another destination or remove it",
    errno.EEXIST: "it was made meanwhile: choose another destination or remove it",
    errno.ENOTDIR: "choose a destination in a directory",
    errno.EBUSY: "choose a destination that is not a mount point",
}


class Injector(Protocol):
    """What decides whether a change happens; _native.FaultInjector is one."""

    def check(self, kind: Literal["write", "fsync", "rename"], path: str) -> None:
        """Raise OSError or CrashError instead of the change that is about to happen (a removal counts as a rename)."""


def announce(injector: Injector | None, kind: Literal["write", "fsync", "rename"], path: Path) -> None:
    """Tell the injector, if there is one, of a change that is about to happen."""
    if injector is not None:
        injector.check(kind, str(path))


@contextlib.contextmanager
def destination_errors(path: Path) -> Iterator[None]:
    """Turn an operating system's refusal to write into one line about the destination."""
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
    """The folder that the destination is to be in. Raises DestinationError where there is none."""
    parent = resolve_destination(destination).parent
    with destination_errors(destination):
        if not parent.is_dir():
            raise DestinationError(f"{destination}: the folder {parent} does not exist; create it first")
    return parent


def resolve_destination(path: Path) -> Path:
    """The absolute path of a destination, which need not be there. Raises DestinationError for what cannot be one."""
    try:
        with destination_errors(path):
            resolved = path.resolve()
    except RuntimeError:
        raise DestinationError(f"{path}: is a link that leads back to itself; choose another destination") from None
    if not resolved.name:
        raise DestinationError(f"{path}: is the root of all folders; choose a destination in it")
    return resolved


def require_free_space(directory: Path, num_bytes: int, what: str = "the result") -> None:
    """Refuse up front what would not fit. Raises DestinationError with the bytes needed and free. what: takes them."""
    with destination_errors(directory):
        free_bytes = shutil.disk_usage(directory).free
    if num_bytes > free_bytes:
        raise DestinationError(
            f"{directory}: {what} takes {format_bytes(num_bytes)} and {format_bytes(free_bytes)} are free; "
            "free some space or choose another destination"
        )


def allocate(path: Path, offset: int, num_bytes: int) -> None:
    """Make sure of room on the disk for bytes of a file. Raises DestinationError for a full one."""
    if num_bytes == 0:
        return
    descriptor = os.open(path, os.O_WRONLY)
    try:
        with destination_errors(path):
            os.posix_fallocate(descriptor, offset, num_bytes)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes, injector: Injector | None = None) -> None:
    """Make a small file appear with this content, or leave what was there."""
    partial = path.with_name(f".{path.name}.partial")
    with destination_errors(path):
        try:
            announce(injector, "write", partial)
            partial.write_bytes(content)
            sync_file(partial, injector)
            rename(partial, path, injector)
        except BaseException:
            with contextlib.suppress(OSError):
                announce(injector, "rename", partial)
                partial.unlink()
            raise
        sync_directory(path.parent, injector)


def make_directories(path: Path, injector: Injector | None = None) -> None:
    """Make a directory, and those above it that are missing; return once the names of all of them are on the disk."""
    missing = []
    with destination_errors(path):
        while not path.exists():
            missing.append(path)
            path = path.parent
        for directory in reversed(missing):
            directory.mkdir(exist_ok=True)
            sync_directory(directory.parent, injector)


def sync_file(path: Path, injector: Injector | None = None) -> None:
    """Return once the content of a file is on the disk. Its name is on the disk only after sync_directory."""
    _sync(path, os.O_RDONLY, injector)


@contextlib.contextmanager
def syncing(path: Path, injector: Injector | None = None) -> Iterator[None]:
    """Sync a file of several writers at the end of a context, in which one of them writes.

    It is open meanwhile: the kernel tells of a write that failed only those who had the file open then.
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
    """Return once the names in a directory are on the disk."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY, injector)


def rename(source: Path, destination: Path, injector: Injector | None = None) -> None:
    """Rename, replacing what is there. It lasts only after sync_directory."""
    announce(injector, "rename", destination)
    with destination_errors(destination):
        source.rename(destination)


def link(source: Path, destination: Path, injector: Injector | None = None) -> None:
    """Give a file a second name; on a file system that has one for each, another. It lasts only after sync_directory.

    The folder of that name must not have it yet.
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
    """Remove a directory and all that is in it, if it is there."""
    if path.exists():
        announce(injector, "rename", path)
        shutil.rmtree(path)


def lock_directory(path: Path, shown: Path) -> int:
    """Hold a directory as long as this process lives: the kernel lets go of it however the process ends.

    Returns the descriptor whose closing lets go earlier. Raises DestinationError, naming the process that holds it, for
    the destination `shown` that the directory is for.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _lock_holder(os.fstat(descriptor))
        os.close(descriptor)
        raise DestinationError(
            f"{shown}: {holder} is writing it now (to {path}); wait for it or choose another destination"
        ) from None
    except OSError:
        pass  # A file system without locks: two writers then meet at the rename, and one is refused.
    return descriptor


@contextlib.contextmanager
def shared_directory(path: Path) -> Iterator[None]:
    """Keep others from removing a directory, as `diskhop clean` would, for the length of a context."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: it is not removed there either
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


class StagedDirectory:
    """A directory under construction: `path` is where to write until publish() gives it its name.

    Leaving the context without publish() removes it. What a killed process left behind is removed by the next; what a
    living one is still writing is refused.
    """

    def __init__(self, destination: Path, injector: Injector | None = None) -> None:
        self._shown = destination
        self._destination = resolve_destination(destination)
        self._injector = injector
        self._lock: int | None = None
        self._published = False
        self.path = self._destination.with_name(f".{self._destination.name}.partial")

    def __enter__(self) -> StagedDirectory:
        require_parent(self._shown)
        with destination_errors(self._shown):
            if self._destination.exists() and not (self._destination.is_dir() and not any(self._destination.iterdir())):
                raise DestinationError(f"{self._shown}: already exists; choose another destination or remove it")
            self._remove_leftover()
            self.path.mkdir()
            try:
                self._lock = lock_directory(self.path, self._shown)
            except BaseException:
                self.path.rmdir()
                raise
        return self

    def publish(self) -> None:
        """Make the directory appear at its destination. Every file in it must be synced already."""
        for directory, _, _ in os.walk(self.path, topdown=False):
            sync_directory(Path(directory), self._injector)
        with destination_errors(self._shown):
            rename(self.path, self._destination, self._injector)
            self.path = self._destination
            sync_directory(self._destination.parent, self._injector)
        self._published = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._published:
                self._remove()
        finally:
            if self._lock is not None:
                os.close(self._lock)

    def _remove_leftover(self) -> None:
        if not self.path.is_dir():
            return
        lock = lock_directory(self.path, self._shown)
        try:
            self._remove()
        finally:
            os.close(lock)

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            remove_tree(self.path, self._injector)


def _sync(path: Path, flags: int, injector: Injector | None) -> None:
    announce(injector, "fsync", path)
    with destination_errors(path):
        descriptor = os.open(path, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _lock_holder(status: os.stat_result) -> str:
    """Who holds the lock on a directory, as the kernel's table has it: device in hexadecimal, then the inode."""
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "FLOCK" in fields and place in fields:
                return f"process {fields[fields.index(place) - 1]}"
    return "another process"

"""Files and folders at the destinations that users name: they appear whole, and replace nothing unasked.

What is at a destination is refused. With `overwrite`, a file replaces a file, and a folder replaces a folder of the
same *kind*: a dataset a dataset, an export an export of the same format. A *staged directory* is built under a
temporary name next to its destination and renamed once its whole content is durable.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from types import TracebackType

from diskhop.errors import DestinationError
from diskhop.io.atomic import (
    Injector,
    destination_errors,
    exchange,
    remove_tree,
    removed_on_error,
    rename,
    rename_new,
    require_parent,
    resolve_destination,
    sync_directory,
    sync_file,
)
from diskhop.io.locks import is_at, lock_directory, lock_made_directory, locked_file

_TAKEN = "already exists; replace it with --overwrite (in Python overwrite=True), or choose another destination"


@dataclass(frozen=True, slots=True)
class FolderKind:
    """A kind of folder that another of its kind may replace.

    name: the kind, with its article, for messages.
    marker: a file that every such folder has.
    entries: patterns of the names of the files and folders in it.
    """

    name: str
    marker: str
    entries: tuple[str, ...]

    def require(self, folder: Path, shown: Path) -> None:
        """Raise DestinationError unless a folder is of this kind and holds nothing else. shown: its name in errors."""
        names = sorted(entry.name for entry in folder.iterdir())
        if self.marker not in names:
            raise DestinationError(
                f"{shown}: already exists and is not {self.name} (it has no {self.marker}); choose another destination"
            )
        for name in names:
            if not any(fnmatch(name, pattern) for pattern in self.entries):
                raise DestinationError(
                    f"{shown}: already exists and holds {name}, which is no part of {self.name}; "
                    f"choose another destination, or move {name} away"
                )


def require_new_file(path: Path, *, overwrite: bool) -> None:
    """Raise DestinationError for a file that cannot be written: it exists, or its folder does not."""
    require_parent(path)
    with destination_errors(path):
        destination = resolve_destination(path)
        if destination.is_dir():
            raise DestinationError(f"{path}: already exists and is a folder; choose another destination")
        if destination.exists() and not overwrite:
            raise DestinationError(f"{path}: {_TAKEN}")


@contextlib.contextmanager
def new_file(path: Path, *, overwrite: bool, injector: Injector | None = None) -> Iterator[Path]:
    """Yield a temporary path to write to; once the context ends without an error, the file is whole at `path`.

    Raises DestinationError as require_new_file() does, and for a file that was created in the meantime; BusyError for
    one that another process is writing.
    """
    require_new_file(path, overwrite=overwrite)
    destination = resolve_destination(path)
    partial = destination.with_name(f".{destination.name}.partial")
    with destination_errors(path):
        with locked_file(partial, path), removed_on_error(partial, injector):
            yield partial
            sync_file(partial, injector)
            (rename if overwrite else rename_new)(partial, destination, injector)
        sync_directory(destination.parent, injector)


@contextlib.contextmanager
def temporary_folder(destination: Path, purpose: str) -> Iterator[Path]:
    """Yield an empty folder next to a destination, `.DESTINATION.PURPOSE`, which is removed when the context ends.

    What a killed process left in it is removed first. Raises BusyError while another process has it.
    """
    require_parent(destination)
    resolved = resolve_destination(destination)
    path = resolved.with_name(f".{resolved.name}.{purpose}")
    with destination_errors(destination):
        lock = lock_made_directory(path, destination, lambda: path.mkdir(exist_ok=True))
    try:
        with destination_errors(destination):
            for entry in path.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    remove_tree(entry)
                else:
                    entry.unlink()
        yield path
    finally:
        with contextlib.suppress(OSError):
            remove_tree(path)
        os.close(lock)


def require_new_folder(path: Path, kind: FolderKind, *, overwrite: bool) -> None:
    """Raise DestinationError for a folder that StagedDirectory would refuse, before any work is done for it."""
    require_parent(path)
    with destination_errors(path):
        StagedDirectory(path, kind, overwrite=overwrite).require_place()


class StagedDirectory:
    """A directory under construction: write to `path` until publish() renames it to its destination.

    Leaving the context without publish() removes it. The leftovers of a killed process are removed; a directory that a
    running process is writing is refused.

    kind: folders at the destination that `overwrite` may replace.
    """

    def __init__(
        self, destination: Path, kind: FolderKind, *, overwrite: bool = False, injector: Injector | None = None
    ) -> None:
        self._shown = destination
        self._destination = resolve_destination(destination)
        self._kind = kind
        self._overwrite = overwrite
        self._injector = injector
        self._lock: int | None = None
        self._published = False
        self.path = self._destination.with_name(f".{self._destination.name}.partial")

    def __enter__(self) -> StagedDirectory:
        require_parent(self._shown)
        with destination_errors(self._shown):
            self._lock = lock_made_directory(self.path, self._shown, self._make)
        return self

    def publish(self) -> None:
        """Rename the directory to its destination. Every file in it must be synced already.

        A folder that it replaces is removed once the new one is durable.
        """
        for directory, _, _ in os.walk(self.path, topdown=False):
            sync_directory(Path(directory), self._injector)
        staged = self.path
        with destination_errors(self._shown):
            is_swapped = self.require_place()
            (exchange if is_swapped else rename)(staged, self._destination, self._injector)
            self.path = self._destination
            sync_directory(self._destination.parent, self._injector)
        self._published = True
        if is_swapped:
            self._remove(staged)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._published:
                self._remove(self.path)
        finally:
            if self._lock is not None:
                os.close(self._lock)

    def require_place(self) -> bool:
        """Return whether a folder is at the destination that is to be replaced. Raises DestinationError."""
        if not self._destination.exists():
            return False
        self._require_not_here()
        if not self._destination.is_dir():
            raise DestinationError(
                f"{self._shown}: already exists and is no folder; choose another destination or remove it"
            )
        if not any(self._destination.iterdir()):
            return False
        self._kind.require(self._destination, self._shown)
        if not self._overwrite:
            raise DestinationError(f"{self._shown}: {_TAKEN}")
        return True

    def remove_leftover(self) -> None:
        """Remove what a killed process left under the temporary name. Raises BusyError while a process writes there."""
        if not self.path.is_dir():
            return
        try:
            lock = lock_directory(self.path, self._shown)
        except FileNotFoundError:  # another process has just removed or published it
            self.require_place()
            return
        try:
            if is_at(lock, self.path):
                self._remove(self.path)
                # Else it may come back after a power cut, next to what is published in the meantime.
                sync_directory(self.path.parent, self._injector)
        finally:
            os.close(lock)

    def _require_not_here(self) -> None:
        """Raise DestinationError for the current folder, or one around it: it would be replaced under its user."""
        with contextlib.suppress(FileNotFoundError):
            if Path.cwd().is_relative_to(self._destination):
                raise DestinationError(
                    f"{self._shown}: is the folder that this command runs in, which is not replaced; "
                    f"choose a new folder in it, as {self._shown / 'graph'}"
                )

    def _make(self) -> None:
        self.require_place()
        self.remove_leftover()
        with contextlib.suppress(FileExistsError):  # another process has just made it, and is found by its lock
            self.path.mkdir()

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            remove_tree(path, self._injector)

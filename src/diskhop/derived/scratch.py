"""Scratch folders: created when a run starts and removed when it ends; the next run removes those of crashed runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from diskhop.errors import DestinationError
from diskhop.io.atomic import destination_errors
from diskhop.io.locks import lock_directory

_PREFIX = "run-"


def free_bytes(folder: Path) -> int:
    """Return the free space of the disk that holds a folder, which need not exist."""
    existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    return shutil.disk_usage(existing).free


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Create a folder in `parent` (created if missing), which stays locked while it is in use.

    Raises DestinationError if parent cannot be written.
    """
    try:
        with destination_errors(parent):
            parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(parent)
            folder, descriptor = _make_locked(parent)
    except DestinationError as error:
        raise DestinationError(f"{error}; or choose another folder with --scratch") from error
    owner = os.getpid()
    try:
        yield folder
    finally:
        if os.getpid() == owner:  # not in a forked child, whose parent still uses it
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)


def is_scratch(folder: Path) -> bool:
    """Return whether a folder contains only scratch files of a run: a user's folder may have the same name.

    The stores of a graph with several types have folders of their own in it.
    """
    try:
        return all(_is_scratch_file(path) or _is_scratch_folder(path) for path in folder.iterdir())
    except OSError:
        return False  # Removed in the meantime, or not readable.


def _is_scratch_file(path: Path) -> bool:
    return path.suffix == ".bin" and path.is_file()


def _is_scratch_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and is_scratch(path)


def _make_locked(parent: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        # Until it is locked, another run may consider it abandoned and remove it, even before it is opened here.
        with contextlib.suppress(DestinationError, FileNotFoundError):
            descriptor = lock_directory(folder, parent)
            if folder.exists():
                return folder, descriptor
            os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    """Remove the scratch folders of crashed runs, which are not locked."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_scratch(folder):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


def scratch_path(dataset: Path, given: Path | str | None) -> Path:
    """Return the folder for derived files: the given one, or the dataset's own."""
    return Path(given) if given else dataset / "derived"

"""A folder for files of one run's own: made when it begins, removed when it ends, and after a crash by the next run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from diskhop.errors import DestinationError
from diskhop.io.atomic import destination_errors, lock_directory

_PREFIX = "run-"


def free_bytes(folder: Path) -> int:
    """Room on the disk that a folder lies on, or would if it were made."""
    existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    return shutil.disk_usage(existing).free


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A new folder below `parent`, which is made if need be, locked while it is in use.

    Raises DestinationError for a parent that cannot be written to.
    """
    try:
        with destination_errors(parent):
            parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(parent)
            folder, descriptor = _make_locked(parent)
    except DestinationError as error:
        raise DestinationError(f"{error}; --scratch names another folder") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def is_scratch(folder: Path) -> bool:
    """Whether a folder has nothing in it but what a run puts there: it may be of a user who likes the same names."""
    try:
        return all(path.suffix == ".bin" and path.is_file() for path in folder.iterdir())
    except OSError:
        return False  # Gone by now, or not ours to read.


def _make_locked(parent: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        # Until it is locked another run may take it for abandoned.
        with contextlib.suppress(DestinationError):
            descriptor = lock_directory(folder, parent)
            if folder.exists():
                return folder, descriptor
            os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    """Folders of runs that ended without removing theirs: nobody holds their locks."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_scratch(folder):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


def scratch_path(dataset: Path, given: str | None) -> Path:
    """The folder for derived files: the one given, or the dataset's own."""
    return Path(given) if given else dataset / "derived"

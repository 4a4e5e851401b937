"""Derived files: what diskhop made of a dataset and would make again, listed and removed (`diskhop clean`).

They are folders, side by side in one folder, told by their names: scratch of a run (derived/scratch.py), packed
layouts, hop tables, and packing and propagation that were not finished. Whoever uses one holds a lock on it (flock),
shared or not. All else in the folder is somebody's and is left alone, without a look inside.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from diskhop.derived.scratch import is_scratch
from diskhop.errors import ConfigError
from diskhop.io.atomic import destination_errors, remove_tree

# Of a packed layout, and of hop tables: without it the rest is not one.
LAYOUT_FILE, TABLES_FILE = "layout.json", "tables.json"
# Whole names, narrow ones: a scratch folder may be shared with anybody's files.
_KINDS = {
    r"run-[a-z0-9_]{8}": "scratch of a run",
    r"packed-[0-9a-f]{8,}": "packed layout",
    r"\.packed-[0-9a-f]{8,}\.(work|partial)": "unfinished packing",
    r"propagated-[0-9a-f]{8,}": "hop tables",
    r"\.propagated-[0-9a-f]{8,}\.(work|partial)": "unfinished propagation",
}
_FOREIGN = "not made by diskhop"


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedEntry:
    """Something in a folder of derived files.

    what: it is, in words. num_bytes: that it takes on the disk; None: it is not ours. kept_because: why it is not to be
    removed; None: nobody uses it. is_removed: it was there and no longer is.
    """

    path: Path
    what: str
    num_bytes: int | None
    kept_because: str | None
    is_removed: bool = False


def list_derived(folder: Path) -> list[DerivedEntry]:
    """What is in a folder of derived files, by name; nothing, if it is not there. Raises ConfigError for a file."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: derived files lie in a folder, this is none; name another --scratch")
    return [_describe(path) for path in sorted(folder.iterdir())] if folder.exists() else []


def remove_unused(entries: list[DerivedEntry]) -> list[DerivedEntry]:
    """Remove those of list_derived() that nobody uses, and say which are gone; one that is in use by now stays.

    Raises DestinationError or WriteError where the system refuses.
    """
    return [entry if entry.kept_because is not None else _remove(entry) for entry in entries]


def _describe(path: Path) -> DerivedEntry:
    what = _kind_of(path)
    if what is None:
        return DerivedEntry(path=path, what=_FOREIGN, num_bytes=None, kept_because=_FOREIGN)
    reason, descriptor = _lock(path)
    if descriptor is not None:
        os.close(descriptor)
    return DerivedEntry(path=path, what=what, num_bytes=_allocated_bytes(path), kept_because=reason)


def _kind_of(path: Path) -> str | None:
    # A link is whoever's made it, and what it leads to may be anybody's.
    if path.is_symlink() or not path.is_dir():
        return None
    what = next((kind for pattern, kind in _KINDS.items() if re.fullmatch(pattern, path.name)), None)
    return None if what is not None and path.name.startswith("run-") and not is_scratch(path) else what


def _remove(entry: DerivedEntry) -> DerivedEntry:
    reason, descriptor = _lock(entry.path)
    if reason is not None:
        return replace(entry, kept_because=reason)
    try:
        with destination_errors(entry.path):
            # First of all: what an interruption leaves must not pass for a layout, or for tables.
            for manifest in (LAYOUT_FILE, TABLES_FILE):
                (entry.path / manifest).unlink(missing_ok=True)
            remove_tree(entry.path)
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return replace(entry, is_removed=True)


def _lock(folder: Path) -> tuple[str | None, int | None]:
    """Lock a folder: why it cannot be, or the descriptor by whose closing it is let go; neither, if it is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return f"cannot be opened: {error.strerror}", None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return "in use", None
    except OSError:
        # Whoever uses it could not lock it either. What is kept in vain can be removed by hand; what is taken from a
        # run ends it.
        os.close(descriptor)
        return "may be in use: its file system has no locks", None
    return None, descriptor


def _allocated_bytes(folder: Path) -> int:
    """That a folder and all in it take on the disk, links not followed; what vanishes meanwhile takes nothing."""
    num_bytes = 0
    for parent, _, names in os.walk(folder):
        for path in (Path(parent), *(Path(parent, name) for name in names)):
            with contextlib.suppress(FileNotFoundError):
                num_bytes += path.lstat().st_blocks * 512
    return num_bytes

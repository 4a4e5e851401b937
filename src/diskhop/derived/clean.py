"""Listing and removing derived files (`diskhop clean`), which diskhop can rebuild from a dataset.

They are folders in one common folder, recognised by their names: scratch of a run (derived/scratch.py), packed layouts,
hop tables, norms of GraphSAINT, clusters, merged lists of edge types, splits of edges, and unfinished ones of these.
Every user of a folder locks it (flock), shared or exclusively. Anything else in the common folder is never opened or
removed.
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

# The manifests of packed layouts and the like, without which the folder is not valid.
LAYOUT_FILE, TABLES_FILE, NORMS_FILE, CLUSTERS_FILE = "layout.json", "tables.json", "norms.json", "clusters.json"
SPLIT_FILE, MERGED_FILE = "split.json", "merged.json"
# Strict patterns of whole names: a scratch folder may also contain files of others.
_KINDS = {
    r"run-[a-z0-9_]{8}": "scratch of a run",
    r"packed-[0-9a-f]{8,}": "packed layout",
    r"\.packed-[0-9a-f]{8,}\.(work|partial)": "unfinished packing",
    r"propagated-[0-9a-f]{8,}": "hop tables",
    r"\.propagated-[0-9a-f]{8,}\.(work|partial)": "unfinished propagation",
    r"saint-[0-9a-f]{8,}": "norms of GraphSAINT",
    r"\.saint-[0-9a-f]{8,}\.work": "unfinished norms",
    r"clusters-[0-9a-f]{8,}": "clusters",
    r"\.clusters-[0-9a-f]{8,}\.work": "unfinished clusters",
    r"merged-[0-9a-f]{8,}": "merged lists or columns of types",
    r"\.merged-[0-9a-f]{8,}\.work": "unfinished merged lists or columns",
    r"links-[0-9a-f]{16}": "split of edges",
    r"\.links-[0-9a-f]{16}\.(work|partial)": "unfinished split of edges",
    r"\.predicted-[0-9a-f]{8,}\.work": "unfinished prediction",
}
_FOREIGN = "not made by diskhop"


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedEntry:
    """An entry of a folder of derived files.

    path: the folder or file.
    what: kind of entry, in words.
    num_bytes: space on the disk; None for entries that diskhop did not create.
    kept_because: why it must not be removed; None for unused entries.
    is_removed: whether it existed and was removed.
    """

    path: Path
    what: str
    num_bytes: int | None
    kept_because: str | None
    is_removed: bool = False


def list_derived(folder: Path) -> list[DerivedEntry]:
    """List the entries of a folder of derived files by name, none if it is missing. Raises ConfigError for a file."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is not a folder; choose a folder of derived files with --scratch")
    return [_describe(path) for path in sorted(folder.iterdir())] if folder.exists() else []


def remove_unused(entries: list[DerivedEntry]) -> list[DerivedEntry]:
    """Remove the unused entries of list_derived(). Entries that came into use since are kept.

    Returns all entries with what became of them. Raises DestinationError or WriteError if the system refuses.
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
    # diskhop creates no links; the target may be a user's own files.
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
            # The manifest goes first: after an interruption, the rest must not look like a valid folder.
            for manifest in (LAYOUT_FILE, TABLES_FILE, NORMS_FILE, CLUSTERS_FILE, SPLIT_FILE, MERGED_FILE):
                (entry.path / manifest).unlink(missing_ok=True)
            remove_tree(entry.path)
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return replace(entry, is_removed=True)


def _lock(folder: Path) -> tuple[str | None, int | None]:
    """Lock a folder. Returns (reason, None) if it cannot be locked, (None, descriptor), (None, None) if it is gone."""
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
        # Its user could not lock it either. A folder kept needlessly can be removed by hand; removing one in use would
        # crash its run.
        os.close(descriptor)
        return "may be in use: its file system has no locks", None
    return None, descriptor


def _allocated_bytes(folder: Path) -> int:
    """Return the disk space of a folder and its content, without following links; vanished files count as nothing."""
    num_bytes = 0
    for parent, _, names in os.walk(folder):
        for path in (Path(parent), *(Path(parent, name) for name in names)):
            with contextlib.suppress(FileNotFoundError):
                num_bytes += path.lstat().st_blocks * 512
    return num_bytes

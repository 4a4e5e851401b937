"""Checksums of the files of a folder, kept by its manifest as `files`: bytes and xxh3_64 of each.

Whoever opens the folder checks small files whole and the length of large ones, as for a dataset; `diskhop verify` reads
every byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from diskhop.dataset.damage import Damage, verify_file
from diskhop.dataset.files import SMALL_FILE_BYTES, check_length, read_blocks
from diskhop.dataset.manifest import FileEntry
from diskhop.errors import FormatError
from diskhop.io.checksums import BlockHasher
from diskhop.runtime.progress import Progress, silent

FILES = "files"


def sum_files(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Read files and return what a manifest says of them. Raises ReadError."""
    return {name: _sum_file(folder / name).to_json() for name in names}


def read_entries(manifest: Path, content: Mapping[str, Any], remedy: str) -> dict[str, FileEntry]:
    """Return the entries of a manifest. Raises FormatError for missing or invalid ones."""
    try:
        entries = {
            _inside(name): FileEntry(num_bytes=int(each["bytes"]), xxh3_64=str(each["xxh3_64"]))
            for name, each in content[FILES].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{manifest}: has an invalid list of files ({error!r}); {remedy}") from error
    return entries


def check_files(manifest: Path, content: Mapping[str, Any], remedy: str) -> None:
    """Check the files that a manifest lists. Raises ReadError, and FormatError for a damaged one."""
    for name, entry in read_entries(manifest, content, remedy).items():
        path = manifest.parent / name
        check_length(path, entry.num_bytes)
        if entry.num_bytes < SMALL_FILE_BYTES and _sum_file(path) != entry:
            raise FormatError(f"{path}: is damaged (its checksum does not match); {remedy}")


def verify_files(
    manifest: Path, content: Mapping[str, Any], remedy: str, progress: Progress = silent
) -> Iterator[Damage]:
    """Read all files that a manifest lists, and yield those that are damaged. Raises FormatError."""
    entries = read_entries(manifest, content, remedy)
    total_bytes, done_bytes = sum(entry.num_bytes for entry in entries.values()), 0
    for name, entry in entries.items():
        yield from verify_file(manifest.parent, name, entry)
        done_bytes += entry.num_bytes
        progress("verify", done_bytes, total_bytes)


def _sum_file(path: Path) -> FileEntry:
    hasher = BlockHasher()
    for block in read_blocks(path):
        hasher.update(block)
    return FileEntry.of(hasher.finish())


def _inside(name: str) -> str:
    """Refuse a name that leads out of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"{name!r} is not a file in the folder")
    return name

"""The next generation of a dataset: a folder of its files, of which those that stay as they are are hard links.

The folder is named by the number of the generation and lies in the dataset. The manifest, replaced atomically, says
which generation is the dataset's; so a folder of a higher number is left over from a crash. The files of the generation
before stay for readers that opened it; those of earlier ones are removed.

New feature rows are appended in place, behind the length that older manifests state: older generations never read them,
and after a crash the next update overwrites them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine
from diskhop.dataset.build.extended import stored_sums
from diskhop.dataset.build.files import NO_LINKS, DatasetFiles
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.dataset.files import read_blocks
from diskhop.dataset.manifest import CHECKSUMS_NAME, MANIFEST_NAME, Manifest, content_folder
from diskhop.dataset.manifest_file import parse_manifest
from diskhop.errors import FormatError, WriteError
from diskhop.io.atomic import (
    Injector,
    announce,
    destination_errors,
    make_directories,
    remove_tree,
    sync_directory,
    sync_file,
    write_file,
)
from diskhop.io.checksums import BLOCK_BYTES, BlockHasher, FileSums, digest_bytes
from diskhop.updating.splice import damaged

_FOLDER = re.compile(r"generation-([0-9]+)")


class NewGeneration:
    """The next generation of a dataset under construction; its context removes an unfinished one.

    The caller holds the lock of the dataset's work folder.
    """

    def __init__(self, dataset: Dataset, engine: Engine, injector: Injector | None) -> None:
        self.dataset = dataset
        self.number = dataset.manifest.generation + 1
        self._injector = injector
        self._folder = content_folder(dataset.path, self.number)
        self._engine = engine
        self._old_sums = stored_sums(dataset)
        self._is_published = False

    def __enter__(self) -> NewGeneration:
        remove_leftovers(self.dataset, self._injector)
        make_directories(self._folder, self._injector)
        self.files = DatasetFiles(self._folder, self._engine, self._injector)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_published:
            # As the manifest on the disk says: its rename may have happened although the change failed afterwards.
            with suppress(OSError, FormatError):
                remove_leftovers(open_dataset(self.dataset.path), self._injector)

    def share(self, relative: str) -> None:
        """Take over a file as it is."""
        self.files.share(relative, self.dataset.content / relative, self._old_sums[relative])

    def append(self, relative: str, blocks: Iterable[NDArray[np.uint8]]) -> None:
        """Take over a feature table, with more bytes at its end: the old ones are not copied."""
        old_path, sums = self.dataset.content / relative, self._old_sums[relative]
        path = self._folder / relative
        num_whole = sums.num_bytes // BLOCK_BYTES
        with old_path.open("rb") as file:
            file.seek(num_whole * BLOCK_BYTES)
            last = np.frombuffer(file.read(sums.num_bytes % BLOCK_BYTES), np.uint8)
        if len(last) and digest_bytes(last) != sums.blocks[-1]:
            raise damaged(old_path)
        if has_foreign_links(self.dataset, relative) or not self._link(old_path, path):
            self.files.write(relative, read_blocks(old_path, sums.num_bytes))
            if self.files.sums(relative).digest != sums.digest:
                raise damaged(old_path)
        hasher = BlockHasher()
        hasher.update(last)
        with destination_errors(path), path.open("r+b", buffering=0) as file:
            announce(self._injector, "write", path)
            file.truncate(sums.num_bytes)
            file.seek(sums.num_bytes)
            for block in blocks:
                content = np.ascontiguousarray(block).reshape(-1).view(np.uint8)
                hasher.update(content)
                announce(self._injector, "write", path)
                written = 0
                while written < len(content):
                    written += file.write(content[written:].data)
        sync_file(path, self._injector)
        added = hasher.finish()
        num_bytes = num_whole * BLOCK_BYTES + added.num_bytes
        joined = np.concatenate([sums.blocks[:num_whole], added.blocks])
        self.files.set_sums(relative, FileSums(num_bytes, joined))

    def publish(self, manifest: Manifest) -> Dataset:
        """Make this generation the dataset's, and open it. manifest: the content, without files and generation.

        Raises FormatError, and changes nothing, if the manifest would be invalid. A WriteError says if the dataset is
        the new generation all the same.
        """
        checksums = self.files.write_checksums()
        manifest = replace(manifest, files=self.files.entries(), checksums=checksums, generation=self.number)
        content = manifest.to_bytes()
        parse_manifest(content, str(self.dataset.path))
        for directory, _, _ in os.walk(self._folder, topdown=False):
            sync_directory(Path(directory), self._injector)
        sync_directory(self.dataset.path, self._injector)
        path = self.dataset.path
        try:
            write_file(path / MANIFEST_NAME, content, self._injector)
        except OSError as error:
            if open_dataset(path).manifest.generation == self.number:
                raise WriteError(
                    f"{path}: the update is applied, but may be undone by a power failure ({error}); do not apply it "
                    f"again while 'diskhop inspect' shows generation {self.number}"
                ) from error
            raise
        self._is_published = True
        updated = open_dataset(path)
        # What cannot be removed now is removed by the next update; an error would say that this one failed.
        with suppress(OSError):
            remove_leftovers(updated, self._injector)
        return updated

    def _link(self, old: Path, path: Path) -> bool:
        """Link a file to a second name. Returns whether the file system can."""
        with destination_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            announce(self._injector, "rename", path)
            try:
                os.link(old, path)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                return False
        return True


def remove_leftovers(dataset: Dataset, injector: Injector | None) -> None:
    """Remove what neither the dataset's generation nor the one before has: what a crash left, and old generations.

    Rows that an unfinished update appended go, too.
    """
    path, number = dataset.path, dataset.manifest.generation
    with destination_errors(path):
        for each, folder in _folders(path).items():
            if each not in (number, number - 1):
                remove_tree(folder, injector)
        if number > 2:
            for name in ("nodes", "edges", "names", "triples"):
                remove_tree(path / name, injector)
            if (path / CHECKSUMS_NAME).exists():
                announce(injector, "rename", path / CHECKSUMS_NAME)
                (path / CHECKSUMS_NAME).unlink()
        for relative, entry in dataset.manifest.files.items():
            table = dataset.content / relative
            is_longer = relative.endswith("/features.bin") and table.stat().st_size > entry.num_bytes
            # A longer one may be another dataset's.
            if is_longer and not has_foreign_links(dataset, relative):
                announce(injector, "write", table)
                os.truncate(table, entry.num_bytes)


def has_foreign_links(dataset: Dataset, relative: str) -> bool:
    """Check whether something else than a generation of a dataset has a name for one of its files."""
    status = (dataset.content / relative).stat()
    own = 0
    for folder in (dataset.path, *_folders(dataset.path).values()):
        with suppress(OSError):
            own += os.path.samestat((folder / relative).stat(), status)
    return status.st_nlink > own


def _folders(path: Path) -> dict[int, Path]:
    """Return the folders of generations, by number."""
    found = ((_FOLDER.fullmatch(each.name), each) for each in sorted(path.iterdir()) if each.is_dir())
    return {int(name[1]): each for name, each in found if name is not None}

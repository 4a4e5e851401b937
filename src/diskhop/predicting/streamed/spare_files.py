"""Disk space of tables that are no longer needed, for the next ones.

A disk writes over old content up to twice as fast as into new space, and removing a file of gigabytes delays what else
it does. So a table that is dropped leaves its file, unchanged, to one that begins.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from diskhop.io.atomic import Injector, announce, destination_errors


class SpareFiles:
    """Files without a use; the context waits for their removal. Whoever adds one has forgotten what it had."""

    def __init__(self, injector: Injector | None) -> None:
        self._injector = injector
        self._files: dict[Path, int] = {}
        self._remover = ThreadPoolExecutor(1, thread_name_prefix="remove files")
        self._removing: list[Future[None]] = []

    def __enter__(self) -> SpareFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remover.shutdown()
        for removing in self._removing if error is None else ():
            removing.result()

    @property
    def num_bytes(self) -> int:
        """Bytes of all of them."""
        return sum(self._files.values())

    def add(self, path: Path) -> None:
        """Add a file."""
        self._files[path] = path.stat().st_size

    def take(self, num_bytes: int) -> Path | None:
        """Return the smallest file of at least some bytes, else the largest one, if there is any."""
        sizes = self._files

        def misfit(path: Path) -> tuple[bool, int]:
            return sizes[path] < num_bytes, abs(sizes[path] - num_bytes)

        found = min(sizes, key=misfit, default=None)
        if found is not None:
            del sizes[found]
        return found

    def shrink_to(self, num_bytes: int) -> None:
        """Cut the smallest files, or remove them, until all have at most some bytes."""
        for path in sorted(self._files, key=self._files.__getitem__):
            left = max(0, self._files[path] - max(0, self.num_bytes - num_bytes))
            cut_file(path, left, self._injector)
            self._files[path] = left
        self._files = {path: size for path, size in self._files.items() if size > 0}

    def clear(self, last: Mapping[Path, int]) -> None:
        """Remove all files in the background, and cut those that stay to some bytes each."""
        files, self._files = dict.fromkeys(self._files, 0), {}
        for path, num_bytes in {**files, **last}.items():
            self._removing.append(self._remover.submit(cut_file, path, num_bytes, self._injector))


def cut_file(path: Path, num_bytes: int, injector: Injector | None) -> None:
    """Cut a file to at most some bytes; without any it is removed."""
    with destination_errors(path):
        if num_bytes >= path.stat().st_size:
            return
        announce(injector, "rename", path)
        if num_bytes == 0:
            path.unlink()
        else:
            os.truncate(path, num_bytes)

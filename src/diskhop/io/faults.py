"""Simulated crashes: stop before the n-th change, then reconstruct the content of the disk.

After a crash, a file has the content of its last fsync and a folder the names of its last fsync; everything else may be
lost. `CrashInjector` records both while changes pass. After the crash it writes the folder as it may be found again, in
two variants that bracket the behaviour of real file systems.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Literal

from diskhop._native import FaultInjector, FaultRule

Lost = Literal["names", "data"]


class CrashInjector:
    """Crashes before the nth change (write, fsync or rename) below `root`; with nth 0 it only counts changes.

    Everything below root at the start counts as synced. Pass `native` to the engine, and this object as the injector.
    Files must not change while they are synced.
    """

    def __init__(self, root: Path, nth: int) -> None:
        self.native = FaultInjector([FaultRule("crash", "changes", nth)] if nth else [], 0)
        self._root = root
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}
        # Open descriptors, so that the kernel does not reuse an inode number that is in the tables.
        self._descriptors: dict[int, int] = {}
        for directory, _, names in os.walk(root):
            for path in (Path(directory), *(Path(directory) / name for name in names)):
                self._remember(path)

    @property
    def num_changes(self) -> int:
        """Number of changes announced so far."""
        return self.native.count("changes")

    def check(self, kind: Literal["write", "fsync", "rename"], path: str) -> None:
        """Count a change. Raises CrashError at the nth and all later ones."""
        self.native.check(kind, path)
        if kind == "fsync":
            self._remember(Path(path))

    def write_survivors(self, target: Path, lost: Lost) -> None:
        """Write the content of root after a crash now to the empty folder `target`.

        lost "names": names that were created after the last fsync of their folder are missing; files that were never
        synced are empty. lost "data": all names and lengths survive; content that was not synced is zeros.
        """
        self._write_directory(self._root, target, lost)

    def __enter__(self) -> CrashInjector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def _remember(self, path: Path) -> None:
        number = path.stat().st_ino
        if number not in self._descriptors:
            self._descriptors[number] = os.open(path, os.O_RDONLY)
        if path.is_dir():
            self._names[number] = {e.name: (e.inode(), e.is_dir()) for e in os.scandir(path)}
        else:
            self._contents[number] = path.read_bytes()

    def _write_directory(self, live: Path, target: Path, lost: Lost) -> None:
        if lost == "data":
            for entry in os.scandir(live):
                if entry.is_dir():
                    (target / entry.name).mkdir()
                    self._write_directory(Path(entry.path), target / entry.name, lost)
                else:
                    content = self._contents.get(entry.inode(), b"")
                    num_bytes = entry.stat().st_size
                    (target / entry.name).write_bytes(content[:num_bytes].ljust(num_bytes, b"\0"))
        else:
            self._write_synced(live.stat().st_ino, target)

    def _write_synced(self, number: int, target: Path) -> None:
        for name, (child, is_directory) in self._names.get(number, {}).items():
            if is_directory:
                (target / name).mkdir()
                self._write_synced(child, target / name)
            else:
                (target / name).write_bytes(self._contents.get(child, b""))

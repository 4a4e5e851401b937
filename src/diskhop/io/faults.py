"""Crashes on purpose: stop before the n-th change, then show what the disk would hold.

A disk keeps of a file what its last fsync saw, and of a directory the names that were in it at the directory's last
fsync; all else may be lost. `CrashInjector` remembers both while it lets changes pass, and after the crash writes out
the directory as it may be found again, in two variants between which real file systems lie.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Literal

from diskhop._native import FaultInjector, FaultRule

Lost = Literal["names", "data"]


class CrashInjector:
    """Crashes before the nth change (write, fsync or rename) below `root`; nth 0 never crashes and only counts.

    What is below root at the start is taken to be on the disk. Give `native` to the engine, and this object to whoever
    takes an injector. Files that are written must not change while they are synced.
    """

    def __init__(self, root: Path, nth: int) -> None:
        self.native = FaultInjector([FaultRule("crash", "changes", nth)] if nth else [], 0)
        self._root = root
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}
        # Held open, so that no inode number is given to another file while it is in the tables.
        self._held: dict[int, int] = {}
        for directory, _, names in os.walk(root):
            for path in (Path(directory), *(Path(directory) / name for name in names)):
                self._remember(path)

    @property
    def num_changes(self) -> int:
        """Changes announced so far."""
        return self.native.count("changes")

    def check(self, kind: Literal["write", "fsync", "rename"], path: str) -> None:
        """Count a change; raises CrashError at the nth and ever after."""
        self.native.check(kind, path)
        if kind == "fsync":
            self._remember(Path(path))

    def write_survivors(self, target: Path, lost: Lost) -> None:
        """Write what a crash now would leave of root to the empty directory `target`.

        lost "names": a name is there only if its directory was synced after it was made, and a file that was never
        synced is empty. lost "data": every name and length is there, and what was not synced is zeros.
        """
        self._write_directory(self._root, target, lost)

    def __enter__(self) -> CrashInjector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)

    def _remember(self, path: Path) -> None:
        number = path.stat().st_ino
        if number not in self._held:
            self._held[number] = os.open(path, os.O_RDONLY)
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

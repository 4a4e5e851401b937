"""Power cuts: of what was not synced, any part may be on the disk, in any order.

`CrashInjector` writes two extremes of a disk after a crash. Here every 512-byte sector of unsynced data is the old one
(zeros where there was none) or the new one, every length of a file is one between the old and the new, and every
change of names that was not synced is kept or lost, each independently of the others.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from diskhop._native import CrashError
from diskhop.io.faults import CrashInjector

SECTOR_BYTES = 512
# A folder's inode and a name in it.
Place = tuple[int, str]
Names = dict[int, dict[str, int]]


class Move(NamedTuple):
    """A change of one inode's name. source: None for a new name. destination: None for a removed one."""

    inode: int
    source: Place | None
    destination: Place | None

    @property
    def durable_with(self) -> int:
        """The folder whose fsync makes the change durable."""
        place = self.destination or self.source
        assert place is not None
        return place[0]

    def apply(self, names: Names) -> None:
        """Make the change, in folders that may lack earlier ones."""
        if self.source is not None:
            folder, name = self.source
            if names.get(folder, {}).get(name) == self.inode:
                del names[folder][name]
        if self.destination is not None:
            folder, name = self.destination
            names.setdefault(folder, {})[name] = self.inode


class PowerCut(CrashInjector):
    """Cuts the power before the nth change below `root`; with nth 0 it only counts changes.

    A rename is one change, as is an exchange of two names. Threading: any thread may announce changes.
    """

    def __init__(self, root: Path, nth: int) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        super().__init__(root, nth)
        self.is_cut = False
        self._lock = threading.Lock()
        self._top = root.stat().st_ino
        self._seen = self._look()
        self._durable: Names = {}
        for (folder, name), inode in self._seen.items():
            self._durable.setdefault(folder, {})[name] = inode
        # Changes of names in their order, each of moves that happen together.
        self._pending: list[list[Move]] = []

    def check(self, kind: Literal["write", "fsync", "rename"], path: str) -> None:
        """Note changes of names, and count one. Raises CrashError at the nth and all later ones."""
        with self._lock:
            try:
                super().check(kind, path)
            except CrashError:
                self._end()
                raise
            self._note()
            if kind == "fsync" and os.path.isdir(path):  # noqa: PTH112 (called for every change)
                self._settle(os.stat(path).st_ino)  # noqa: PTH116

    def write_torn(self, target: Path, draws: random.Random) -> None:
        """Write what is on the disk after a cut now to the empty folder `target`."""
        with self._lock:
            self._end()
            names = {folder: dict(entries) for folder, entries in self._durable.items()}
            for moves in self._pending:
                if draws.random() < 0.5:
                    for move in moves:
                        move.apply(names)
            self._write_folder(self._top, names, target, draws)

    def _end(self) -> None:
        """Note what was changed until the cut; what the dying process does after it never happened."""
        if not self.is_cut:
            self._note()
            self.is_cut = True

    def _look(self) -> dict[Place, int]:
        """Inodes by place, each kept open: removed files are still read, and no number is used again."""
        return dict(self._entries(self._root, self._top))

    def _entries(self, folder: Path, number: int) -> Iterator[tuple[Place, int]]:
        with contextlib.suppress(FileNotFoundError):  # another thread removes it
            for entry in os.scandir(folder):
                with contextlib.suppress(FileNotFoundError):
                    inode = entry.inode()
                    if inode not in self._descriptors:
                        self._descriptors[inode] = os.open(entry.path, os.O_RDONLY)
                    yield (number, entry.name), inode
                    if entry.is_dir():
                        yield from self._entries(Path(entry.path), inode)

    def _note(self) -> None:
        seen, now = self._seen, self._look()
        gone = {place: inode for place, inode in seen.items() if now.get(place) != inode}
        come = {place: inode for place, inode in now.items() if seen.get(place) != inode}
        sources: dict[int, list[Place]] = {}
        for place, inode in gone.items():
            sources.setdefault(inode, []).append(place)
        moves = {}
        for place, inode in come.items():
            moves[place] = Move(inode, sources[inode].pop() if sources.get(inode) else None, place)
        while moves:
            move = moves.pop(next(iter(moves)))
            together = [move]
            # What comes to the place that this one leaves has been exchanged with it, or follows it.
            while move.source in moves:
                move = moves.pop(move.source)
                together.append(move)
            self._pending.append(together)
        for inode, places in sources.items():
            self._pending += [[Move(inode, place, None)] for place in places if place not in come]
        self._seen = now

    def _settle(self, folder: int) -> None:
        kept = []
        for moves in self._pending:
            if any(move.durable_with == folder for move in moves):
                for move in moves:
                    move.apply(self._durable)
            else:
                kept.append(moves)
        self._pending = kept

    def _write_folder(self, number: int, names: Names, target: Path, draws: random.Random) -> None:
        for name, inode in names.get(number, {}).items():
            if stat.S_ISDIR(os.fstat(self._descriptors[inode]).st_mode):
                (target / name).mkdir()
                self._write_folder(inode, names, target / name, draws)
            else:
                (target / name).write_bytes(self._torn(inode, draws))

    def _torn(self, inode: int, draws: random.Random) -> bytes:
        old, descriptor = self._contents.get(inode, b""), self._descriptors[inode]
        new = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        if new == old:
            return old
        ends = sorted([len(old), len(new)])
        num_bytes = draws.choice([*ends, draws.randint(*ends)])
        old, new = (each[:num_bytes].ljust(num_bytes, b"\0") for each in (old, new))
        sectors = range(0, num_bytes, SECTOR_BYTES)
        return b"".join(draws.choice((old, new))[start : start + SECTOR_BYTES] for start in sectors)

"""Tables of tiles under construction: one file each, fully allocated from the start, of which tasks write *parts*.

A part is durable before the output of its task gets a name, and so is the table's own name. So if an output exists, its
part of the table does too. A background thread waits for the disk while the next part is written: it takes seconds to
store gigabytes that it keeps in memory of its own. An output contains what its part adds to the checksum of the table.
Outputs are named after tiles, so that a run with another budget resumes from them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from diskhop.hops.tables import TableSum
from diskhop.io.atomic import allocate, announce, create_unsynced, rename, sync_directory, syncing
from diskhop.runtime.tasks import TaskTools, run_tasks


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """A rectangle of tiles.

    first_tile: first tile.
    end_tile: last tile + 1.
    first_group: first group.
    end_group: last group + 1.
    """

    first_tile: int
    end_tile: int
    first_group: int
    end_group: int

    def __str__(self) -> str:
        return f"tiles-{self.first_tile}-{self.end_tile}-groups-{self.first_group}-{self.end_group}"


class WorkShape(Protocol):
    """Layout of a table under construction."""

    @property
    def num_groups(self) -> int:
        """Number of groups of rows."""

    @property
    def num_tiles(self) -> int:
        """Tiles per group."""

    @property
    def num_bytes(self) -> int:
        """Bytes of the file."""


Shape = TypeVar("Shape", bound=WorkShape)


class WorkTables(Generic[Shape]):
    """Tables of one shape in `folder`, and the outputs of their tasks in `done`; the context waits for writes.

    may_be_longer: whether files may have more bytes than the shape, behind a table.
    """

    def __init__(
        self, folder: Path, done: Path, shape: Shape, tools: TaskTools, *, may_be_longer: bool = False
    ) -> None:
        self.folder = folder
        self.done = done
        self.shape = shape
        self._tools = tools
        self._may_be_longer = may_be_longer
        self._settler = ThreadPoolExecutor(1, thread_name_prefix="sync parts")
        self._settling: Future[None] | None = None
        self._drained = threading.Event()
        self._drained.set()
        self._named: set[str] = set()  # tables whose names are durable

    def __enter__(self) -> WorkTables[Shape]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._settler.shutdown()

    def path(self, table: str) -> Path:
        """Return the path of a table, which need not exist."""
        return self.folder / f"{table}.bin"

    def is_complete(self, table: str) -> bool:
        """Return whether a table is finished and durable."""
        return bool(self._done_tiles(table).all())

    def missing_columns(self, table: str) -> list[int]:
        """Return the tiles that are missing in some group."""
        return [int(tile) for tile in np.flatnonzero(~self._done_tiles(table).all(axis=0))]

    def missing_groups(self, table: str, first_tile: int, end_tile: int) -> NDArray[np.int64]:
        """Return the groups in which some of these tiles are missing, ascending; a part that is not yet durable is."""
        done = self._tiles_of(self._outputs(table) if self._exists(table) else ())
        return np.flatnonzero(~done[:, first_tile:end_tile].all(axis=1))

    def is_done(self, table: str, part: Part) -> bool:
        """Return whether a part is finished."""
        return any(part == each for each, _ in self._parts(table))

    def write(
        self, table: str, part: Part, make: Callable[[Path], int], writing: AbstractContextManager[object] | None = None
    ) -> None:
        """Write a part of a table by make(path), which returns what its pages add to the checksum.

        The part becomes durable in the background; the next call raises an error of that, once its part is written.
        writing: context of what make() has begun to write, whose end waits for it: in the background, too (see drain).
        """
        self._ensure(table)
        self.drain()
        with ExitStack() as stack:
            stack.enter_context(syncing(self.path(table), self._tools.injector))
            if writing is not None:
                self._drained.clear()
                stack.callback(self._drained.set)
                stack.enter_context(writing)
            pages = make(self.path(table))
            self.settle()
            task = _PartTask(f"{table}.{part}", pages)
            written = stack.pop_all()
            try:
                self._settling = self._settler.submit(self._settle, written, table, task)
            except BaseException:
                written.close()
                raise

    def drain(self) -> None:
        """Wait until the last part is written, and its memory no longer used."""
        self._drained.wait()

    def settle(self) -> None:
        """Wait until all written parts are durable."""
        settling, self._settling = self._settling, None
        if settling is not None:
            settling.result()

    def _settle(self, written: ExitStack, table: str, task: _PartTask) -> None:
        with written:
            if table not in self._named:
                sync_directory(self.folder, self._tools.injector)
                self._named.add(table)
        run_tasks([task], self.done, self._tools, threads=1)

    def drop(self, table: str) -> None:
        """Remove a table, if it exists: outputs first, which are invalid without it."""
        path = self.release(table)
        if path is not None:
            announce(self._tools.injector, "rename", path)
            path.unlink()

    def release(self, table: str) -> Path | None:
        """Forget what is finished of a table, durably; return its file, if there is one."""
        self.settle()
        self._forget(table)
        path = self.path(table)
        return path if path.exists() else None

    def begin(self, table: str, spare: Path | None) -> None:
        """Create and allocate a table, unless it exists, in the place of a file that has no other use."""
        path, injector = self.path(table), self._tools.injector
        if spare is not None and not self._exists(table):
            self._forget(table)
            rename(spare, path, injector)
            if path.stat().st_size < self.shape.num_bytes:
                announce(injector, "write", path)
                allocate(path, 0, self.shape.num_bytes)
            self._named.discard(table)
        self._ensure(table)

    def checksum(self, table: str) -> str:
        """Return the checksum of a complete table of disjoint parts; see TableSum."""
        table_sum = TableSum()
        for _, path in self._parts(table):
            table_sum.add_sum(int.from_bytes(path.read_bytes(), "little"))
        return table_sum.checksum

    def _done_tiles(self, table: str) -> NDArray[np.bool_]:
        """Return a mask of the finished tiles (groups, tiles)."""
        return self._tiles_of(self._parts(table))

    def _tiles_of(self, parts: Iterable[tuple[Part, Path]]) -> NDArray[np.bool_]:
        done = np.zeros((self.shape.num_groups, self.shape.num_tiles), np.bool_)
        for part, _ in parts:
            done[part.first_group : part.end_group, part.first_tile : part.end_tile] = True
        return done

    def _parts(self, table: str) -> Iterator[tuple[Part, Path]]:
        """Yield the finished parts of a table and their outputs."""
        self.settle()
        if self._exists(table):
            yield from self._outputs(table)

    def _exists(self, table: str) -> bool:
        path = self.path(table)
        if not path.exists():
            return False
        num_bytes = path.stat().st_size
        return num_bytes == self.shape.num_bytes or (self._may_be_longer and num_bytes > self.shape.num_bytes)

    def _outputs(self, table: str) -> Iterator[tuple[Part, Path]]:
        pattern = re.compile(rf"{re.escape(table)}\.tiles-(\d+)-(\d+)-groups-(\d+)-(\d+)")
        for path in sorted(self.done.iterdir()):
            if found := pattern.fullmatch(path.name):
                yield Part(*map(int, found.groups())), path

    def _forget(self, table: str) -> None:
        outputs = [path for _, path in self._outputs(table)]
        for path in outputs:
            announce(self._tools.injector, "rename", path)
            path.unlink()
        if outputs:
            sync_directory(self.done, self._tools.injector)

    def _ensure(self, table: str) -> None:
        """Create and allocate a table, unless it exists."""
        if self._exists(table):
            return
        self._forget(table)  # outputs of a table that no longer exists
        create_unsynced(self.path(table), self.shape.num_bytes, self._tools.injector)
        self._named.discard(table)


@dataclass(frozen=True, slots=True)
class _PartTask:
    """Writes what a part of a table adds to the checksum."""

    name: str
    pages: int

    def write(self, path: Path, tools: TaskTools) -> None:
        """Write the sum (see Task)."""
        path.write_bytes(self.pages.to_bytes(8, "little"))

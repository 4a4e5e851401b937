"""Tables of tiles in the making: each one file with all its room from the start, of which tasks write *parts*.

What a task writes into a table is on the disk before the task's output has a name, and the table's own name before the
first task: so where there is an output, its part of the table is there. That waits for the disk, so a thread of its own
sees to it while what the next part is made of is read. An output is what the part adds to the table's checksum. Outputs
are named after the tiles, so that a run with another budget goes on from them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from diskhop.hops.tables import TableShape, TableSum
from diskhop.io.atomic import announce, create_allocated, sync_directory, syncing
from diskhop.runtime.tasks import TaskTools, run_tasks


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """Tiles first_tile to end_tile - 1 of groups first_group to end_group - 1."""

    first_tile: int
    end_tile: int
    first_group: int
    end_group: int

    def __str__(self) -> str:
        return f"tiles-{self.first_tile}-{self.end_tile}-groups-{self.first_group}-{self.end_group}"


class WorkTables:
    """Tables of one shape in `folder`, and the outputs of their tasks in `done`; a context that waits for them."""

    def __init__(self, folder: Path, done: Path, shape: TableShape, tools: TaskTools) -> None:
        self._folder = folder
        self._done = done
        self.shape = shape
        self._tools = tools
        self._settler = ThreadPoolExecutor(1, thread_name_prefix="settling parts")
        self._settling: Future[None] | None = None

    def __enter__(self) -> WorkTables:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._settler.shutdown()

    def path(self, table: str) -> Path:
        """Where a table is, or would be."""
        return self._folder / f"{table}.bin"

    def is_complete(self, table: str) -> bool:
        """Whether all of a table is on the disk."""
        return bool(self._done_tiles(table).all())

    def missing_columns(self, table: str) -> list[int]:
        """Tiles of a group that are not there yet in every group."""
        return [int(tile) for tile in np.flatnonzero(~self._done_tiles(table).all(axis=0))]

    def is_done(self, table: str, part: Part) -> bool:
        """Whether a part is there."""
        return any(part == each for each, _ in self._parts(table))

    def write(self, table: str, part: Part, make: Callable[[Path], int]) -> None:
        """Have make(path) write a part of a table into it, and return what its pages add to the checksum.

        What becomes of it is raised by what is asked of the tables next.
        """
        self.settle()
        self._ensure(table)
        with ExitStack() as stack:
            stack.enter_context(syncing(self.path(table), self._tools.injector))
            pages = make(self.path(table))
            task = _PartTask(f"{table}.{part}", pages)
            self._settling = self._settler.submit(self._settle, stack.pop_all(), task)

    def settle(self) -> None:
        """Return once all that was written is on the disk."""
        settling, self._settling = self._settling, None
        if settling is not None:
            settling.result()

    def _settle(self, written: ExitStack, task: _PartTask) -> None:
        with written:
            pass
        run_tasks([task], self._done, self._tools, threads=1)

    def drop(self, table: str) -> None:
        """Remove a table, if it is there: outputs first, which mean nothing without it."""
        self.settle()
        self._forget(table)
        path = self.path(table)
        if path.exists():
            announce(self._tools.injector, "rename", path)
            path.unlink()

    def checksum(self, table: str) -> str:
        """Of a table that is complete, of parts that do not overlap; see TableSum."""
        table_sum = TableSum()
        for _, path in self._parts(table):
            table_sum.add_sum(int.from_bytes(path.read_bytes(), "little"))
        return table_sum.checksum

    def _done_tiles(self, table: str) -> NDArray[np.bool_]:
        """Which tiles are there (groups, tiles)."""
        done = np.zeros((self.shape.num_groups, self.shape.num_tiles), np.bool_)
        for part, _ in self._parts(table):
            done[part.first_group : part.end_group, part.first_tile : part.end_tile] = True
        return done

    def _parts(self, table: str) -> Iterator[tuple[Part, Path]]:
        """What is there of a table, and the outputs that tell so."""
        self.settle()
        path = self.path(table)
        if not path.exists() or path.stat().st_size != self.shape.num_bytes:
            return
        yield from self._outputs(table)

    def _outputs(self, table: str) -> Iterator[tuple[Part, Path]]:
        pattern = re.compile(rf"{re.escape(table)}\.tiles-(\d+)-(\d+)-groups-(\d+)-(\d+)")
        for path in sorted(self._done.iterdir()):
            if found := pattern.fullmatch(path.name):
                yield Part(*map(int, found.groups())), path

    def _forget(self, table: str) -> None:
        outputs = [path for _, path in self._outputs(table)]
        for path in outputs:
            announce(self._tools.injector, "rename", path)
            path.unlink()
        if outputs:
            sync_directory(self._done, self._tools.injector)

    def _ensure(self, table: str) -> None:
        """Make a table with all its room, if it is not there."""
        path = self.path(table)
        if path.exists() and path.stat().st_size == self.shape.num_bytes:
            return
        self._forget(table)  # one that is gone
        create_allocated(path, self.shape.num_bytes, self._tools.injector)


@dataclass(frozen=True, slots=True)
class _PartTask:
    """Writes down what a part of a table adds to the checksum."""

    name: str
    pages: int

    def write(self, path: Path, tools: TaskTools) -> None:
        """See tasks.Task."""
        path.write_bytes(self.pages.to_bytes(8, "little"))

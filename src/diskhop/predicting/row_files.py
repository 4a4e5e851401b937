"""Tables with one float32 row per node in files of their own, written in ranges that survive a crash.

A file is fully allocated from the start. The rows of a range are durable before the range is marked as done, so that
another run resumes after the last finished range. Ranges depend on the width of rows alone, not on memory or threads.
Each of N processes that share a table writes every N-th range, since in hot order the first rows have most edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine
from diskhop.errors import ReadError
from diskhop.io.atomic import announce, create_allocated, sync_directory, syncing
from diskhop.io.streams import SequentialWriter
from diskhop.protocols import Table
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.jobs import Share
from diskhop.runtime.progress import Progress, SharedProgress
from diskhop.runtime.tasks import TaskTools, run_job, run_tasks, writer_name
from diskhop.system.memory import buffer_bytes

# A crash costs about this much of a table at most.
RANGE_BYTES = 64 << 20
# Direct writes begin at multiples of this.
_PART_BYTES = 1 << 20
WRITING_BYTES = 2 * buffer_bytes(_PART_BYTES)

# Writes rows of a range, one after the other: (first row, end, append).
AppendRows = Callable[[NDArray[np.float32]], None]
MakeRows = Callable[[int, int, AppendRows], None]


class RowMaker(Protocol):
    """Makes the rows of a table; processes share them if it can be copied there (see jobs.py)."""

    def open(self, engine: Engine) -> AbstractContextManager[MakeRows]:
        """Load what all rows need."""


@dataclass(frozen=True, slots=True)
class RowFile:
    """A table (num_rows, dim) of float32; see RowTable.

    name: name of the table.
    folder: folder of its file.
    done: folder with a file for each finished range.
    range_bytes: bytes per range, roughly.
    """

    name: str
    folder: Path
    done: Path
    num_rows: int
    dim: int
    range_bytes: int = RANGE_BYTES

    @property
    def path(self) -> Path:
        """The file, which need not exist."""
        return self.folder / f"{self.name}.bin"

    @property
    def num_bytes(self) -> int:
        """Bytes of the file."""
        return self.num_rows * 4 * self.dim

    @property
    def range_rows(self) -> int:
        """Rows per range."""
        rows_per_part = _PART_BYTES // math.gcd(_PART_BYTES, 4 * self.dim)
        return rows_per_part * max(1, self.range_bytes // (rows_per_part * 4 * self.dim))

    @property
    def num_ranges(self) -> int:
        """Number of ranges."""
        return -(-self.num_rows // self.range_rows)

    def table(self) -> Table:
        """Return the location of the rows, for a feature store."""
        return Table(path=self.path, num_rows=self.num_rows, row_bytes=4 * self.dim, row_stride=4 * self.dim)

    def blocks(self, block_rows: int, start: int = 0, stop: int | None = None) -> Iterator[NDArray[np.float32]]:
        """See RowTable. Raises ReadError for a file that is too short."""
        end = self.num_rows if stop is None else stop
        with self.path.open("rb", buffering=0) as file:
            file.seek(start * 4 * self.dim)
            for first, last in row_ranges(end - start, block_rows):
                values = np.empty((last - first, self.dim), np.float32)
                if _read_into(file, values) < values.nbytes:
                    raise ReadError(f"{self.path}: ends before row {start + last}; run the command again")
                yield values

    def is_complete(self) -> bool:
        """Return whether all rows are durable."""
        return self._exists() and all((self.done / self._mark(*each)).exists() for each in self._ranges())

    def write(self, maker: RowMaker, tools: TaskTools, progress: Progress, stage: str, *, processes: int = 1) -> None:
        """Write the ranges that are missing. progress: receives the stage, rows done, and all rows.

        processes: processes of the executor that share them.
        """
        if not self._exists():
            self._forget(tools)  # marks of a file that no longer exists
            create_allocated(self.path, self.num_bytes, tools.injector)
        ranges = self._ranges()
        missing = [each for each in ranges if not (self.done / self._mark(*each)).exists()]
        num_missing = sum(end - first for first, end in missing)
        done = SharedProgress(progress, stage, self.num_rows - num_missing, self.num_rows)
        done.add(0)
        if not missing:
            return
        shares = [missing[first::processes] for first in range(min(processes, len(missing)))]
        job = _RangesJob(self, maker, shares, replace(tools, executor=None))
        run_job(job, self.done, replace(tools, count=done.add), threads=len(shares), here=1)

    def drop(self, tools: TaskTools) -> None:
        """Remove the table, if it exists: marks first, which are invalid without it."""
        self._forget(tools)
        if self.path.exists():
            announce(tools.injector, "rename", self.path)
            self.path.unlink()

    def _exists(self) -> bool:
        return self.path.exists() and self.path.stat().st_size == self.num_bytes

    def _ranges(self) -> Sequence[tuple[int, int]]:
        return list(row_ranges(self.num_rows, self.range_rows))

    def _mark(self, first: int, end: int) -> str:
        return f"{self.name}.rows-{first}-{end}"

    def _forget(self, tools: TaskTools) -> None:
        marks = sorted(self.done.glob(f"{self.name}.rows-*"))
        for mark in marks:
            announce(tools.injector, "rename", mark)
            mark.unlink()
        if marks:
            sync_directory(self.done, tools.injector)


@dataclass(frozen=True, slots=True, eq=False)
class _RangesJob:
    """Ranges of a table: a part has those of one process, which opens the maker once (see Job)."""

    file: RowFile
    maker: RowMaker
    shares: Sequence[Sequence[tuple[int, int]]]
    tools: TaskTools

    @property
    def num_parts(self) -> int:
        """See Job."""
        return len(self.shares)

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """Make the ranges of a part durable (see Job); counts rows."""
        file = self.file
        with self.maker.open(self.tools.engine) as make:
            for first, end in self.shares[number]:
                task = _RangeTask(file._mark(first, end), file.path, 4 * file.dim, first, end, make)
                if (file.done / task.name).exists():  # by a process that was taken for dead
                    count(end - first)
                else:
                    run_tasks([task], file.done, self.tools, threads=1, count=count)

    def for_workers(self, _share: Share) -> partial[_RangesJob]:
        """See jobs.py."""
        return partial(_open_again, self.file, self.maker, self.shares, self.tools.engine)


def _open_again(
    file: RowFile, maker: RowMaker, shares: Sequence[Sequence[tuple[int, int]]], engine: Engine
) -> _RangesJob:
    return _RangesJob(file, maker, shares, TaskTools(engine, writer=writer_name()))


@dataclass(frozen=True, slots=True)
class _RangeTask:
    """Writes the rows of a range into the file of the table; its own output marks them as done."""

    name: str
    table_path: Path
    row_bytes: int
    first: int
    end: int
    make: MakeRows

    def write(self, path: Path, tools: TaskTools) -> None:
        """Write the rows, then the mark (see Task); counts rows."""

        def append(rows: NDArray[np.float32]) -> None:
            assert rows.nbytes == len(rows) * self.row_bytes, "rows have the table's width"
            writer.append(rows.reshape(-1).view(np.uint8))
            tools.count(len(rows))

        with (
            syncing(self.table_path, tools.injector),
            SequentialWriter(
                self.table_path,
                tools.engine,
                tools.pool,
                buffer_bytes=_PART_BYTES,
                offset=self.first * self.row_bytes,
            ) as writer,
        ):
            self.make(self.first, self.end, append)
            writer.finish()
        path.touch()


def _read_into(file: Any, values: NDArray[np.float32]) -> int:
    """Fill an array from a file. Returns the bytes read, fewer at the end of the file."""
    content = values.reshape(-1).view(np.uint8).data
    done = 0
    while done < len(content) and (count := file.readinto(content[done:])):
        done += count
    return done

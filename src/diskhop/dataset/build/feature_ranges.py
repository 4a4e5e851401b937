"""Large feature tables, written in ranges by tasks: what was on the disk before a crash is not converted again.

The table is one file in a stage of the work folder, with room for all rows from the start. A *range* is so many of its
bytes. A task converts the rows that lie in its range, wholly or in part (a row on the border is converted twice), and
its output is the checksums of the range's blocks, of which those of the file are made in the end.

Crash-safe by order: the table's name and length are on the disk before the first task, and what a task wrote into the
table before its output has a name. So where there is an output, its range is there. The dataset gets the table under a
second name: whatever happens until the dataset is complete, the stage still has it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.build.checks import encoded_rows, require_count
from diskhop.dataset.build.files import WRITER_BYTES
from diskhop.io.atomic import allocate, announce, destination_errors, remove_tree, sync_directory, sync_file, syncing
from diskhop.io.checksums import BlockHasher, FileSums, digest_bytes, num_blocks
from diskhop.io.streams import SequentialWriter
from diskhop.runtime.blocks import row_ranges, threads_that_fit
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools, WorkFolder, run_tasks

# Large beside what a task's fsyncs take, small beside what a crash should cost. A multiple of 1 MiB, as blocks are.
RANGE_BYTES = 256 << 20
# Stages are called so, and then as the type of the nodes.
STAGE = "features-"
FEATURES = "features"
_TABLE_NAME = ".table"  # no task made it alone
_WORK_FORMAT = 1
# What a column gives at once, at least a row; and what converting takes for each value, beside this block and the next.
_READ_BYTES = 4 << 20
_CONVERTING_BYTES_PER_VALUE = 16


class Values(Protocol):
    """Rows of values, read front to back."""

    @property
    def identity(self) -> str:
        """Text that differs wherever a value does, as far as files that change have another time or length."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the blocks."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows first."""

    def blocks(self) -> Iterator[NDArray[Any]]:
        """A few MiB of consecutive rows at a time."""


@runtime_checkable
class Seekable(Protocol):
    """What values have that can be read from any row on as easily as from the first, by several threads at once."""

    def blocks_from(self, first_row: int) -> Iterator[NDArray[Any]]:
        """Blocks of the rows from one on, to the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What the bytes of a table are. origin: for errors."""

    num_rows: int
    dim: int
    dtype: str
    row_stride: int
    origin: str

    @property
    def num_bytes(self) -> int:
        """All of it."""
        return self.num_rows * self.row_stride



class FeatureRanges:
    """The stage of one table."""

    def __init__(
        self,
        values: Values,
        table: Table,
        node_type: str,
        work: WorkFolder,
        tools: TaskTools,
        range_bytes: int = RANGE_BYTES,
    ) -> None:
        self._values = values
        self._range_bytes = range_bytes
        self._table = table
        self._tools = tools
        stage = f"{STAGE}{node_type}"
        facts = {**asdict(table), "origin": "", "range_bytes": range_bytes, "format": _WORK_FORMAT}
        key = json.dumps({**facts, "values": values.identity}, indent=1)
        self._folder = work.stage(stage, key)
        self.path = self._folder / _TABLE_NAME
        if not self._has_table():
            remove_tree(self._folder, tools.injector)  # outputs mean nothing without it
            work.stage(stage, key)
            self._make_table()

    def write(self, budget: Budget, threads: int, progress: Progress) -> FileSums:
        """Write what is not written yet; then the table is on the disk. Returns its sums.

        Raises SourceError for the first value that breaks a rule, and where there are more or fewer rows.
        """
        seeks = isinstance(self._values, Seekable)
        # One stream for all tasks, one after the other: each would have to read from the front.
        stream = None if seeks else _Reader(self._values, self._table)
        tasks = [
            _RangeTask(f"range-{number:05}", self._table, self._values, stream, self.path, begin, end)
            for number, (begin, end) in enumerate(row_ranges(self._table.num_bytes, self._range_bytes))
        ]
        missing = [task for task in tasks if self._read_output(task) is None]
        for task in missing:
            (self._folder / task.name).unlink(missing_ok=True)
        # What the first thread holds is the builder's, who writes nothing else meanwhile.
        most = max(1, min(threads, len(missing))) if seeks else 1
        threads = threads_that_fit(most, budget.available_bytes, lambda fewer: (fewer - 1) * self._thread_bytes)
        with budget.reserve(FEATURES, (threads - 1) * self._thread_bytes):
            run_tasks(tasks, self._folder, self._tools, threads=threads, progress=partial(progress, FEATURES))
        outputs = [output for task in tasks if (output := self._read_output(task)) is not None]
        assert len(outputs) == len(tasks), "run_tasks makes all outputs"
        return FileSums(self._table.num_bytes, np.concatenate(outputs))

    @property
    def _thread_bytes(self) -> int:
        item_bytes = self._values.dtype.itemsize
        values_at_once = max(_READ_BYTES // item_bytes, self._table.dim)
        return WRITER_BYTES + values_at_once * (2 * item_bytes + _CONVERTING_BYTES_PER_VALUE)

    def _has_table(self) -> bool:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return False
        # One that a dataset has, too, was finished: it is nobody's to write to.
        return status.st_size == self._table.num_bytes and status.st_nlink == 1

    def _make_table(self) -> None:
        injector = self._tools.injector
        with destination_errors(self.path):
            try:
                announce(injector, "write", self.path)
                self.path.touch()
                allocate(self.path, 0, self._table.num_bytes)
                sync_file(self.path, injector)
            except BaseException:
                with contextlib.suppress(OSError):
                    announce(injector, "rename", self.path)
                    self.path.unlink()
                raise
            sync_directory(self._folder, injector)

    def _read_output(self, task: _RangeTask) -> NDArray[np.uint64] | None:
        """The checksums of a range's blocks; None where they are not there, or are damaged."""
        try:
            content = np.fromfile(self._folder / task.name, np.uint8)
        except FileNotFoundError:
            return None
        sums = content[:-8]
        if len(content) != 8 * (task.num_blocks + 1) or digest_bytes(sums) != content[-8:].view("<u8")[0]:
            return None
        return sums.view("<u8").astype(np.uint64)


class _Reader:
    """Reads rows in ascending order. Asked for rows before those it stands at, it starts again."""

    def __init__(self, values: Values, table: Table) -> None:
        self._values = values
        self._table = table
        self._blocks: Iterator[NDArray[Any]] | None = None
        self._block = np.empty(0)
        self._first_row = 0  # of the block

    def take(self, first: int, stop: int) -> Iterator[NDArray[Any]]:
        """Rows first to stop - 1 in blocks; the last of all rows are followed by a look at whether there are more."""
        if self._blocks is None or first < self._first_row:
            self._open(first)
        while first < stop:
            if first < self._first_row + len(self._block):
                rows = self._block[first - self._first_row : stop - self._first_row]
                first += len(rows)
                yield rows
            elif not self._advance():
                break
        if stop == self._table.num_rows:
            while self._advance():
                pass
        if stop == self._table.num_rows or first < stop:
            require_count(self._first_row, self._table.num_rows, "feature rows", self._table.origin)

    def _open(self, first: int) -> None:
        self._block = np.empty(0)
        if isinstance(self._values, Seekable):
            self._first_row, self._blocks = first, self._values.blocks_from(first)
        else:
            self._first_row, self._blocks = 0, self._values.blocks()

    def _advance(self) -> bool:
        """Go to the next block, or to the end of all."""
        assert self._blocks is not None
        self._first_row += len(self._block)
        block = next(self._blocks, None)
        self._block = np.empty(0) if block is None else block
        return block is not None


@dataclass(frozen=True, slots=True, eq=False)
class _RangeTask:
    """Writes bytes begin to end - 1 of a table. stream: shared with tasks that come before and after."""

    name: str
    table: Table
    values: Values
    stream: _Reader | None
    path: Path
    begin: int
    end: int

    @property
    def num_blocks(self) -> int:
        """Of the range."""
        return num_blocks(self.end - self.begin)

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task."""
        hasher = BlockHasher()
        with (
            syncing(self.path, tools.injector),
            SequentialWriter(self.path, tools.engine, tools.pool, offset=self.begin) as writer,
        ):
            for content in self._contents():
                hasher.update(content)
                writer.append(content)
            writer.finish()
        sums = hasher.finish().blocks.astype("<u8").view(np.uint8)
        path.write_bytes(sums.tobytes() + digest_bytes(sums).to_bytes(8, "little"))

    def _contents(self) -> Iterator[NDArray[np.uint8]]:
        stride = self.table.row_stride
        first_row, stop_row = self.begin // stride, -(-self.end // stride)
        reader = self.stream or _Reader(self.values, self.table)
        rows = reader.take(first_row, stop_row)
        place = first_row * stride
        for block in encoded_rows(rows, self.table.dtype, stride, self.table.origin, first_row):
            content = block.reshape(-1)
            yield content[max(0, self.begin - place) : self.end - place]
            place += len(content)

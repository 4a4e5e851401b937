"""Large feature tables, written in ranges by tasks: ranges that are on disk before a crash are not converted again.

The table is one file in a stage of the work folder, fully allocated from the start. A *range* is a fixed number of its
bytes. A task converts the rows that overlap its range (rows at a border are converted twice). Its output is the block
checksums of the range, from which those of the file are assembled.

The order makes this crash-safe: the table's name and length are durable before the first task, and a range before the
output of its task gets a name. So if an output exists, its range does too. The dataset gets the table as a hard link,
so that the stage keeps it until the dataset is complete.
"""

from __future__ import annotations

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
from diskhop.io.atomic import create_allocated, remove_tree, syncing
from diskhop.io.checksums import BlockHasher, FileSums, digest_bytes, num_blocks
from diskhop.io.streams import SequentialWriter
from diskhop.runtime.blocks import row_ranges, threads_that_fit
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools, WorkFolder, run_tasks

# Large compared to the cost of a task's fsyncs, small compared to the loss in a crash. A multiple of the block, 1 MiB.
RANGE_BYTES = 256 << 20
# Prefix of stage names, followed by the node type.
STAGE = "features-"
FEATURES = "features"
_TABLE_NAME = ".table"  # not the output of a task
_WORK_FORMAT = 1
# Block of a column, at least a row; and the memory of converting a value, besides this block and the next.
_READ_BYTES = 4 << 20
_CONVERTING_BYTES_PER_VALUE = 16


class Values(Protocol):
    """Rows of values, read from front to back."""

    @property
    def identity(self) -> str:
        """Text that differs if any value differs; files are identified by time and length."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the blocks."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, rows first."""

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield blocks of a few MiB of consecutive rows."""


@runtime_checkable
class Seekable(Protocol):
    """The additional interface of values with random access, by several threads at once."""

    def blocks_from(self, first_row: int) -> Iterator[NDArray[Any]]:
        """Yield blocks of the rows from first_row to the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of encoded rows.

    num_rows: number of rows.
    dim: values per row.
    dtype: dtype of the format.
    row_stride: bytes from row to row.
    origin: name of the source in errors.
    """

    num_rows: int
    dim: int
    dtype: str
    row_stride: int
    origin: str

    @property
    def num_bytes(self) -> int:
        """Bytes of the table."""
        return self.num_rows * self.row_stride


class FeatureRanges:
    """The stage of one table, written in ranges of range_bytes."""

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
            remove_tree(self._folder, tools.injector)  # outputs are invalid without the table
            work.stage(stage, key)
            create_allocated(self.path, table.num_bytes, tools.injector)

    def write(self, budget: Budget, threads: int, progress: Progress) -> FileSums:
        """Write the missing ranges; the table is then durable. Returns its checksums.

        Raises SourceError for the first invalid value, and for a wrong number of rows.
        """
        seeks = isinstance(self._values, Seekable)
        # One stream for all tasks in sequence: otherwise each task would read from the front.
        stream = None if seeks else _Reader(self._values, self._table)
        tasks = [
            _RangeTask(f"range-{number:05}", self._table, self._values, stream, self.path, begin, end)
            for number, (begin, end) in enumerate(row_ranges(self._table.num_bytes, self._range_bytes))
        ]
        missing = [task for task in tasks if self._read_output(task) is None]
        for task in missing:
            (self._folder / task.name).unlink(missing_ok=True)
        # The first thread uses the memory of the builder, which writes nothing else at the same time.
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
        # A table that a dataset links to is finished and must not be written to.
        return status.st_size == self._table.num_bytes and status.st_nlink == 1

    def _read_output(self, task: _RangeTask) -> NDArray[np.uint64] | None:
        """Read the block checksums of a range; None if they are missing or damaged."""
        try:
            content = np.fromfile(self._folder / task.name, np.uint8)
        except FileNotFoundError:
            return None
        sums = content[:-8]
        if len(content) != 8 * (task.num_blocks + 1) or digest_bytes(sums) != content[-8:].view("<u8")[0]:
            return None
        return sums.view("<u8").astype(np.uint64)


class _Reader:
    """Reads rows in ascending order; starts again for rows before the current block."""

    def __init__(self, values: Values, table: Table) -> None:
        self._values = values
        self._table = table
        self._blocks: Iterator[NDArray[Any]] | None = None
        self._block = np.empty(0)
        self._first_row = 0  # of the current block

    def take(self, first: int, stop: int) -> Iterator[NDArray[Any]]:
        """Yield rows first to stop - 1 in blocks; after the last row of the table, checks that there are no more."""
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
        """Read the next block. Returns False at the end."""
        assert self._blocks is not None
        self._first_row += len(self._block)
        block = next(self._blocks, None)
        self._block = np.empty(0) if block is None else block
        return block is not None


@dataclass(frozen=True, slots=True, eq=False)
class _RangeTask:
    """Writes one range of a table.

    name: name of the output.
    table: the table.
    values: values to encode.
    stream: reader that all tasks share in sequence; None to read independently.
    path: file of the table.
    begin: first byte of the range.
    end: last byte of the range + 1.
    """

    name: str
    table: Table
    values: Values
    stream: _Reader | None
    path: Path
    begin: int
    end: int

    @property
    def num_blocks(self) -> int:
        """Blocks of the range."""
        return num_blocks(self.end - self.begin)

    def write(self, path: Path, tools: TaskTools) -> None:
        """Write the range, then its checksums (see Task)."""
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

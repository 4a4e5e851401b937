"""Rows of renumbered nodes, brought into the new order: in memory if the table fits, else through the disk.

On disk, rows are read once in their old order and *partitioned*: each *part* is a range of the new order that fits into
memory. Then each part is read back, reordered and passed on. The table is thus written and read once more.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File
from diskhop.budget import Budget
from diskhop.errors import BudgetError, WriteError
from diskhop.io.atomic import destination_errors, require_free_space
from diskhop.io.streams import in_pieces
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.progress import Progress, tracked
from diskhop.runtime.tasks import TaskTools, WorkFolder, run_tasks
from diskhop.system.memory import buffer_bytes

Blocks = Iterable[NDArray[np.uint8]]

_PAGE_BYTES = 4096
_BLOCK_BYTES = 4 << 20
_MOST_BUFFER_BYTES = 1 << 20
# Buffers that are being written.
_SPARE_BUFFERS = 8
# Two blocks in memory, each in the old order and sorted by part.
_BLOCKS_BYTES = 4 * _BLOCK_BYTES
# Per row of a part: the original id, its rank, and the memory of sorting.
_BYTES_PER_ROW = 32
_ROWS_FILE = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """How a table is divided into parts.

    num_rows: rows of the table.
    row_bytes: bytes per row.
    part_rows: rows per part; part i has new rows [i * part_rows, (i + 1) * part_rows), at i * region_bytes of the file.
    buffer_bytes: size of the write buffer of a part.
    """

    num_rows: int
    row_bytes: int
    part_rows: int
    buffer_bytes: int

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return -(-self.num_rows // self.part_rows)

    @property
    def region_bytes(self) -> int:
        """Bytes of a part in the file."""
        return -(-self.part_rows * self.row_bytes // _PAGE_BYTES) * _PAGE_BYTES

    @property
    def partitioning_bytes(self) -> int:
        """Memory while rows are partitioned."""
        return _BLOCKS_BYTES + (self.num_parts + _SPARE_BUFFERS) * buffer_bytes(self.buffer_bytes)

    @property
    def reordering_bytes(self) -> int:
        """Memory while a part is reordered."""
        return _BLOCKS_BYTES + buffer_bytes(self.region_bytes) + self.part_rows * _BYTES_PER_ROW


def plan_move(num_rows: int, row_bytes: int, memory_bytes: int) -> MovePlan:
    """Choose the fewest parts that memory allows, then the largest buffers. BudgetError names the smallest memory."""
    least_bytes = 0
    num_parts = 1
    while True:
        part_rows = -(-num_rows // num_parts)
        plan = MovePlan(num_rows=num_rows, row_bytes=row_bytes, part_rows=part_rows, buffer_bytes=_PAGE_BYTES)
        needed_bytes = max(plan.partitioning_bytes, plan.reordering_bytes)
        if needed_bytes <= memory_bytes:
            break
        least_bytes = min(least_bytes or needed_bytes, needed_bytes)
        if part_rows == 1 or plan.partitioning_bytes >= plan.reordering_bytes:  # more parts need even more memory
            raise BudgetError(f"moving rows takes {least_bytes} bytes", least_bytes)
        num_parts += max(1, num_parts // 4)
    while plan.buffer_bytes < _MOST_BUFFER_BYTES:
        larger = MovePlan(
            num_rows=num_rows, row_bytes=row_bytes, part_rows=part_rows, buffer_bytes=2 * plan.buffer_bytes
        )
        if larger.partitioning_bytes > memory_bytes:
            break
        plan = larger
    return plan


class RowMover:
    """Reorders rows by new_ids[original id]; memory is reserved while the rows are iterated.

    original_ids is the inverse of new_ids. The caller has reserved both.
    """

    def __init__(
        self,
        new_ids: NDArray[Any],
        original_ids: NDArray[Any],
        *,
        work: WorkFolder,
        budget: Budget,
        tools: TaskTools,
        progress: Progress,
    ) -> None:
        self._new_ids = new_ids
        self._original_ids = original_ids
        self._work = work
        self._budget = budget
        self._tools = tools
        self._progress = progress

    def move(
        self, blocks: Callable[[], Blocks], row_bytes: int, *, stage: str, key: str
    ) -> Iterator[NDArray[np.uint8]]:
        """Yield blocks of rows (any, row_bytes) in their new order; blocks() yields them in their old order.

        stage: stage of the work folder. key: text that differs if any row or the order differs.

        Raises BudgetError, and DestinationError if the disk is too small.
        """
        num_rows = len(self._new_ids)
        table_bytes = num_rows * row_bytes
        if self._fits(table_bytes):
            with self._budget.reserve("moving rows", _BLOCKS_BYTES + table_bytes):
                yield from self._move_in_memory(blocks(), row_bytes, stage)
            return
        try:
            plan = plan_move(num_rows, row_bytes, self._budget.available_bytes)
        except BudgetError as error:
            self._budget.require({"moving rows": error.smallest_bytes or 0})
            raise
        folder = self._work.stage(stage, f"{key}\n{plan}")
        if not (folder / _ROWS_FILE).exists():
            require_free_space(folder, 2 * table_bytes)
        with self._budget.reserve("moving rows", plan.partitioning_bytes):
            task = _PartitionTask(
                _ROWS_FILE, plan, self._new_ids, blocks, partial(self._progress, f"{stage}: partitioning")
            )
            run_tasks([task], folder, self._tools, threads=1)
        with self._budget.reserve("moving rows", plan.reordering_bytes):
            rows = _read_parts(folder / _ROWS_FILE, plan, self._original_ids, self._tools.engine)
            yield from tracked(rows, self._progress, f"{stage}: reordering", num_rows)

    def _fits(self, table_bytes: int) -> bool:
        return _BLOCKS_BYTES + table_bytes <= self._budget.available_bytes

    def _move_in_memory(self, blocks: Blocks, row_bytes: int, stage: str) -> Iterator[NDArray[np.uint8]]:
        num_rows = len(self._new_ids)
        table = np.empty((num_rows, row_bytes), np.uint8)
        first = 0
        for block in tracked(blocks, self._progress, stage, num_rows):
            table[self._new_ids[first : first + len(block)]] = block
            first += len(block)
        assert first == num_rows, "every node has a row"
        for start, stop in row_ranges(num_rows, max(1, _BLOCK_BYTES // row_bytes)):
            yield table[start:stop]


@dataclass(frozen=True, slots=True, eq=False)
class _PartitionTask:
    """Writes the rows of each part to its region of the file, in their old order."""

    name: str
    plan: MovePlan
    new_ids: NDArray[Any]
    blocks: Callable[[], Blocks]
    progress: Callable[[int, int], None]

    def write(self, path: Path, tools: TaskTools) -> None:
        """Partition all rows (see Task)."""
        first = 0
        with _Regions(path, self.plan, tools.engine) as regions:
            for block in self.blocks():
                parts = self.new_ids[first : first + len(block)] // self.plan.part_rows
                sorted_rows = block[np.argsort(parts, kind="stable")]
                counts = np.bincount(parts, minlength=self.plan.num_parts)
                ends = np.cumsum(counts)
                for part in np.flatnonzero(counts):
                    regions.append(int(part), sorted_rows[ends[part] - counts[part] : ends[part]].reshape(-1))
                first += len(block)
                self.progress(first, self.plan.num_rows)
            assert first == self.plan.num_rows, "every node has a row"
            regions.finish()


class _Regions:
    """Regions of a file to append to, in whole pages; the context waits for writes in flight."""

    def __init__(self, path: Path, plan: MovePlan, engine: Engine) -> None:
        self._path = path
        self._engine = engine
        self._region_bytes = plan.region_bytes
        with destination_errors(path):
            self._file = File(str(path), "write")
        pool = BufferPool(0)
        self._buffers = [pool.take(plan.buffer_bytes) for _ in range(plan.num_parts)]
        self._filled = [0] * plan.num_parts
        self._written = [0] * plan.num_parts
        self._spare = [pool.take(plan.buffer_bytes) for _ in range(_SPARE_BUFFERS)]
        self._writing: deque[tuple[int, NDArray[np.uint8]]] = deque()

    def append(self, part: int, content: NDArray[np.uint8]) -> None:
        """Append bytes to a part; they are copied before this returns."""
        taken = 0
        while taken < len(content):
            buffer, filled = self._buffers[part], self._filled[part]
            piece = content[taken : taken + len(buffer) - filled]
            buffer[filled : filled + len(piece)] = piece
            self._filled[part] = filled + len(piece)
            taken += len(piece)
            if self._filled[part] == len(buffer):
                self._write(part)

    def finish(self) -> None:
        """Write the remaining bytes and wait for all writes."""
        for part, filled in enumerate(self._filled):
            if filled:
                end = -(-filled // _PAGE_BYTES) * _PAGE_BYTES
                self._buffers[part][filled:end] = 0
                self._filled[part] = end
                self._write(part)
        while self._writing:
            self._wait()

    def __enter__(self) -> _Regions:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The engine may still read from the buffers: keep them until it is done.
        while self._writing:
            with contextlib.suppress(OSError, WriteError):
                self._wait()
        # A traceback may keep this object alive; release the descriptor and the memory anyway.
        del self._file, self._buffers, self._spare

    def _write(self, part: int) -> None:
        if not self._spare:
            self._wait()
        buffer, num_bytes = self._buffers[part], self._filled[part]
        offset = np.array([part * self._region_bytes + self._written[part]], np.uint64)
        place, length = np.zeros(1, np.uint64), np.array([num_bytes], np.uint64)
        with destination_errors(self._path):
            ticket = self._engine.submit_write(self._file, offset, length, buffer, place)
        self._writing.append((ticket, buffer))
        self._buffers[part] = self._spare.pop()
        self._filled[part] = 0
        self._written[part] += num_bytes

    def _wait(self) -> None:
        ticket, buffer = self._writing.popleft()
        with destination_errors(self._path):
            self._engine.wait(ticket)
        self._spare.append(buffer)


def _read_parts(path: Path, plan: MovePlan, original_ids: NDArray[Any], engine: Engine) -> Iterator[NDArray[np.uint8]]:
    file = File(str(path), "read")
    region = BufferPool(0).take(plan.region_bytes)
    for first, stop in row_ranges(plan.num_rows, plan.part_rows):
        num_bytes = (stop - first) * plan.row_bytes
        places, lengths = in_pieces(-(-num_bytes // _PAGE_BYTES) * _PAGE_BYTES)
        offset = np.uint64(first // plan.part_rows * plan.region_bytes)
        engine.wait(engine.submit_read(file, places + offset, lengths, region, places, lengths))
        rows = region[:num_bytes].reshape(-1, plan.row_bytes)
        # The rows of a part are in their old order, by original id.
        ranks = np.empty(stop - first, np.int64)
        ranks[np.argsort(original_ids[first:stop])] = np.arange(stop - first)
        for start, end in row_ranges(len(rows), max(1, _BLOCK_BYTES // plan.row_bytes)):
            yield rows[ranks[start:end]]

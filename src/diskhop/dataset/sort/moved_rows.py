"""Rows of nodes that were renumbered: brought into the new order in memory where they fit, else by way of the disk.

By way of the disk they are read once, in their old order, and *dealt* to parts, ranges of the new order that memory
holds; then each part is read back, put in order and passed on: the table is written and read once more.
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
# Buffers on their way to the disk.
_SPARE_BUFFERS = 8
# What the two blocks in hand take: as they come, and by part.
_BLOCKS_BYTES = 4 * _BLOCK_BYTES
# Of a part's rows: the original id, its rank, and what sorting takes.
_BYTES_PER_ROW = 32
_DEALT = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """Part i has new rows [i * part_rows, (i + 1) * part_rows), at i * region_bytes of the file."""

    num_rows: int
    row_bytes: int
    part_rows: int
    buffer_bytes: int

    @property
    def num_parts(self) -> int:
        """How many parts there are."""
        return -(-self.num_rows // self.part_rows)

    @property
    def region_bytes(self) -> int:
        """What a part takes in the file."""
        return -(-self.part_rows * self.row_bytes // _PAGE_BYTES) * _PAGE_BYTES

    @property
    def dealing_bytes(self) -> int:
        """What is held while rows are dealt."""
        return _BLOCKS_BYTES + (self.num_parts + _SPARE_BUFFERS) * buffer_bytes(self.buffer_bytes)

    @property
    def reading_bytes(self) -> int:
        """What is held while a part is put in order."""
        return _BLOCKS_BYTES + buffer_bytes(self.region_bytes) + self.part_rows * _BYTES_PER_ROW


def plan_deal(num_rows: int, row_bytes: int, memory_bytes: int) -> MovePlan:
    """As few parts as memory allows, then as large buffers. Raises BudgetError with the smallest that would do."""
    least_bytes = 0
    num_parts = 1
    while True:
        part_rows = -(-num_rows // num_parts)
        deal = MovePlan(num_rows=num_rows, row_bytes=row_bytes, part_rows=part_rows, buffer_bytes=_PAGE_BYTES)
        needed_bytes = max(deal.dealing_bytes, deal.reading_bytes)
        if needed_bytes <= memory_bytes:
            break
        least_bytes = min(least_bytes or needed_bytes, needed_bytes)
        if part_rows == 1 or deal.dealing_bytes >= deal.reading_bytes:  # more parts only take more
            raise BudgetError(f"moving rows takes {least_bytes} bytes", least_bytes)
        num_parts += max(1, num_parts // 4)
    while deal.buffer_bytes < _MOST_BUFFER_BYTES:
        larger = MovePlan(
            num_rows=num_rows, row_bytes=row_bytes, part_rows=part_rows, buffer_bytes=2 * deal.buffer_bytes
        )
        if larger.dealing_bytes > memory_bytes:
            break
        deal = larger
    return deal


class RowMover:
    """Brings rows into the order of new_ids; what that takes is reserved while rows are passed on.

    new_ids[original id]: the row's place; original_ids: the same the other way round. The caller has reserved both.
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
        """Rows (any, row_bytes) in their new order, of blocks that give all rows in their old one.

        key: text that differs wherever a row or the order does; it names earlier work in the stage.

        Raises BudgetError, and DestinationError where the disk is too small.
        """
        num_rows = len(self._new_ids)
        table_bytes = num_rows * row_bytes
        if self._fits(table_bytes):
            with self._budget.reserve("moving rows", _BLOCKS_BYTES + table_bytes):
                yield from self._move_in_memory(blocks(), row_bytes, stage)
            return
        try:
            deal = plan_deal(num_rows, row_bytes, self._budget.available_bytes)
        except BudgetError as error:
            self._budget.require({"moving rows": error.smallest_bytes or 0})
            raise
        folder = self._work.stage(stage, f"{key}\n{deal}")
        if not (folder / _DEALT).exists():
            require_free_space(folder, 2 * table_bytes)
        with self._budget.reserve("moving rows", deal.dealing_bytes):
            task = _DealTask(_DEALT, deal, self._new_ids, blocks, partial(self._progress, f"{stage}: dealing"))
            run_tasks([task], folder, self._tools, threads=1)
        with self._budget.reserve("moving rows", deal.reading_bytes):
            rows = _read_parts(folder / _DEALT, deal, self._original_ids, self._tools.engine)
            yield from tracked(rows, self._progress, f"{stage}: in order", num_rows)

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
class _DealTask:
    """Writes the rows of each part, in their old order, to the part's region."""

    name: str
    deal: MovePlan
    new_ids: NDArray[Any]
    blocks: Callable[[], Blocks]
    progress: Callable[[int, int], None]

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task."""
        first = 0
        with _Regions(path, self.deal, tools.engine) as regions:
            for block in self.blocks():
                parts = self.new_ids[first : first + len(block)] // self.deal.part_rows
                dealt = block[np.argsort(parts, kind="stable")]
                counts = np.bincount(parts, minlength=self.deal.num_parts)
                ends = np.cumsum(counts)
                for part in np.flatnonzero(counts):
                    regions.append(int(part), dealt[ends[part] - counts[part] : ends[part]].reshape(-1))
                first += len(block)
                self.progress(first, self.deal.num_rows)
            assert first == self.deal.num_rows, "every node has a row"
            regions.finish()


class _Regions:
    """Bytes appended to each of the regions of a file, in whole pages; a context that waits for what is on its way."""

    def __init__(self, path: Path, deal: MovePlan, engine: Engine) -> None:
        self._path = path
        self._engine = engine
        self._region_bytes = deal.region_bytes
        with destination_errors(path):
            self._file = File(str(path), "write")
        pool = BufferPool(0)
        self._buffers = [pool.take(deal.buffer_bytes) for _ in range(deal.num_parts)]
        self._filled = [0] * deal.num_parts
        self._written = [0] * deal.num_parts
        self._spare = [pool.take(deal.buffer_bytes) for _ in range(_SPARE_BUFFERS)]
        self._writing: deque[tuple[int, NDArray[np.uint8]]] = deque()

    def append(self, part: int, content: NDArray[np.uint8]) -> None:
        """Add bytes to the end of a part; they are copied before this returns."""
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
        """Write the rest, and wait for everything."""
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
        # The engine may still read from the buffers: they must not go before it is done with them.
        while self._writing:
            with contextlib.suppress(OSError, WriteError):
                self._wait()
        # An error's traceback may keep this object alive: not so the descriptor and the memory.
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


def _read_parts(path: Path, deal: MovePlan, original_ids: NDArray[Any], engine: Engine) -> Iterator[NDArray[np.uint8]]:
    file = File(str(path), "read")
    region = BufferPool(0).take(deal.region_bytes)
    for first, stop in row_ranges(deal.num_rows, deal.part_rows):
        num_bytes = (stop - first) * deal.row_bytes
        places, lengths = in_pieces(-(-num_bytes // _PAGE_BYTES) * _PAGE_BYTES)
        offset = np.uint64(first // deal.part_rows * deal.region_bytes)
        engine.wait(engine.submit_read(file, places + offset, lengths, region, places, lengths))
        rows = region[:num_bytes].reshape(-1, deal.row_bytes)
        # They lie in their old order: the one whose original id is least comes first.
        ranks = np.empty(stop - first, np.int64)
        ranks[np.argsort(original_ids[first:stop])] = np.arange(stop - first)
        for start, end in row_ranges(len(rows), max(1, _BLOCK_BYTES // deal.row_bytes)):
            yield rows[ranks[start:end]]

"""Tables between layers, in a folder of their own each while they are made, and the last ones as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine
from diskhop.hops.make.work_tables import Part, WorkTables
from diskhop.hops.stream.parts import BandReader, Bands, BandShape, BandWriter
from diskhop.hops.tables import TILE_ROWS
from diskhop.predicting.streamed.layout import Layout
from diskhop.predicting.streamed.spare_files import cut_file
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.tasks import TaskTools, WorkFolder

# Rows are made in ranges; a crash costs at most one. Small ones cost a tenth: streams begin again in each.
RANGE_BYTES = 2 << 30
_FILE = "rows"
OpenWriters = Callable[[Bands], Sequence[BandWriter]]
Write = Callable[[Sequence[BandWriter]], None]


class LayerTable:
    """A table of bands under construction. The context waits for writes; bands that are missing are made again.

    range_bytes: bytes of a range, roughly.
    """

    def __init__(
        self, name: str, shape: BandShape, work: WorkFolder, key: str, tools: TaskTools, range_bytes: int = RANGE_BYTES
    ) -> None:
        folder, done = work.stage(name, key), work.stage(f"{name}-done", key)
        self._tables = WorkTables(folder, done, shape, tools, may_be_longer=True)
        self._injector = tools.injector
        self._range_bytes = range_bytes
        self.shape = shape

    def __enter__(self) -> LayerTable:
        self._tables.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._tables.__exit__(None, None, None)

    @property
    def is_complete(self) -> bool:
        """Whether all of it is on disk."""
        return self._tables.is_complete(_FILE)

    @property
    def file_bytes(self) -> int:
        """Bytes of the file, 0 if there is none."""
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def path(self) -> Path:
        """The file, which need not exist."""
        return self._tables.path(_FILE)

    def drain(self) -> None:
        """Wait until no writer's memory is in use."""
        self._tables.drain()

    def settle(self) -> None:
        """Wait until all written parts are on disk."""
        self._tables.settle()

    def release(self) -> Path | None:
        """Forget the table; return its file, if there is one."""
        return self._tables.release(_FILE)

    def cut(self) -> None:
        """Cut the file to the table's size, if it is larger."""
        if self.path.exists():
            cut_file(self.path, self.shape.num_bytes, self._injector)

    def begin(self, spare: Path | None) -> None:
        """Create the file, unless it exists, in place of one that has no other use."""
        self._tables.begin(_FILE, spare)

    def bands(self, first: int, end: int) -> Bands:
        """Return some bands, to be read."""
        return Bands(self.path, self.shape, first, end)

    @property
    def done(self) -> Path:
        """Folder with a file for each finished part."""
        return self._tables.done

    @property
    def range_groups(self) -> int:
        """Groups of a range."""
        return max(1, self._range_bytes // self.shape.group_bytes)

    def missing_ranges(self, first_band: int, end_band: int, most_groups: int) -> list[tuple[int, int]]:
        """Return (first row, last row + 1) of ranges of up to some groups, in which some bands are missing."""
        missing, shape = self._tables.missing_groups(_FILE, first_band, end_band), self.shape
        ranges = []
        for start, end in row_ranges(shape.num_groups, most_groups):
            inside = missing[(missing >= start) & (missing < end)]
            if len(inside):
                ranges.append((int(inside[0]) * TILE_ROWS, min((int(inside[-1]) + 1) * TILE_ROWS, shape.num_rows)))
        return ranges

    def missing_bands(self) -> list[int]:
        """Return the bands that are missing, of a table that is made band by band."""
        return self._tables.missing_columns(_FILE)

    def write(
        self, first_band: int, end_band: int, rows: tuple[int, int], open_writers: OpenWriters, write: Write
    ) -> None:
        """Write some bands of one of missing_ranges(); the last writes end in the background (see drain())."""
        start, stop = rows
        part = Part(first_band, end_band, start // TILE_ROWS, -(-stop // TILE_ROWS))
        writing = ExitStack()

        def make(_path: object) -> int:
            writers = open_writers(self.bands(first_band, end_band))
            write([writing.enter_context(writer) for writer in writers])
            return 0  # unused: the table is removed again, without a checksum

        self._tables.write(_FILE, part, make, writing)


class GroupRows:
    """A group of a finished table as rows (see RowTable). Takes moving_bytes()."""

    def __init__(
        self, table: LayerTable, layout: Layout, name: str, part_rows: int, engine: Engine, threads: int
    ) -> None:
        self._bands = table.bands(*layout.bands([name]))
        self._layout = layout
        self._name = name
        self._part_rows = part_rows
        self._engine = engine
        self._threads = threads
        self.dim = layout.dim(name)

    @property
    def num_rows(self) -> int:
        """See RowTable."""
        return self._bands.shape.num_rows

    def blocks(self, block_rows: int, start: int = 0, stop: int | None = None) -> Iterator[NDArray[np.float32]]:
        """See RowTable."""
        end = self.num_rows if stop is None else stop
        reader = BandReader(self._bands, self._part_rows, self._engine, BufferPool(0))
        block = np.empty((block_rows, self.dim), np.float32)
        filled = 0
        first = start // self._part_rows * self._part_rows
        for part in reader.parts(range(first, end, self._part_rows), end):
            columns = self._layout.columns(part, [self._name], self._threads, self._bands.first)
            skipped, num_rows = max(0, start - first), len(part[0])
            first += self._part_rows
            while skipped < num_rows:
                taken = min(block_rows - filled, num_rows - skipped)
                into = torch.from_numpy(block[filled : filled + taken])
                columns.of(slice(skipped, skipped + taken)).copy_to(into)
                filled, skipped = filled + taken, skipped + taken
                if filled == block_rows:
                    yield block
                    filled = 0
        if filled:
            yield block[:filled]

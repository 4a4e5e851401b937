"""Sizes of computing a hop model on all nodes, known before there are hop tables: rows at a time, memory, processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from diskhop.hops.read.placement import loader_bytes
from diskhop.hops.tables import TableShape
from diskhop.predicting.row_files import WRITING_BYTES, RowFile

WRITING = "writing rows"
# Rows of all tables that a thread computes at a time: products round by their shapes, so that the number of rows
# depends on the widths alone.
_BLOCK_BYTES = 1 << 20
_MOST_ROWS, _LEAST_ROWS = 4096, 64
# Blocks of a batch for each thread: all are done before the next batch, and the last one seldom waits alone.
_BLOCKS_PER_THREAD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HopWork:
    """A hop model's work on one machine.

    shape: layout of the tables, which have a row for every node.
    num_tables: number of tables that the model reads.
    dim: values per row of its outputs.
    threads: threads of all processes of the machine.
    most_processes: number of these processes, some of which may have no rows to compute.
    """

    shape: TableShape
    num_tables: int
    dim: int
    threads: int
    most_processes: int

    @property
    def processes(self) -> int:
        """Processes of the machine that have rows to compute; memory and threads are divided among them."""
        return max(1, min(self.most_processes, self.table(Path(), Path()).num_ranges))

    @property
    def threads_per_process(self) -> int:
        """Threads of each process."""
        return max(1, self.threads // self.processes)

    @property
    def block_rows(self) -> int:
        """Rows that a thread computes at a time."""
        row_bytes = self.num_tables * self.shape.row_bytes
        return min(_MOST_ROWS, max(_LEAST_ROWS, 1 << (max(1, _BLOCK_BYTES // row_bytes).bit_length() - 1)))

    @property
    def batch_rows(self) -> int:
        """Rows that a process reads at a time, in whole blocks."""
        return _BLOCKS_PER_THREAD * self.threads_per_process * self.block_rows

    @property
    def held(self) -> dict[str, int]:
        """Memory of one process by name, in bytes."""
        return {WRITING: WRITING_BYTES, **loader_bytes(self.shape, self.num_tables, self.batch_rows, "disk")}

    @property
    def held_by_all(self) -> dict[str, int]:
        """Memory of all processes of the machine by name, in bytes."""
        return {name: self.processes * num_bytes for name, num_bytes in self.held.items()}

    @property
    def rows_bytes(self) -> int:
        """Bytes of the outputs on disk."""
        return self.table(Path(), Path()).num_bytes

    def table(self, folder: Path, done: Path) -> RowFile:
        """Return the table of the outputs. folder, done: see RowFile."""
        return RowFile("rows", folder, done, self.shape.num_rows, self.dim)

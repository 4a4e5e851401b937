"""Making of tables within a plan: memory, disk space of earlier tables, processes, progress and times of steps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from diskhop._native import BufferPool
from diskhop.budget import Budget
from diskhop.derived.scratch import free_bytes
from diskhop.planning.passes_plan import PassesPlan
from diskhop.predicting.streamed.rows_job import RowsJob, Steps, StepT, write_range
from diskhop.predicting.streamed.spare_files import SpareFiles
from diskhop.predicting.streamed.tables import LayerTable
from diskhop.runtime.progress import Progress, SharedProgress
from diskhop.runtime.tasks import TaskTools, run_job

# Ranges of a step for each process: in hot order the first rows have most edges, and whoever is free takes the next.
_RANGES_PER_PROCESS = 8


@dataclass(slots=True, eq=False, kw_only=True)
class TableWork:
    """Writes tables in steps.

    plan: sizes and memory of each process.
    tables: all tables that may have files.
    tools, budget, progress: as usual.
    spares: disk space of tables that are no longer needed.
    processes: processes that share ranges of rows; 1 for this one only.
    steps: name, seconds and passes over the lists of each finished step, as in result.json.
    """

    plan: PassesPlan
    tables: Sequence[LayerTable]
    tools: TaskTools
    budget: Budget
    progress: Progress
    spares: SpareFiles
    processes: int = 1
    steps: list[dict[str, Any]] = field(default_factory=list)
    _pool: BufferPool = field(init=False)

    @contextmanager
    def step(self, name: str, num_passes: int) -> Iterator[None]:
        """Reserve the plan's memory, and note how long a step took."""
        started = time.perf_counter()
        # Buffers take memory from the system once per step.
        self._pool = BufferPool(self.plan.pool_bytes)
        with ExitStack() as stack:
            for what, num_bytes in self.plan.reserved.items():
                stack.enter_context(self.budget.reserve(what, self.plan.num_processes * num_bytes))
            yield
            for table in self.tables:
                table.drain()
        self.steps.append({"step": name, "seconds": time.perf_counter() - started, "passes": num_passes})

    def write(self, steps: Steps[StepT], step: StepT, stage: str, *, stays: bool = False) -> None:
        """Write the missing rows of a step, here or in other processes.

        stage: what progress is reported as. stays: whether only this process can.
        """
        output = steps.output(step)
        table, first, end = output.table, output.first_band, output.end_band
        num_rows, num_bands = table.shape.num_rows, table.shape.num_tiles
        ranges = table.missing_ranges(first, end, self._range_groups(table, end - first))
        if not ranges:
            return
        missing_rows = sum(stop - start for start, stop in ranges)
        # Of a step for each band, or one for all.
        before, total = first // (end - first) * num_rows, num_bands // (end - first) * num_rows
        done = SharedProgress(self.progress, stage, before + num_rows - missing_rows, total)
        if self.processes == 1 or stays:
            write = steps.open(step)
            # The last rows became durable meanwhile. If they could not, nothing is made of them.
            for written in self.tables:
                written.settle()
            self._begin(table)
            for each in ranges:
                write_range(steps, step, write, each, self._pool, done.add)
            return
        self._begin(table)
        table.settle()
        tools = replace(self.tools, count=done.add)
        run_job(RowsJob(steps, step, ranges), table.done, tools, threads=min(self.processes, len(ranges)), here=1)

    def drop(self, table: LayerTable) -> None:
        """Leave the disk space of a table that is no longer needed to the next tables."""
        path = table.release()
        if path is None:
            return
        self.spares.add(path)
        if self.processes > 1:  # one that is taken for dead may still write to the file
            self.spares.shrink_to(0)

    def _range_groups(self, table: LayerTable, num_bands: int) -> int:
        """Return the groups of a range. Streams begin again in each, so one process writes a band in a single one."""
        num_groups = table.shape.num_groups
        most = table.range_groups if num_bands == table.shape.num_tiles else num_groups
        if self.processes == 1:
            return most
        return min(most, -(-num_groups // (self.processes * _RANGES_PER_PROCESS)))

    def _begin(self, table: LayerTable) -> None:
        """Create a table in the disk space of earlier ones, within the plan's."""
        if table.file_bytes:
            return
        num_bytes, spares = table.shape.num_bytes, self.spares
        left_bytes = self.plan.work_bytes - (sum(each.file_bytes for each in self.tables) - spares.num_bytes)
        spare = spares.take(num_bytes)
        spare_bytes = 0 if spare is None else spare.stat().st_size
        left_bytes -= max(num_bytes, spare_bytes)
        lacking_bytes = num_bytes - spare_bytes - free_bytes(table.path)
        spares.shrink_to(min(left_bytes, spares.num_bytes - max(0, lacking_bytes)))
        if left_bytes < 0:  # tables that lie in larger files
            for each in self.tables:
                each.cut()
        table.begin(spare)

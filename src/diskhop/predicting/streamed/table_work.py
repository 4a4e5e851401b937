"""Making of tables by workers, within a plan: memory, disk space of earlier tables, progress and times of steps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from diskhop._native import BufferPool, Engine
from diskhop.budget import Budget
from diskhop.derived.scratch import free_bytes
from diskhop.planning.passes_plan import PassesPlan
from diskhop.predicting.streamed.spare_files import SpareFiles
from diskhop.predicting.streamed.tables import LayerTable
from diskhop.predicting.streamed.workers import Workers, WriteRows
from diskhop.runtime.progress import Progress, SharedProgress


@dataclass(slots=True, eq=False, kw_only=True)
class TableWork:
    """Writes tables in steps.

    plan: sizes and memory.
    tables: all tables that may have files.
    engine, budget, progress: as usual.
    spares: disk space of tables that are no longer needed.
    steps: name, seconds and passes over the lists of each finished step, as in result.json.
    """

    plan: PassesPlan
    tables: Sequence[LayerTable]
    engine: Engine
    budget: Budget
    progress: Progress
    spares: SpareFiles
    steps: list[dict[str, Any]] = field(default_factory=list)
    _pool: BufferPool = field(init=False)

    @contextmanager
    def step(self, name: str, num_passes: int) -> Iterator[None]:
        """Reserve the plan's memory, and note how long a step took."""
        started = time.perf_counter()
        self._pool = BufferPool(self.plan.pool_bytes)
        with ExitStack() as stack:
            for what, num_bytes in self.plan.reserved.items():
                stack.enter_context(self.budget.reserve(what, num_bytes))
            yield
        self.steps.append({"step": name, "seconds": time.perf_counter() - started, "passes": num_passes})

    def write_band(
        self, table: LayerTable, band: int, stage: str, write: WriteRows, *, has_padding: bool = True
    ) -> None:
        """Write all rows of a band. has_padding: see BandWriter."""
        num_rows, num_bands = table.shape.num_rows, table.shape.num_tiles
        workers = self._workers(self.plan.summed_rows)
        done = SharedProgress(self.progress, stage, band * num_rows, num_bands * num_rows)
        self._begin(table)
        open_writers = partial(workers.open, has_padding=has_padding)
        table.write_band(band, open_writers, lambda writers: workers.write(write, 0, num_rows, writers, done.add))

    def write_table(self, table: LayerTable, stage: str, write: WriteRows) -> None:
        """Write the missing rows of a table."""
        workers = self._workers(self.plan.part_rows)
        self._begin(table)
        for start, stop in table.missing_ranges():
            done = SharedProgress(self.progress, stage, start, table.shape.num_rows)
            write_range = partial(workers.write, write, start, stop, on_rows=done.add)
            table.write_rows(start, stop, workers.open, write_range)

    def drop(self, table: LayerTable) -> None:
        """Leave the disk space of a table that is no longer needed to the next tables."""
        path = table.release()
        if path is not None:
            self.spares.add(path)

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

    def _workers(self, part_rows: int) -> Workers:
        """Return workers, whose buffers take memory from the system once per step."""
        plan = self.plan
        return Workers(
            count=plan.workers,
            threads=plan.threads_per_worker,
            part_rows=part_rows,
            engine=self.engine,
            pool=self._pool,
        )

"""Rows of tables, made step by step: ranges of a step's rows are parts of a job that any process can run.

A step loads what all of its rows need, such as a block of columns, and takes all memory and threads of its process. So
one part runs at a time in each, and the next part of the same step finds what is loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

import torch

from diskhop._native import BufferPool, Engine
from diskhop.nn.reproducible import reproducible
from diskhop.planning.passes_plan import PassesPlan
from diskhop.predicting.streamed.tables import LayerTable
from diskhop.predicting.streamed.workers import Workers, WriteRows

StepT = TypeVar("StepT")
StepOf = TypeVar("StepOf", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Output:
    """Bands that a step writes.

    table: their table.
    first_band: first band.
    end_band: last band + 1.
    part_rows: rows of a part.
    has_padding: see BandWriter.
    """

    table: LayerTable
    first_band: int
    end_band: int
    part_rows: int
    has_padding: bool = True


class Steps(Protocol[StepOf]):
    """The steps that make tables, in a process that has opened them."""

    @property
    def plan(self) -> PassesPlan:
        """Sizes, memory and threads of one process."""

    @property
    def engine(self) -> Engine:
        """I/O engine of this process."""

    def output(self, step: StepOf) -> Output:
        """Return what a step writes."""

    def open(self, step: StepOf) -> WriteRows:
        """Load what all rows of a step need; return the function that writes a worker's share of them."""


def write_range(
    steps: Steps[StepT],
    step: StepT,
    write: WriteRows,
    rows: tuple[int, int],
    pool: BufferPool,
    on_rows: Callable[[int], None],
) -> None:
    """Write a range of a step's rows; it becomes durable in the background. write: see Steps.open()."""
    plan, output = steps.plan, steps.output(step)
    workers = Workers(
        count=plan.workers,
        threads=plan.threads_per_worker,
        part_rows=output.part_rows,
        engine=steps.engine,
        pool=pool,
    )
    open_writers = partial(workers.open, has_padding=output.has_padding)
    write_rows = partial(workers.write, write, *rows, on_rows=on_rows)
    output.table.write(output.first_band, output.end_band, rows, open_writers, write_rows)


@dataclass(slots=True, eq=False)
class RowsJob(Generic[StepT]):
    """The missing ranges of a step (see Job). The table exists."""

    steps: Steps[StepT]
    step: StepT
    ranges: Sequence[tuple[int, int]]
    _write: WriteRows | None = field(default=None, init=False)

    @property
    def num_parts(self) -> int:
        """See Job."""
        return len(self.ranges)

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """Make a range durable (see Job); counts rows."""
        plan, lock = self.steps.plan, threading.Lock()

        def count_rows(num_rows: int) -> None:
            with lock:  # any worker calls it
                count(num_rows)

        with reproducible(plan.threads), torch.no_grad():
            if self._write is None:
                self._write = self.steps.open(self.step)
            pool = BufferPool(plan.pool_bytes)
            write_range(self.steps, self.step, self._write, self.ranges[number], pool, count_rows)
        self.steps.output(self.step).table.settle()

"""Sizes of parts, workers and steps, which every plan of passes over neighbour lists has."""

from __future__ import annotations

from dataclasses import dataclass, field

from diskhop.plans import PlannedSteps, RunPlan, StepPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PassesPlan(PlannedSteps, RunPlan):
    """Sizes of work that makes tables of all nodes, part by part.

    part_rows: rows of a part that is read, computed and written together.
    summed_rows: rows of a part whose sums are written.
    workers: parts that are computed at the same time, each with as many of the threads as the others; or one more than
        there are threads.
    product_rows: rows per product.
    stretch_edges: edges that are read together.
    pool_bytes: memory of readers and writers that may be kept for the next pass of a step, next to any block.
    steps: the work, in order.
    work_bytes: largest disk space of the tables.
    result_bytes: disk space of the tables that stay.
    """

    part_rows: int
    summed_rows: int
    workers: int
    product_rows: int
    stretch_edges: int
    pool_bytes: int = 0
    steps: tuple[StepPlan, ...] = field(default_factory=tuple)
    work_bytes: int = 0
    result_bytes: int = 0

    @property
    def threads_per_worker(self) -> int:
        """Threads of each worker."""
        return max(1, self.threads // self.workers)

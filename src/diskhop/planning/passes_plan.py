"""Sizes of parts, workers and steps, which every plan of passes over neighbour lists has, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from diskhop.disk.model import DiskModel
from diskhop.planning.options import describe_division
from diskhop.planning.predict_costs import StepCost
from diskhop.plans import PlannedSteps, Prediction, RunPlan, StepPlan


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
    def division(self) -> str:
        """How processes of a machine divide its memory, in one line; "" for one process."""
        if self.num_processes == 1:
            return ""
        return describe_division(self.reserved, self.shared, self.num_processes)

    @property
    def threads_per_worker(self) -> int:
        """Threads of each worker."""
        return max(1, self.threads // self.workers)


PlanT = TypeVar("PlanT", bound=PassesPlan)


def with_costs(plan: PlanT, costs: Sequence[StepCost], disk: DiskModel) -> PlanT:
    """Return a plan with its steps, and with their predicted time and I/O."""
    plan = replace(plan, steps=tuple(cost.planned(disk) for cost in costs))
    cores_seconds = sum(cost.total_core_seconds for cost in costs)
    predicted = Prediction(
        epoch_seconds=plan.seconds,
        io_seconds=disk.sequential_seconds(plan.bytes_read, plan.bytes_written),
        cores_seconds=cores_seconds,
        compute_seconds=cores_seconds,
        bytes_read=plan.bytes_read,
        bytes_written=plan.bytes_written,
        disk_bytes=plan.work_bytes,
    )
    return replace(plan, predicted=predicted)

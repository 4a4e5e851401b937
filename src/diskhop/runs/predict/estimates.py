"""Plans of a model's outputs in one form, whichever way they are computed: steps, seconds, disk space and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import DiskModel
from diskhop.errors import BudgetError
from diskhop.hops.find import find_hop_tables
from diskhop.hops.make.prepare import plan_tables
from diskhop.hops.spec import PropagationSpec
from diskhop.planning.options import describe_division
from diskhop.planning.passes_plan import PassesPlan
from diskhop.plans import PlannedSteps, StepPlan
from diskhop.predicting.batched.layer_tables import LayerPlans
from diskhop.predicting.hop_work import HopWork


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPlan(PlannedSteps):
    """How a model's outputs for all nodes are computed.

    steps: the work, in order.
    work_bytes: disk space of the tables between layers at most.
    result_bytes: disk space of the tables that stay until predictions are written.
    reserved: memory of the largest step by name, in bytes, as one process has it.
    reasons: why it was chosen, one line each.
    num_processes: processes of this machine that share the rows of the layers.
    shared: names of the reserved data of which they have one copy; the rest is there once per process.
    """

    steps: tuple[StepPlan, ...]
    work_bytes: int
    result_bytes: int
    reserved: Mapping[str, int]
    reasons: tuple[str, ...]
    num_processes: int = 1
    shared: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        totals = {"seconds": self.seconds, "bytes_read": self.bytes_read, "bytes_written": self.bytes_written}
        return {**asdict(self), **totals}


def plan_of_passes(plan: PassesPlan) -> OutputPlan:
    """Return the plan of layers whose lists are streamed."""
    return OutputPlan(
        steps=plan.steps,
        work_bytes=plan.work_bytes,
        result_bytes=plan.result_bytes,
        reserved=plan.reserved,
        reasons=(*plan.reasons, plan.division) if plan.division else plan.reasons,
        num_processes=plan.num_processes,
        shared=plan.shared,
    )


def plan_of_layers(layers: LayerPlans, processes: int) -> OutputPlan:
    """Return the plan of layers in sampled batches. processes: of this machine, which share its memory."""
    steps, reasons = list(layers.first), []
    for name, plan in layers.plans.items():
        predicted = plan.predicted
        assert predicted is not None, "plans of the planner have predictions"
        steps.append(
            StepPlan(
                name=name,
                bytes_read=predicted.bytes_read,
                bytes_written=predicted.bytes_written + layers.table_bytes[name],
                seconds=predicted.run_seconds(1),
            )
        )
        reasons.append(f"{name[0].upper()}{name[1:]}: batches, rows of neighbours by the store '{plan.store}'")
    largest = max((plan.reserved for plan in layers.plans.values()), key=lambda each: sum(each.values()), default={})
    return OutputPlan(
        steps=tuple(steps),
        work_bytes=layers.work_bytes,
        result_bytes=layers.result_bytes,
        reserved=largest,
        reasons=(*reasons, *_division(largest, processes)),
        num_processes=processes,
    )


def plan_hops(
    dataset: Dataset, spec: PropagationSpec, work: HopWork, budget: Budget, *, scratch: str | None, disk: DiskModel
) -> OutputPlan:
    """Plan hop tables of all nodes, unless they exist, and one pass of the model over them.

    work: the pass. scratch: folder of the tables; None: DATASET/derived. Raises ConfigError; BudgetError with the
    smallest budget that works for both.
    """
    tables = find_hop_tables(dataset, spec, None if scratch is None else Path(scratch), budget)
    if tables is not None:
        budget.require(work.held_by_all)
        return OutputPlan(
            steps=(_model_step(work, tables.num_bytes, disk),),
            work_bytes=work.rows_bytes,
            result_bytes=work.rows_bytes,
            reserved=work.held,
            reasons=(f"Hop tables: {tables.path}, which exist", *_division(work.held, work.processes)),
            num_processes=work.processes,
        )
    try:
        task, plan = plan_tables(dataset, spec, budget, threads=work.threads, disk=disk, processes=work.most_processes)
    except BudgetError as error:
        if (error.smallest_bytes or 0) < sum(work.held_by_all.values()):
            budget.require(work.held_by_all)
        raise
    budget.require(work.held_by_all)
    reserved, processes = dict(plan.reserved), work.most_processes
    if sum(work.held_by_all.values()) > processes * sum(reserved.values()):
        reserved, processes = work.held, work.processes
    return OutputPlan(
        steps=(*plan.steps, _model_step(work, task.result_bytes, disk)),
        work_bytes=max(plan.work_bytes, plan.result_bytes + work.rows_bytes),
        result_bytes=work.rows_bytes,
        reserved=reserved,
        reasons=(f"Hop tables: {plan}", *_division(reserved, processes)),
        num_processes=processes,
    )


def _model_step(work: HopWork, tables_bytes: int, disk: DiskModel) -> StepPlan:
    """Return the pass of a model over hop tables."""
    return StepPlan(
        name="model",
        bytes_read=tables_bytes,
        bytes_written=work.rows_bytes,
        seconds=disk.sequential_seconds(tables_bytes, work.rows_bytes),
    )


def _division(reserved: Mapping[str, int], processes: int) -> tuple[str, ...]:
    """Say in one line how processes of a machine divide its memory; () for one process."""
    return () if processes == 1 else (describe_division(reserved, (), processes),)

"""Predicting what a prediction takes, without computing anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskhop.budget import Budget, format_bytes, parse_sizes
from diskhop.config.options import check_options, require
from diskhop.config.predict import PredictConfig
from diskhop.dataset.dataset import Dataset
from diskhop.display import Display, Facts, Grid, Part, Row
from diskhop.io.engine import open_engine
from diskhop.planning.options import memory_rows
from diskhop.predicting.disk import ALL_FREE
from diskhop.runs.fitted_memory import FittedMemory
from diskhop.runs.nodes.opened import MODELS, open_classifier
from diskhop.runs.predict.estimates import OutputPlan
from diskhop.runs.predict.memory import fit_prediction
from diskhop.runs.predict.nodes import find_nodes
from diskhop.runs.predict.tables import OutputRun
from diskhop.runs.predict.wanted import outputs_of, sizes_of, wanted_of
from diskhop.runtime.executors import open_executor
from diskhop.runtime.tasks import TaskTools
from diskhop.system.memory import default_threads

STEP_COLUMNS = ["step", "seconds", "read", "written"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PredictionPlan(Display):
    """Time, disk space and memory of a prediction.

    model: name of the model.
    outputs: how the model's outputs are computed.
    rows: number of nodes that are written.
    files_bytes: bytes of the files of predictions, about.
    memory_bytes: the budget.
    fitted: what was predicted of the whole process; None where a named budget leaves ample room.
    """

    model: str
    outputs: OutputPlan
    rows: int
    files_bytes: int
    memory_bytes: int
    fitted: FittedMemory | None = None

    @property
    def disk_bytes(self) -> int:
        """Disk space during the work at most, the files included."""
        return max(self.outputs.work_bytes, self.outputs.result_bytes + self.files_bytes)

    def step_rows(self) -> list[list[str]]:
        """Return a table row per step, with the columns STEP_COLUMNS."""
        return [
            [each.name, f"{each.seconds:.3g} s", format_bytes(each.bytes_read), format_bytes(each.bytes_written)]
            for each in self.outputs.steps
        ]

    def facts(self) -> list[Row]:
        """Return names and texts of lines below the table."""
        outputs = self.outputs
        disk = f"{format_bytes(self.disk_bytes)} at most, {format_bytes(self.files_bytes)} of predictions"
        total = None if self.fitted is None else self.fitted.choice()
        return [
            ("model", f"{self.model}, {self.rows:,} nodes"),
            ("time", f"{outputs.seconds:.3g} s (before the files are written)"),
            ("I/O", f"{format_bytes(outputs.bytes_read)} read, {format_bytes(outputs.bytes_written)} written"),
            ("disk", disk),
            *memory_rows(outputs.reserved, outputs.shared, outputs.num_processes),
            *([] if total is None else [("total memory", f"{total.value}: {total.why}")]),
            *(("plan" if number == 0 else "", reason) for number, reason in enumerate(outputs.reasons)),
        ]

    def _title(self) -> str:
        return f"Plan of a prediction for {self.rows:,} nodes"

    def _parts(self) -> Sequence[Part]:
        return [Grid(STEP_COLUMNS, self.step_rows()), Facts(self.facts())]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "task": "predict",
            "model": self.model,
            **self.outputs.to_dict(),
            "rows": self.rows,
            "files_bytes": self.files_bytes,
            "disk_bytes": self.disk_bytes,
            "memory_bytes": self.memory_bytes,
            **({} if self.fitted is None else {"predicted_overhead_bytes": self.fitted.overhead.num_bytes}),
        }


def plan_prediction(
    run: Path | str,
    dataset: Dataset | Path | str | None = None,
    *,
    memory: int | str | None = None,
    total_memory: int | str | None = None,
    disk: int | str | None = None,
    processes: int = 1,
    **options: Any,
) -> PredictionPlan:
    """Plan predict_run() with the same arguments, without reading the graph or computing anything.

    processes: that predict together on this machine, and share memory and threads.

    Exact predictions are planned as if every node were a neighbour, since only a scan tells which are. Raises
    ConfigError, SchemaError; BudgetError with the smallest budget that works.
    """
    require(processes >= 1, "processes", "at least 1", processes, "for example --processes 2")
    options.update(parse_sizes(memory=memory, total_memory=total_memory, disk=disk))
    config = PredictConfig(**check_options(options, "predict", (PredictConfig,)))
    classifier = open_classifier(run, MODELS)
    opened = classifier.open_dataset(dataset)
    classifier.require_fit(opened)
    outputs = outputs_of(classifier, config)
    wanted = wanted_of(classifier, config, outputs)
    threads = config.threads or default_threads()
    needed = fit_prediction(classifier, config, opened, max(threads, processes), processes)
    budget = Budget(needed.budget_bytes)
    written = classifier.nodes_of(opened)
    nodes = find_nodes(classifier, written, config.nodes, budget)
    sizes = sizes_of(classifier, written, outputs, wanted, None if nodes is None else len(nodes))
    engine = open_engine(config.engine).engine
    # No process is started before there is a job.
    spread = open_executor("", processes, threads=threads, memory_bytes=budget.total_bytes, engine=engine)
    output_run = OutputRun(
        classifier=classifier,
        dataset=opened,
        budget=budget,
        space=ALL_FREE,
        threads=max(threads, processes),
        tools=TaskTools(engine, executor=spread),
        scratch=config.scratch or None,
        later=sizes.least_memory(config.format),
    )
    with needed.explained():
        output_run.require_memory(wanted)
        planned = output_run.plan(wanted)
    return PredictionPlan(
        model=classifier.config.model,
        outputs=planned,
        rows=sizes.count,
        files_bytes=sizes.disk_bytes(config.format),
        memory_bytes=budget.total_bytes,
        fitted=needed.fitted,
    )

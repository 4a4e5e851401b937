"""Predicting for the nodes of a dataset by a trained model: open, compare, compute, check, write, publish.

    predict_run("run", out="predictions", what=("class", "probability"), memory="2GB")

Everything that can be refused is refused before the heavy work. Finished work is kept next to the destination until
the predictions are published: the same call resumes, and its bytes are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from diskhop.budget import Budget, format_bytes, parse_sizes
from diskhop.config.options import check_options
from diskhop.config.predict import PredictConfig
from diskhop.dataset.dataset import Dataset
from diskhop.display import Display, Facts, Part, Row
from diskhop.errors import ConfigError, RequirementError
from diskhop.io.atomic import Injector
from diskhop.io.destinations import StagedDirectory
from diskhop.io.engine import open_engine
from diskhop.predicting.columns import Outputs, TableName
from diskhop.predicting.disk import DiskSpace
from diskhop.predicting.output import Predictions, predictions_folder, write_predictions
from diskhop.predicting.rows import RowTable
from diskhop.predicting.sizes import OutputSizes
from diskhop.protocols import NodeRows
from diskhop.run_files import LINK_RUN
from diskhop.runs.fitted_memory import WorkMemory
from diskhop.runs.nodes.measured import ALL, MeasuredParts, read_measured_parts
from diskhop.runs.nodes.metrics import METRICS, require_measurable
from diskhop.runs.nodes.opened import MODELS, OpenClassifier, open_classifier
from diskhop.runs.predict.memory import fit_prediction
from diskhop.runs.predict.nodes import find_nodes
from diskhop.runs.predict.require import Condition, parse_conditions
from diskhop.runs.predict.tables import OutputRun, OutputTables
from diskhop.runs.predict.wanted import Wanted, outputs_of, sizes_of, wanted_of
from diskhop.runs.rank_tasks import TaskPlace, in_ranks
from diskhop.runs.result import describe_run, measure_memory
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools, WorkFolder
from diskhop.runtime.work_tools import WorkTools
from diskhop.system.memory import default_threads, resident_bytes

_BLOCK_ROWS = 4096


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Predicted(Display):
    """Predictions that are published.

    predictions: the folder and its files.
    result: facts for people and machines, as `diskhop predict --json` prints them.
    """

    predictions: Predictions
    result: dict[str, Any]

    def rows(self) -> list[Row]:
        """Return names and texts of lines for people."""
        result = self.result
        num_files = len(result["files"])
        num_bytes = format_bytes(sum(result["files"].values()))
        return [
            ("predicted", f"{result['rows']:,} nodes of {result['dataset']}: {self.predictions.path}"),
            ("files", f"{num_files} file{'s' * (num_files != 1)}, {num_bytes}"),
            *((f"{part} metric", f"{value:.4f}") for part, value in result["metrics"].items()),
            *((step["step"], f"{step['seconds']:.1f} s") for step in result["steps"]),
            ("took", f"{result['seconds']:.1f} s, {format_bytes(result['peak_rss_bytes'])} at most in memory"),
        ]

    def _title(self) -> str:
        return f"Predictions by {self.result['run']}"

    def _parts(self) -> Sequence[Part]:
        return [Facts(self.rows())]


def predict_run(
    run: Path | str,
    dataset: Dataset | Path | str | None = None,
    *,
    out: Path | str,
    overwrite: bool = False,
    resume: bool = True,
    memory: int | str | None = None,
    total_memory: int | str | None = None,
    disk: int | str | None = None,
    executor: str = "",
    workers: int | None = None,
    progress: Progress = silent,
    on_plan: Callable[[str], None] = lambda _: None,
    injector: Injector | None = None,
    **options: Any,
) -> Predicted:
    """Predict for nodes by the best model of a run of train(), and publish the predictions in a new folder.

    dataset: by default the one that the run was trained on; another must fit it.
    out: the new folder. overwrite: replace predictions that are there.
    resume: reuse finished work of an interrupted call; otherwise remove it first.
    memory, total_memory, disk: bytes or a size such as '2GB', for the options memory_bytes, total_memory_bytes and
        disk_bytes.
    executor, workers: where tasks run, as --executor; see runtime/executors.py.
    on_plan: called with a line about the plan before the heavy work.
    options: those of PredictConfig.

    Processes that torchrun started share its tasks. Rank 0 alone prepares and publishes; all get the result.

    Raises ConfigError, SchemaError, BudgetError and DestinationError before the heavy work, PredictionError for values
    that are not finite, RequirementError where the metric is too low: then nothing is published.
    """
    options.update(parse_sizes(memory=memory, total_memory=total_memory, disk=disk))
    config = PredictConfig(**check_options(options, "predict", (PredictConfig,)))

    def predict(place: TaskPlace) -> Predicted:
        opened = open_classifier(run, MODELS)
        call = _Call(opened, config, Path(out), place, progress, on_plan, injector)
        return call.run(dataset, overwrite=overwrite, resume=resume)

    return in_ranks(predict, executor, workers)


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """One call of predict_run()."""

    classifier: OpenClassifier
    config: PredictConfig
    out: Path
    place: TaskPlace
    progress: Progress
    on_plan: Callable[[str], None]
    injector: Injector | None

    def run(self, given: Dataset | Path | str | None, *, overwrite: bool, resume: bool) -> Predicted:
        """Predict and publish."""
        dataset = self.classifier.open_dataset(given)
        self.classifier.require_fit(dataset)
        # A wrong --executor or --workers is refused before anything is measured.
        self.place.open(self._threads, 0, open_engine(self.config.engine).engine)
        memory = fit_prediction(self.classifier, self.config, dataset, self._threads, self.place.processes)
        with memory.explained():
            return self._run(dataset, memory, overwrite=overwrite, resume=resume)

    def _run(self, dataset: Dataset, memory: WorkMemory, *, overwrite: bool, resume: bool) -> Predicted:
        started, config = time.perf_counter(), self.config
        outputs = outputs_of(self.classifier, config)
        wanted = wanted_of(self.classifier, config, outputs)
        if config.require and self.classifier.kind == LINK_RUN:
            raise ConfigError("--require is for tasks on nodes; measure links by 'diskhop evaluate', and remove it")
        conditions = parse_conditions(config.require, self.classifier.config.metric)
        budget = Budget(memory.budget_bytes)
        written = self.classifier.nodes_of(dataset)
        nodes = find_nodes(self.classifier, written, config.nodes, budget)
        measured = self._measured(written, conditions, budget)
        before_bytes = resident_bytes("VmRSS")
        engine = open_engine(config.engine).engine
        spread = self.place.open(self._threads, budget.total_bytes, engine)
        with ExitStack() as stack:
            tools = TaskTools(engine, self.injector, executor=stack.enter_context(spread))
            for name, num_bytes in () if measured is None else measured.held.items():
                stack.enter_context(budget.reserve(name, num_bytes))
            staged = stack.enter_context(predictions_folder(self.out, overwrite=overwrite, injector=self.injector))
            work = stack.enter_context(WorkFolder(self.out, self.injector))
            # Files get their name in the destination by a link, so they are written next to it.
            table_work = work
            if config.scratch:
                table_work = stack.enter_context(WorkFolder(Path(config.scratch) / self.out.name, self.injector))
            for folder in {work, table_work} if not resume else ():
                folder.remove()
            sizes = sizes_of(self.classifier, written, outputs, wanted, None if nodes is None else len(nodes))
            run = self._output_run(dataset, budget, tools, sizes)
            run.require_memory(wanted)
            memory.describe(self.on_plan)
            # Files of finished layers are removed in the background until the tables are closed.
            with run.compute(wanted, table_work) as tables:
                found = self._require(conditions, measured, tables)
                facts = {
                    **describe_run(self.classifier.kind, dataset, self.classifier.config.model, config.seed),
                    "run": str(self.classifier.path),
                    "trained_on": self.classifier.dataset_hash,
                    "metrics": found,
                    "steps": list(tables.steps),
                    "seconds": time.perf_counter() - started,
                }
                predictions = self._write(staged, work, tools, run, wanted, outputs, tables, nodes, budget, facts)
            work.remove()
            table_work.remove()
        result = {
            **facts,
            "kind": "predict",
            "path": str(self.out),
            "rows": predictions.num_rows,
            "files": dict(predictions.files),
            "plan": tables.plan,
            "reserved": budget.table(),  # of all processes of this machine
            "seconds": time.perf_counter() - started,
            **measure_memory(before_bytes, budget),
            **memory.result(),
        }
        return Predicted(predictions, result)

    @property
    def _threads(self) -> int:
        return self.place.threads(self.config.threads or default_threads())

    def _output_run(self, dataset: Dataset, budget: Budget, tools: TaskTools, sizes: OutputSizes) -> OutputRun:
        config, files_bytes = self.config, sizes.disk_bytes(self.config.format)
        return OutputRun(
            classifier=self.classifier,
            dataset=dataset,
            budget=budget,
            space=DiskSpace(tables_bytes=config.disk_bytes, files_bytes=0 if config.scratch else files_bytes),
            threads=self._threads,
            tools=tools,
            scratch=config.scratch or None,
            later=sizes.least_memory(config.format),
            progress=self.progress,
            on_plan=self.on_plan,
        )

    def _measured(self, dataset: Dataset, conditions: Sequence[Condition], budget: Budget) -> MeasuredParts | None:
        """Read the labels that conditions need, before the heavy work; None without conditions. Raises ConfigError."""
        if not conditions:
            return None
        measured = read_measured_parts(self.classifier, dataset, None, budget)
        if ALL in measured.parts:
            raise ConfigError(
                f"{dataset.path}: has no split, and this run has not drawn one for it; remove --require, or import the "
                "graph again with a split"
            )
        for part in {each.part: None for each in conditions}:
            if part not in measured.parts:
                raise ConfigError(
                    f"{dataset.path}: has no labelled nodes in split '{part}', but in {', '.join(measured.parts)}; "
                    "name another part with --require, or remove it"
                )
            require_measurable(self.classifier.config.metric, measured.labels[measured.parts[part]], part)
        return measured

    def _require(
        self, conditions: Sequence[Condition], measured: MeasuredParts | None, tables: OutputTables
    ) -> dict[str, float]:
        """Measure the parts of conditions. Raises RequirementError for the first that does not hold."""
        if measured is None:
            return {}
        assert tables.logits is not None, "conditions need logits"
        name = self.classifier.config.metric
        parts = {each.part: NodeRows(np.sort(measured.parts[each.part])) for each in conditions}
        found = _measure(self.classifier, tables.logits, measured.labels, parts)
        for each in conditions:
            if not each.holds(found[each.part]):
                raise RequirementError(
                    f"{name} on {each.part} is {found[each.part]:.4f}, --require '{each}' does not hold; nothing was "
                    f"published in {self.out}"
                )
        return found

    def _write(
        self,
        staged: StagedDirectory,
        work: WorkFolder,
        tools: TaskTools,
        run: OutputRun,
        wanted: Wanted,
        outputs: Outputs,
        tables: OutputTables,
        nodes: NodeRows | None,
        budget: Budget,
        facts: Mapping[str, Any],
    ) -> Predictions:
        given: dict[TableName, RowTable] = {}
        if tables.logits is not None and outputs.needs("logits"):
            given["logits"] = tables.logits
        if tables.embedding is not None:
            given["embedding"] = tables.embedding
        with ExitStack() as held:
            return write_predictions(
                staged,
                self.classifier.nodes_of(run.dataset),
                outputs,
                given,
                WorkTools(work, tools, budget, run.threads, self.progress, held),
                key=run.key(wanted),
                nodes=nodes,
                format_name=self.config.format,
                facts=facts,
            )


def _measure(
    classifier: OpenClassifier, logits: RowTable, labels: Any, parts: Mapping[str, NodeRows]
) -> dict[str, float]:
    """Return the run's metric of each part. parts: rows, ascending."""
    metrics = {part: METRICS[classifier.config.metric].make() for part in parts}
    scaling = classifier.scaling
    first = 0
    for block in logits.blocks(_BLOCK_ROWS):
        for part, rows in parts.items():
            begin, end = np.searchsorted(rows, [first, first + len(block)])
            wanted = rows[begin:end]
            if len(wanted):
                outputs = block[wanted - first]
                metrics[part].update(outputs if scaling is None else scaling.restored(outputs), labels[wanted])
        first += len(block)
    return {part: metric.value() for part, metric in metrics.items()}

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

from diskhop.budget import Budget, parse_sizes
from diskhop.config.options import check_options
from diskhop.config.predict import PredictConfig
from diskhop.config.train import ALL_NEIGHBORS, HopConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, RequirementError
from diskhop.io.atomic import Injector, remove_tree
from diskhop.io.destinations import StagedDirectory
from diskhop.io.engine import open_engine
from diskhop.predict.columns import Outputs, TableName, default_words
from diskhop.predict.output import Predictions, predictions_folder, write_predictions
from diskhop.predict.rows import RowTable
from diskhop.protocols import NodeRows
from diskhop.runs.nodes.metrics import METRICS, require_measurable
from diskhop.runs.nodes.opened import OpenClassifier, open_classifier
from diskhop.runs.predict.nodes import find_nodes
from diskhop.runs.predict.require import Condition, parse_conditions
from diskhop.runs.predict.tables import OutputRun, OutputTables, Wanted
from diskhop.runs.result import describe_run, measure_memory
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools, WorkFolder
from diskhop.runtime.work_tools import WorkTools
from diskhop.system.memory import default_memory_bytes, default_threads, resident_bytes

_BLOCK_ROWS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """Predictions that are published.

    predictions: the folder and its files.
    result: facts for people and machines, as `diskhop predict --json` prints them.
    """

    predictions: Predictions
    result: dict[str, Any]


def predict_run(
    run: Path | str,
    dataset: Dataset | Path | str | None = None,
    *,
    out: Path | str,
    overwrite: bool = False,
    resume: bool = True,
    memory: int | str | None = None,
    disk: int | str | None = None,
    progress: Progress = silent,
    on_plan: Callable[[str], None] = lambda _: None,
    injector: Injector | None = None,
    **options: Any,
) -> Predicted:
    """Predict for nodes by the best model of a run of train(), and publish the predictions in a new folder.

    dataset: by default the one that the run was trained on; another must fit it.
    out: the new folder. overwrite: replace predictions that are there.
    resume: reuse finished work of an interrupted call; otherwise remove it first.
    memory, disk: bytes or a size such as '2GB', for the options memory_bytes and disk_bytes.
    on_plan: called with a line about the plan before the heavy work.
    options: those of PredictConfig.

    Raises ConfigError, SchemaError, BudgetError and DestinationError before the heavy work, PredictionError for values
    that are not finite, RequirementError where the metric is too low: then nothing is published.
    """
    options.update(parse_sizes(memory=memory, disk=disk))
    config = PredictConfig(**check_options(options, "predict", (PredictConfig,)))
    call = _Call(open_classifier(run), config, Path(out), progress, on_plan, injector)
    return call.run(dataset, overwrite=overwrite, resume=resume)


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """One call of predict_run()."""

    classifier: OpenClassifier
    config: PredictConfig
    out: Path
    progress: Progress
    on_plan: Callable[[str], None]
    injector: Injector | None

    def run(self, given: Dataset | Path | str | None, *, overwrite: bool, resume: bool) -> Predicted:
        """Predict and publish."""
        started, config = time.perf_counter(), self.config
        dataset = self.classifier.open_dataset(given)
        self.classifier.require_fit(dataset)
        outputs = self._outputs()
        wanted = self._wanted(outputs)
        conditions = parse_conditions(config.require)
        budget = Budget(config.memory_bytes or default_memory_bytes())
        nodes = find_nodes(dataset, config.nodes, self.classifier.config.split, budget)
        parts = {each.part: self._part(dataset, each, budget) for each in conditions}
        before_bytes = resident_bytes("VmRSS")
        tools = TaskTools(open_engine(config.engine).engine, self.injector)
        with ExitStack() as stack:
            staged = stack.enter_context(predictions_folder(self.out, overwrite=overwrite, injector=self.injector))
            work = stack.enter_context(WorkFolder(self._work_path(), self.injector))
            if not resume and work.path.exists():
                remove_tree(work.path, self.injector)
            run = OutputRun(
                classifier=self.classifier,
                dataset=dataset,
                budget=budget,
                threads=config.threads or default_threads(),
                tools=tools,
                scratch=config.scratch or None,
                progress=self.progress,
                on_plan=self.on_plan,
            )
            tables = stack.enter_context(run.compute(wanted, work))
            found = self._require(conditions, dataset, parts, tables, budget)
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
        result = {
            **facts,
            "kind": "predict",
            "path": str(self.out),
            "rows": predictions.num_rows,
            "files": dict(predictions.files),
            "plan": {**tables.plan, "reserved": budget.table()},
            "seconds": time.perf_counter() - started,
            **measure_memory(before_bytes, budget),
        }
        return Predicted(predictions, result)

    def _outputs(self) -> Outputs:
        are_tasks = self.classifier.schema.label_kind == "tasks"
        words = self.config.what or default_words(are_tasks)
        return Outputs(words=words, are_tasks=are_tasks, embedding_dtype=self.config.embedding_dtype)

    def _wanted(self, outputs: Outputs) -> Wanted:
        """Return what to compute. Raises ConfigError for a layer or a fan-out that the model does not have."""
        trained, config = self.classifier.config, self.config
        is_hop, layers = isinstance(trained, HopConfig), trained.layers
        layer = 0
        if outputs.needs("embedding"):
            layer = config.layer or max(1, layers - 1)
            if trained.model == "sgc":
                raise ConfigError("--what embedding needs a hidden layer, and sgc has none; use --what logits")
            if is_hop and config.layer:
                raise ConfigError(
                    f"--layer is for sage, gcn and gat; '{trained.model}' has one hidden layer: remove it"
                )
            if layer > layers:
                raise ConfigError(f"--layer must be from 1 to {layers}, the layers of the model, got {layer}")
        elif config.layer:
            raise ConfigError("--layer names the layer of embeddings; add --what embedding, or remove it")
        if config.fanout and is_hop:
            raise ConfigError(f"--fanout is for sage, gcn and gat; '{trained.model}' reads hop tables: remove it")
        if len(config.fanout) not in (0, 1, layers):
            raise ConfigError(
                f"--fanout must have one count for each of {layers} layers, got {len(config.fanout)}; "
                f"for example --fanout {','.join(['20'] * layers)}"
            )
        fanout = () if set(config.fanout) == {ALL_NEIGHBORS} else config.fanout
        logits = outputs.needs("logits") or bool(config.require)
        return Wanted(logits=logits, layer=layer, fanout=fanout, seed=config.seed)

    def _work_path(self) -> Path:
        return Path(self.config.scratch) / self.out.name if self.config.scratch else self.out

    def _part(self, dataset: Dataset, condition: Condition, budget: Budget) -> NodeRows:
        """Find the labelled nodes of a part, before the heavy work."""
        metric = self.classifier.config.metric
        rows = find_nodes(dataset, condition.part, self.classifier.config.split, budget)
        labels = dataset.label_rows()
        if rows is None or labels is None:
            raise ConfigError(f"{dataset.path}: has no labels, which --require needs; remove it")
        is_labelled = labels >= 0 if labels.ndim == 1 else ~np.isnan(labels).all(axis=1)
        labelled = NodeRows(rows[is_labelled[rows]])
        if len(labelled) == 0:
            raise ConfigError(f"{dataset.path}: no node of split '{condition.part}' has a label; remove --require")
        require_measurable(metric, labels[labelled], condition.part)
        return labelled

    def _require(
        self,
        conditions: Sequence[Condition],
        dataset: Dataset,
        parts: Mapping[str, NodeRows],
        tables: OutputTables,
        budget: Budget,
    ) -> dict[str, float]:
        """Measure the parts of conditions. Raises RequirementError for the first that does not hold."""
        if not conditions:
            return {}
        name = self.classifier.config.metric
        labels = dataset.label_rows()
        assert labels is not None, "conditions were checked"
        assert tables.logits is not None, "conditions need logits"
        with budget.reserve("labels", labels.nbytes):
            found = {part: _measure(name, tables.logits, labels, rows) for part, rows in parts.items()}
        for each in conditions:
            if found[each.part] < each.least:
                raise RequirementError(
                    f"{name} on {each.part} is {found[each.part]:.4f}, --require '{each.part}>={each.least:g}' does "
                    f"not hold; nothing was published in {self.out}"
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
                run.dataset,
                outputs,
                given,
                WorkTools(work, tools, budget, run.threads, self.progress, held),
                key=run.key(wanted),
                nodes=nodes,
                format_name=self.config.format,
                facts=facts,
            )


def _measure(name: str, logits: RowTable, labels: Any, rows: NodeRows) -> float:
    metric = METRICS[name]()
    first = 0
    for block in logits.blocks(_BLOCK_ROWS):
        begin, end = np.searchsorted(rows, [first, first + len(block)])
        wanted = rows[begin:end]
        if len(wanted):
            metric.update(block[wanted - first], labels[wanted])
        first += len(block)
    return metric.value()

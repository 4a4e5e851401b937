"""Training a node classifier: what is read, checked and planned before training.py trains it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from diskhop.budget import Budget
from diskhop.config.learning import PLATEAU
from diskhop.config.train import TrainConfig
from diskhop.config.typed import TypedConfig
from diskhop.config.typed_hop import TypedHopConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.pipeline.peers import shared_memory
from diskhop.predicting.scaling import Scaling
from diskhop.run_files import SCHEMA_FILE
from diskhop.runs.callbacks import Callback
from diskhop.runs.context import RunContext
from diskhop.runs.feeds import PreparedRun
from diskhop.runs.folder import ModelFolder, require_new_folder
from diskhop.runs.nodes.metrics import require_measurable, require_metric
from diskhop.runs.nodes.objective import make_objective, require_task
from diskhop.runs.nodes.task import NodeTask, read_task
from diskhop.runs.nodes.warm_start import WarmStart, open_warm_start
from diskhop.runs.schema import read_schema, schema_of
from diskhop.runs.shares import budget_of, prepare_in_turns, share_of, whole_of
from diskhop.runs.training import Trained, TrainingJob, run_job

Prepare = Callable[[Dataset, Any, NodeTask, Budget, Callback], PreparedRun]


def train_nodes(
    kind: str, prepare: Prepare, context: RunContext, config: TrainConfig, task: NodeTask | None = None
) -> Trained:
    """Train a model, keep the best by validation, test it, and write everything to the RUN folder, if there is one.

    kind: of the run, for its files. prepare: plans the run and makes what it needs. task: what read_task() returned for
    this configuration, if this process alone trains. Raises ConfigError or BudgetError before anything is written,
    TrainingError if the loss is not finite.
    """
    dataset, out = context.dataset, context.out
    labelled = dataset.of_node_type(config.target) if isinstance(config, TypedConfig | TypedHopConfig) else dataset
    require_task(config, labelled)
    require_metric(config.metric, config.task, labelled.num_classes)
    folder = ModelFolder(out, context.injector) if out is not None else None
    if out is not None and not context.resume:
        require_new_folder(out)
    warm_start = _open_warm_start(context, folder, config)
    whole, config = config, share_of(config, context.group.ranks)
    budget = budget_of(whole, context.group.ranks)
    task = task or read_task(
        labelled,
        split=config.split,
        evaluate=config.evaluate,
        memory_bytes=whole.memory_bytes,
        memory=shared_memory(budget),
    )
    read = task
    _require_measurable(task, config)
    prepared = prepare_in_turns(
        config, context.group, lambda each: prepare(dataset, each, read, budget, context.callback)
    )
    assert task.labels is not None, "there is no plan for a budget without room for labels"
    config = prepared.config
    scaling = context.group.first(lambda: _scaling_so_far(context, folder, warm_start))
    objective = make_objective(config, labelled, task, scaling, prepared.device)
    schema = schema_of(dataset, getattr(config, "features", ""), config.seed, getattr(config, "target", ""))
    schema = replace(schema, scaling=objective.scaling)
    job = TrainingJob(
        kind=kind,
        task=objective,
        prepared=prepared,
        config=whole_of(config, whole, context.group.ranks),
        schema=schema,
        has_valid=task.seeds.valid is not None,
        has_test=task.seeds.test is not None,
        held=task.held,
        resident=task.labels.nbytes + task.seeds.num_bytes,
        warm_start=warm_start,
    )
    return run_job(job, context, folder, budget)


def _open_warm_start(context: RunContext, folder: ModelFolder | None, config: TrainConfig) -> WarmStart | None:
    """Open the run to start from. A run with a checkpoint of its own does not need it any more."""
    has_begun = folder is not None and context.resume and folder.has_state
    return open_warm_start(context.dataset, config) if config.warm_start and not has_begun else None


def _scaling_so_far(context: RunContext, folder: ModelFolder | None, warm_start: WarmStart | None) -> Scaling | None:
    """Return the units of values that a resumed or warm-started model already has; None for a new model."""
    if warm_start is not None:
        return warm_start.run.schema.scaling
    if folder is None or not context.resume or not folder.has_state:
        return None
    path = folder.path / SCHEMA_FILE
    return read_schema(path).scaling if path.exists() else None


def _require_measurable(task: NodeTask, config: TrainConfig) -> None:
    """Refuse a metric that has no value on validation or test nodes, and a schedule that needs others."""
    if config.lr_schedule == PLATEAU and task.seeds.valid is None:
        raise ConfigError(
            "--lr-schedule plateau needs validation nodes, and the split has none: use --lr-schedule cosine"
        )
    if task.labels is None:
        return
    for part, ids in (("valid", task.seeds.valid), ("test", task.seeds.test)):
        if ids is not None:
            require_measurable(config.metric, task.labels[ids], part)

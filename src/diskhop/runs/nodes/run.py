"""Training a node classifier: plan, epochs, test, result.

Every epoch is committed. Values depend on the configuration alone (see trainer.py), so a run resumed from a commit ends
with the same bits as one that was never interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import nn

from diskhop.budget import Budget
from diskhop.config.learning import PLATEAU
from diskhop.config.train import TrainConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, TrainingError
from diskhop.nn.reproducible import reproducible
from diskhop.nn.schedules import count_plateaus
from diskhop.predicting.scaling import Scaling
from diskhop.protocols import Purpose
from diskhop.run_files import SCHEMA_FILE
from diskhop.runs.better import is_better
from diskhop.runs.callbacks import Callback, Callbacks, Patience
from diskhop.runs.checkpoint import TrainingState, optimizer_tensors, restore_optimizer
from diskhop.runs.context import RunContext
from diskhop.runs.folder import ModelFolder, require_new_folder
from diskhop.runs.nodes.feeds import Feed, PreparedRun
from diskhop.runs.nodes.metrics import require_measurable, require_metric
from diskhop.runs.nodes.objective import make_objective, require_task
from diskhop.runs.nodes.task import NodeTask, read_task
from diskhop.runs.nodes.trainer import Trainer
from diskhop.runs.nodes.warm_start import WarmStart, open_warm_start
from diskhop.runs.result import describe_run, make_result
from diskhop.runs.schema import read_schema, schema_of
from diskhop.system.memory import resident_bytes
from diskhop.system.memory_log import MemoryLog

Prepare = Callable[[Dataset, Any, NodeTask, Budget, Callback], PreparedRun]


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A finished run.

    model: the best model by validation.
    config: all options, with what the plan chose.
    result: the content of result.json.
    """

    model: nn.Module
    config: TrainConfig
    result: dict[str, Any]


def train_nodes(
    kind: str, prepare: Prepare, context: RunContext, config: TrainConfig, task: NodeTask | None = None
) -> Trained:
    """Train a model, keep the best by validation, test it, and write everything to the RUN folder, if there is one.

    kind: of the run, for its files. prepare: plans the run and makes what it needs. task: what read_task() returns for
    this configuration, if it was read already. Raises ConfigError or BudgetError before anything is written,
    TrainingError if the loss is not finite.

    In the result, resident_before_bytes is this process's resident memory with model and optimiser, before any data is
    opened, and without labels and seed nodes.
    """
    dataset, out = context.dataset, context.out
    require_task(config, dataset)
    require_metric(config.metric, config.task, dataset.num_classes)
    folder = ModelFolder(out, context.injector) if out is not None else None
    if out is not None and not context.resume:
        require_new_folder(out)
    warm_start = _open_warm_start(context, folder, config)
    budget = Budget(config.memory_bytes)
    task = task or read_task(dataset, split=config.split, evaluate=config.evaluate, memory_bytes=config.memory_bytes)
    _require_measurable(task, config)
    prepared = prepare(dataset, config, task, budget, context.callback)
    assert task.labels is not None, "there is no plan for a budget without room for labels"
    config, plan = prepared.config, prepared.plan
    objective = make_objective(config, dataset, task, _scaling_so_far(context, folder, warm_start))
    schema = schema_of(dataset, getattr(config, "features", ""), config.seed)
    schema = replace(schema, scaling=objective.scaling)
    with ExitStack() as stack:
        stack.enter_context(reproducible(config.threads))
        for name, num_bytes in task.held.items():
            stack.enter_context(budget.reserve(name, num_bytes))
        trainer = Trainer(prepared.make_model, objective, config, context.callback)
        before_bytes = max(0, resident_bytes("VmRSS") - task.labels.nbytes - task.seeds.num_bytes)
        state = _begin(kind, context, folder, config, trainer, warm_start)
        if folder is not None:
            folder.write_schema(schema)
            folder.write_plan(plan)
        context.callback.planned(plan)
        with MemoryLog() as memory, prepared.open(trainer.model) as feed:
            state = _Epochs(config, task, trainer, feed, memory, folder, context.callback).run(state)
            trainer.model.load_state_dict(state.best_model)
            tested, testing = None, {}
            if task.seeds.test is not None:
                value, took = trainer.evaluate(feed, Purpose.TEST, state.epoch)
                tested, testing = {config.metric: value}, {"testing": took}
        result = make_result(
            {**_describe(kind, dataset, config, trainer), **prepared.facts},
            plan,
            budget,
            state.history,
            before_bytes=before_bytes,
            epochs=config.epochs,
            metric=config.metric,
            test=tested,
            preparation=prepared.preparation,
        )
        result |= {"best_epoch": state.best_epoch, **testing}
        result |= {} if state.warm_start is None else {"warm_start": state.warm_start}
        if folder is not None:
            folder.save_model(state, config.model)
            folder.finish(state.history, result)
    return Trained(trainer.model, config, result)


@dataclass(frozen=True, slots=True, eq=False)
class _Epochs:
    """Trains epoch after epoch, each validated when that is due, and committed."""

    config: TrainConfig
    task: NodeTask
    trainer: Trainer
    feed: Feed
    memory: MemoryLog
    folder: ModelFolder | None
    callback: Callback

    def run(self, state: TrainingState) -> TrainingState:
        """Train from a state until the last epoch, or until a callback ends it."""
        patience = Patience(self.config.patience, state.history, partial(is_better, self.config.metric))
        callback = Callbacks([patience, self.callback])
        is_over = patience.is_exhausted
        while state.epoch < self.config.epochs and not is_over:
            record = self._train_epoch(state)
            state = _advance(state, self.trainer, record, self.config.metric)
            if self.folder is not None:
                self.folder.commit(state)
            is_over = callback.epoch_done(record)
        return state

    def _train_epoch(self, state: TrainingState) -> dict[str, Any]:
        """Train one epoch, validate it when that is due, and return its record."""
        epoch = state.epoch
        record = self.trainer.train_pass(self.feed, epoch, self._rate_factor(state))
        is_due = (epoch + 1) % self.config.eval_every == 0 or epoch + 1 == self.config.epochs
        if self.task.seeds.valid is not None and is_due:
            record["valid"], record["validation"] = self.trainer.evaluate(self.feed, Purpose.VALID, epoch)
        record["memory"] = self.memory.take()
        return record

    def _rate_factor(self, state: TrainingState) -> float:
        """Return the factor of the learning rate that the validations so far lead to."""
        config = self.config
        if config.lr_schedule != PLATEAU:
            return 1.0
        validations = [record["valid"] for record in state.history if "valid" in record]
        plateaus = count_plateaus(validations, config.plateau_patience, partial(is_better, config.metric))
        return float(config.plateau_factor**plateaus)


def _open_warm_start(context: RunContext, folder: ModelFolder | None, config: TrainConfig) -> WarmStart | None:
    """Open the run to start from. A run with a checkpoint of its own does not need it any more."""
    has_begun = folder is not None and context.resume and folder.has_state
    return open_warm_start(context.dataset, config) if config.warm_start and not has_begun else None


def _describe(kind: str, dataset: Dataset, config: TrainConfig, trainer: Trainer) -> dict[str, Any]:
    """Return the first entries of the result."""
    num_parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    return {**describe_run(kind, dataset, config.model, config.seed), "num_parameters": num_parameters}


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


def _begin(
    kind: str,
    context: RunContext,
    folder: ModelFolder | None,
    config: TrainConfig,
    trainer: Trainer,
    warm_start: WarmStart | None,
) -> TrainingState:
    """Create the folder or resume its run; return the state to train from."""
    if warm_start is not None:
        # Before anything is written: parameters may not fit.
        warm_start.apply(trainer.model, trainer.optimizer)
        context.callback.announced(f"Warm start: {warm_start}")
    state = None
    if folder is not None and context.resume:
        state = folder.resume(kind, config, context.dataset)
    elif folder is not None:
        folder.start(kind, config, context.dataset)
    if state is None:
        return _first_state(folder, trainer, warm_start)
    try:
        trainer.model.load_state_dict(state.model)
        restore_optimizer(trainer.optimizer, state.optimizer)
    except (KeyError, RuntimeError, ValueError) as error:
        raise TrainingError(
            f"{context.out}: the checkpoint does not fit the model: {error}; train into a new folder"
        ) from error
    return state


def _first_state(folder: ModelFolder | None, trainer: Trainer, warm_start: WarmStart | None) -> TrainingState:
    """Return the state before the first epoch. A warm start is committed, so that resuming needs no other run."""
    started = None if warm_start is None else warm_start.describe()
    optimizer = optimizer_tensors(trainer.optimizer)
    state = TrainingState(0, trainer.parameters(), optimizer, trainer.parameters(), None, 0, warm_start=started)
    if folder is not None and warm_start is not None:
        folder.commit(state, is_epoch=False)
    return state


def _advance(state: TrainingState, trainer: Trainer, record: dict[str, Any], metric: str) -> TrainingState:
    """Return the state after one more epoch. Without validation the last model is the best."""
    valid = record.get("valid")
    is_best = state.best_valid is None or (valid is not None and is_better(metric, valid, state.best_valid))
    return replace(
        state,
        epoch=state.epoch + 1,
        model=trainer.parameters(),
        optimizer=optimizer_tensors(trainer.optimizer),
        best_model=trainer.parameters() if is_best else state.best_model,
        best_valid=valid if is_best else state.best_valid,
        best_epoch=state.epoch if is_best else state.best_epoch,
        history=[*state.history, record],
    )

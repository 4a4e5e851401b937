"""Node classification from a dataset to a measured model: seeds, plan, epochs, test, result.

Every epoch is committed when it is done. Since values depend on the configuration alone (see trainer.py), a run that
goes on from a commit is the run that was never interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from diskhop.budget import Budget
from diskhop.config.train import HopConfig, SampledConfig, TrainConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import TrainingError
from diskhop.io.atomic import Injector
from diskhop.nn.reproducible import reproducible
from diskhop.protocols import Purpose
from diskhop.runs.callbacks import Callback
from diskhop.runs.checkpoint import TrainingState, optimizer_tensors, restore_optimizer
from diskhop.runs.folder import ModelFolder, require_new_folder
from diskhop.runs.nodes.hops import prepare_hops
from diskhop.runs.nodes.metrics import require_measurable, require_metric
from diskhop.runs.nodes.sampled import prepare_sampled
from diskhop.runs.nodes.task import NodeTask, read_task
from diskhop.runs.nodes.trainer import NodeTrainer
from diskhop.runs.patience import is_out_of_patience
from diskhop.runs.result import describe_run, measure_memory
from diskhop.system.memory import resident_bytes
from diskhop.system.memory_log import MemoryLog


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A finished run: the best model, how it was made, and what result.json holds."""

    model: nn.Module
    config: TrainConfig
    result: dict[str, Any]


def train_node_classifier(
    dataset: Dataset,
    config: TrainConfig,
    out: Path | None = None,
    *,
    task: NodeTask | None = None,
    resume: bool = False,
    watcher: Callback | None = None,
    injector: Injector | None = None,
) -> Trained:
    """Train a model, keep the best on validation, measure it on test; leave all of it in the folder `out`, if given.

    task: what read_task() gives for this configuration, if it was read already. resume: go on from the last epoch that
    a run with the same configuration committed to `out`. injector: decides over changes to `out`. Raises ConfigError or
    BudgetError before anything is written, TrainingError if the loss is not finite.

    In the result, resident_before_bytes is what this process had resident when model and optimiser were made and
    nothing was opened, labels and seeds left out; see measure_memory().
    """
    watcher = watcher or Callback()
    require_metric(config.metric, dataset.num_classes)
    if out is not None and not resume:
        require_new_folder(out)
    budget = Budget(config.memory_bytes)
    if task is None:
        task = read_task(dataset, split=config.split, evaluate=config.evaluate, memory_bytes=config.memory_bytes)
    labels, seeds, held = task.labels, task.seeds, task.held
    if labels is not None:
        for part, ids in (("valid", seeds.valid), ("test", seeds.test)):
            if ids is not None:
                require_measurable(config.metric, labels[ids], part)
    if isinstance(config, HopConfig):
        prepared = prepare_hops(dataset, config, task, budget, watcher)
    else:
        assert isinstance(config, SampledConfig)
        prepared = prepare_sampled(dataset, config, task, budget, watcher)
    assert labels is not None, "there is no plan for a budget without room for labels"
    config, plan = prepared.config, prepared.plan

    with (
        reproducible(config.threads),
        budget.reserve("labels", held["labels"]),
        budget.reserve("seeds", held["seeds"]),
    ):
        trainer = NodeTrainer(prepared.make_model, labels, config, watcher)
        before_bytes = max(0, resident_bytes("VmRSS") - labels.nbytes - seeds.num_bytes)
        run = ModelFolder(out, injector) if out is not None else None
        state = None
        if run is not None and resume:
            state = run.resume(config, dataset)
        elif run is not None:
            run.start(config, dataset)
        if state is None:
            state = TrainingState(0, trainer.parameters(), {}, trainer.parameters(), None, 0)
        else:
            _restore(trainer, state, out)
        if run is not None:
            run.write_plan(plan)
        watcher.planned(plan)

        with MemoryLog() as memory, prepared.open(trainer.model) as feed:
            while state.epoch < config.epochs and not _has_stopped(state, config):
                record = trainer.train_pass(feed, state.epoch)
                is_due = (state.epoch + 1) % config.eval_every == 0 or state.epoch + 1 == config.epochs
                if seeds.valid is not None and is_due:
                    measured = trainer.evaluate(feed, Purpose.VALID, state.epoch)
                    record["valid"], record["validation"] = measured
                record["memory"] = memory.take()
                state = _advance(state, trainer, record)
                if run is not None:
                    run.commit(state)
                watcher.epoch_done(record)
            trainer.model.load_state_dict(state.best_model)
            tested: dict[str, Any] = {}
            if seeds.test is not None:
                measured = trainer.evaluate(feed, Purpose.TEST, state.epoch)
                tested["test"], tested["testing"] = measured

        result = {
            **describe_run(dataset, config.model, config.seed),
            "num_parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
            **prepared.facts,
            **measure_memory(before_bytes, budget),
            "plan": {**plan.to_dict(), "reserved": budget.table()},
            **prepared.preparation,
            "epochs": state.history,
            "metric": config.metric,
            "best_epoch": state.best_epoch,
            **({} if state.best_valid is None else {"best_valid": state.best_valid}),
            **tested,
        }
        if run is not None:
            run.finish(state, config, result)
    return Trained(trainer.model, config, result)


def _advance(state: TrainingState, trainer: NodeTrainer, record: dict[str, Any]) -> TrainingState:
    """The state after one epoch more. Without validation the last model is the best."""
    valid = record.get("valid")
    is_best = state.best_valid is None or (valid is not None and valid > state.best_valid)
    return TrainingState(
        epoch=state.epoch + 1,
        model=trainer.parameters(),
        optimizer=optimizer_tensors(trainer.optimizer),
        best_model=trainer.parameters() if is_best else state.best_model,
        best_valid=valid if is_best else state.best_valid,
        best_epoch=state.epoch if is_best else state.best_epoch,
        history=[*state.history, record],
    )


def _restore(trainer: NodeTrainer, state: TrainingState, out: Path | None) -> None:
    try:
        trainer.model.load_state_dict(state.model)
        restore_optimizer(trainer.optimizer, state.optimizer)
    except (KeyError, RuntimeError, ValueError) as error:
        raise TrainingError(
            f"{out}: the checkpoint does not fit the model: {error}; train into a new folder"
        ) from error


def _has_stopped(state: TrainingState, config: TrainConfig) -> bool:
    return is_out_of_patience([record["valid"] for record in state.history if "valid" in record], config.patience)

"""Training a model, for every kind of run that does: epochs, validation, commits, the best model's test, the result.

Every epoch is committed, and a long one also from time to time while it lasts. Values depend on the configuration
alone (see trainer.py), so a run resumed from a commit ends with the same bits as one that was never interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from torch import nn

from diskhop.budget import Budget, format_bytes
from diskhop.config.interval import parse_interval
from diskhop.config.learning import PLATEAU
from diskhop.config.train import TrainConfig
from diskhop.derived.scratch import scratch_folder, scratch_path
from diskhop.display import Display, Part
from diskhop.embedding.rows.module import RowPlace
from diskhop.embedding.rows.opened import drop_rows, find_stored_rows, keep_rows, open_rows
from diskhop.errors import ConfigError, TrainingError
from diskhop.io.atomic import make_directories
from diskhop.io.engine import open_engine
from diskhop.nn.adam import Adam
from diskhop.nn.reproducible import reproducible
from diskhop.nn.schedules import count_plateaus
from diskhop.protocols import Purpose
from diskhop.run_files import LEARNED_FOLDER
from diskhop.runs.better import is_better
from diskhop.runs.callbacks import Callbacks, Patience
from diskhop.runs.checkpoint import EpochPart, TrainingState
from diskhop.runs.context import RunContext
from diskhop.runs.devices import device_errors
from diskhop.runs.epoch_commits import EpochCommits
from diskhop.runs.feeds import Feed, PreparedRun, Task
from diskhop.runs.folder import ModelFolder
from diskhop.runs.interruptions import put_off_interruptions
from diskhop.runs.learned_rows import memory_for_rows
from diskhop.runs.passes import PassOrder, RunPass
from diskhop.runs.rank_devices import describe
from diskhop.runs.result import describe_run, make_result, measure_shared, memory_of_ranks
from diskhop.runs.schema import Schema
from diskhop.runs.shown import run_parts, run_title
from diskhop.runs.trainer import Trainer
from diskhop.system.memory import resident_bytes
from diskhop.system.memory_log import MemoryLog


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Trained(Display):
    """A finished run.

    model: the best model by validation, in memory.
    config: all options, with what the plan chose.
    result: the content of result.json.
    """

    model: nn.Module
    config: TrainConfig
    result: dict[str, Any]

    def _title(self) -> str:
        return run_title(self.result)

    def _parts(self) -> Sequence[Part]:
        return run_parts(self.result)


class StartingPoint(Protocol):
    """Where a run's parameters come from, if they are not random."""

    def apply(self, model: nn.Module, optimizer: Adam) -> None:
        """Set a model's parameters and, if it was kept, the optimiser's state."""

    def describe(self) -> dict[str, Any]:
        """Return the entry of result.json."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingJob:
    """A run that is ready to train.

    kind: of the run, for its files.
    task: the loss and the metric.
    prepared: the plan, and everything made for it.
    config: all options as the run is saved with: of all ranks of a machine together.
    schema: what the model will expect of other datasets.
    has_valid, has_test: whether there is something to validate on, and to test on.
    held: bytes of graph data in memory besides the feed's, by name.
    resident: bytes of it that are resident already.
    warm_start: None for random parameters.
    """

    kind: str
    task: Task
    prepared: PreparedRun
    config: TrainConfig
    schema: Schema
    has_valid: bool
    has_test: bool
    held: Mapping[str, int]
    resident: int
    warm_start: StartingPoint | None = None


def run_job(job: TrainingJob, context: RunContext, folder: ModelFolder | None, budget: Budget) -> Trained:
    """Train a model, keep the best by validation, test it, and write everything to the RUN folder, if there is one.

    Raises TrainingError if the loss is not finite. In the result, resident_before_bytes is this process's resident
    memory with model and optimiser, before any data is opened, and without job.resident.
    """
    prepared, config, plan = job.prepared, job.prepared.config, job.prepared.plan
    with ExitStack() as stack:
        stack.enter_context(reproducible(config.threads, prepared.device))
        stack.enter_context(device_errors(prepared.device, config))
        for name, num_bytes in job.held.items():
            stack.enter_context(budget.reserve(name, num_bytes, is_shared=name in plan.shared))
        if not context.group.is_alone:
            # All ranks, also those without a device.
            transport = context.group.connect(prepared.device)
            if prepared.device is not None:
                plan = replace(plan, reasons=(*plan.reasons, describe(transport)))
        trainer = Trainer(prepared.make_model, job.task, config, context.callback, context.group, prepared.device)
        before_bytes = max(0, resident_bytes("VmRSS") - job.resident)
        state = _begin(job, context, folder, trainer, stack)
        if folder is not None:
            folder.write_schema(job.schema)
            folder.write_plan(plan)
        context.callback.planned(plan)
        with MemoryLog() as memory, prepared.open(trainer.model) as feed:
            order = PassOrder(
                epochs=config.epochs, eval_every=config.eval_every, has_valid=job.has_valid, has_test=job.has_test
            )
            has_folder = context.group.from_first(folder is not None)
            epochs = _Epochs(config, order, trainer, feed, memory, folder, has_folder, context)
            state = epochs.run(state)
            trainer.model.load_state_dict(state.best_model)
            tested, testing = _test(job, trainer, feed, state)
            shared = measure_shared(context.group)
        num_parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
        described = describe_run(job.kind, context.dataset, config.model, config.seed)
        result = make_result(
            {**described, "num_parameters": num_parameters, **prepared.facts},
            plan,
            budget,
            state.history,
            before_bytes=before_bytes,
            epochs=config.epochs,
            metric=config.metric,
            test=tested,
            preparation=prepared.preparation,
            overhead=context.overhead,
        )
        result |= {"best_epoch": state.best_epoch, **testing, **memory_of_ranks(result, shared, context.group)}
        result |= {} if state.warm_start is None else {"warm_start": state.warm_start}
        result |= {} if context.tuning is None else {"tuning": dict(context.tuning)}
        if folder is not None:
            folder.save_model(state, config.model)
            folder.finish(state.history, result)
    return Trained(trainer.model.cpu(), job.config, result)


def _test(
    job: TrainingJob, trainer: Trainer, feed: Feed, state: TrainingState
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the test values; and the record of the pass and what else it found, as entries of result.json."""
    if not job.has_test:
        return None, {}
    tested = trainer.evaluate(feed, Purpose.TEST, state.epoch)
    return {job.prepared.config.metric: tested.value, **tested.details}, {"testing": tested.record, **tested.entries}


@dataclass(frozen=True, slots=True, eq=False)
class _Epochs:
    """Trains epoch after epoch, each validated when that is due, and committed.

    folder: of the run, on rank 0. has_folder: whether rank 0 has one.
    """

    config: TrainConfig
    order: PassOrder
    trainer: Trainer
    feed: Feed
    memory: MemoryLog
    folder: ModelFolder | None
    has_folder: bool
    context: RunContext

    def run(self, state: TrainingState) -> TrainingState:
        """Train from a state until the last epoch, or until a callback ends it."""
        patience = Patience(self.config.patience, state.history, partial(is_better, self.config.metric))
        callback = Callbacks([patience, self.context.callback])
        is_over = patience.is_exhausted
        while state.epoch < self.config.epochs and not is_over:
            record = self._train_epoch(state)
            keep_rows(self.trainer.model)
            state = _advance(state, self.trainer, record, self.config.metric)
            if self.folder is not None:
                self.folder.commit(state)
                self.folder.keep_epoch(state, self.config.keep)
            drop_rows(self.trainer.model, [state.model, state.best_model])
            is_over = self.context.group.first(partial(callback.epoch_done, record))
        return state

    def _train_epoch(self, state: TrainingState) -> dict[str, Any]:
        """Train one epoch, validate it when that is due, and return its record."""
        epoch, order = state.epoch, self.order
        following = order.after(RunPass(Purpose.TRAIN, epoch))
        group = self.context.group
        # Other ranks may be at another step, and would wait for this one.
        is_put_off = self.has_folder and group.is_alone
        with put_off_interruptions() if is_put_off else nullcontext() as interruption:
            interval = parse_interval(self.config.checkpoint_every, "batches")
            commits = EpochCommits(interval, group, partial(self._keep, state), interruption)
            record = self.trainer.train_pass(
                self.feed,
                epoch,
                self._rate_factor(state),
                following,
                begun=state.part,
                commits=commits if self.has_folder else None,
            )
        if order.is_validated(epoch):
            following = order.after(RunPass(Purpose.VALID, epoch))
            measured = self.trainer.evaluate(self.feed, Purpose.VALID, epoch, following)
            record["valid"], record["validation"] = measured.value, {**measured.record, **measured.details}
        record["memory"] = self.memory.take()
        return record

    def _keep(self, state: TrainingState, part: EpochPart) -> None:
        """Commit the run within an epoch. state: before the epoch."""
        model = self.trainer.model
        keep_rows(model)
        state = replace(state, model=self.trainer.parameters(), optimizer=self.trainer.optimizer.tensors(), part=part)
        if self.folder is not None:
            self.folder.commit(state, is_epoch=False)
        drop_rows(model, [state.model, state.best_model])

    def _rate_factor(self, state: TrainingState) -> float:
        """Return the factor of the learning rate that the validations so far lead to."""
        config = self.config
        if config.lr_schedule != PLATEAU:
            return 1.0
        validations = [record["valid"] for record in state.history if "valid" in record]
        plateaus = count_plateaus(validations, config.plateau_patience, partial(is_better, config.metric))
        return float(config.plateau_factor**plateaus)


def _begin(
    job: TrainingJob, context: RunContext, folder: ModelFolder | None, trainer: Trainer, stack: ExitStack
) -> TrainingState:
    """Create the folder or resume its run; return the state to train from. stack: closes what is open."""
    _require_rows_in_memory(job, context, trainer.model)
    if job.warm_start is not None:
        # Before anything is written: parameters may not fit.
        job.warm_start.apply(trainer.model, trainer.optimizer)
        context.callback.announced(f"Warm start: {job.warm_start}")
    state = None
    if folder is not None:
        stack.callback(folder.close)
    if folder is not None and context.resume:
        state = folder.resume(job.kind, job.config, context.dataset)
    elif folder is not None:
        folder.start(job.kind, job.config, context.dataset)
    if find_stored_rows(trainer.model):
        stack.enter_context(_opened_rows(job.prepared.config, context, trainer.model))
    if state is None:
        state = _first_state(folder, trainer, job.warm_start)
        if context.group.is_alone:
            return state
    # The folder of the run is that of rank 0.
    state = context.group.from_first(state)
    try:
        trainer.model.load_state_dict(state.model)
        trainer.optimizer.restore(state.optimizer)
    except (KeyError, RuntimeError, ValueError) as error:
        raise TrainingError(
            f"{context.out}: the checkpoint does not fit the model: {error}; train into a new folder"
        ) from error
    # A crash after the last checkpoint left versions that no epoch would remove.
    drop_rows(trainer.model, [state.model, state.best_model])
    return state


def _require_rows_in_memory(job: TrainingJob, context: RunContext, model: nn.Module) -> None:
    """Refuse learned rows on disk where they would be in use twice: by several processes, or by kept checkpoints."""
    layouts = {rows.name: rows.layout for rows in find_stored_rows(model).values()}
    ranks = context.group.ranks
    if layouts and job.config.keep > 1:
        raise ConfigError(
            f"--keep {job.config.keep} has no effect with learned features on disk, as those of {', '.join(layouts)}: "
            "earlier checkpoints would need earlier rows; use --keep 1"
        )
    if not layouts or ranks.count == 1:
        return
    least_bytes = ranks.local_count * memory_for_rows(layouts, is_summed=True)
    raise ConfigError(
        f"learned features of {', '.join(layouts)} exceed --memory {format_bytes(job.config.memory_bytes)} for "
        f"{ranks.local_count} processes on one machine, and are trained in one process from disk: use --memory "
        f"{-(-least_bytes // 1_000_000)}MB, or one process"
    )


@contextmanager
def _opened_rows(config: TrainConfig, context: RunContext, model: nn.Module) -> Iterator[None]:
    """Open a model's rows on disk: in the run's folder, or without one in a scratch folder."""
    with ExitStack() as stack:
        if context.out is None:
            parent = scratch_path(context.dataset.path, config.scratch or None)
            folder = stack.enter_context(scratch_folder(parent))
        else:
            folder = context.out / LEARNED_FOLDER
            make_directories(folder, context.injector)
        engine = open_engine(config.engine).engine
        stack.enter_context(open_rows(model, RowPlace(folder, engine, context.injector)))
        yield


def _first_state(folder: ModelFolder | None, trainer: Trainer, warm_start: StartingPoint | None) -> TrainingState:
    """Return the state before the first epoch. A warm start is committed, so that resuming needs no other run."""
    started = None if warm_start is None else warm_start.describe()
    optimizer = trainer.optimizer.tensors()
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
        optimizer=trainer.optimizer.tensors(),
        best_model=trainer.parameters() if is_best else state.best_model,
        best_valid=valid if is_best else state.best_valid,
        best_epoch=state.epoch if is_best else state.best_epoch,
        part=None,
        history=[*state.history, record],
    )

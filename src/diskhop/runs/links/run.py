"""Training on links: what is read, checked and planned before runs/training.py trains it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from diskhop.budget import Budget
from diskhop.config.learning import PLATEAU
from diskhop.config.link import LinkConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.protocols import Purpose
from diskhop.run_files import LINK_RUN
from diskhop.runs.callbacks import Callback
from diskhop.runs.context import RunContext
from diskhop.runs.feeds import PreparedRun
from diskhop.runs.folder import ModelFolder, require_new_folder
from diskhop.runs.links.objective import LinkObjective
from diskhop.runs.links.prepare import held_bytes, prepare_links
from diskhop.runs.links.task import LinkTask, read_link_task
from diskhop.runs.schema import Schema, schema_of
from diskhop.runs.shares import budget_of, prepare_in_turns, share_of, whole_of
from diskhop.runs.training import Trained, TrainingJob, run_job


class LinkSteps(NamedTuple):
    """Steps of a run on links that differ between graphs with one type of nodes and of edges, and with several.

    kind: of the run, for its files.
    read_task: reads or draws the split.
    prepare: plans the run and makes what it needs.
    schema: returns what the model will expect of other datasets.
    """

    kind: str
    read_task: Callable[[Dataset, Any], LinkTask]
    prepare: Callable[[Dataset, Any, LinkTask, Budget, Callback], PreparedRun]
    schema: Callable[[Dataset, Any], Schema]


def _read_task(dataset: Dataset, config: LinkConfig) -> LinkTask:
    return read_link_task(
        dataset, config.link_split, config.split, evaluate=config.evaluate, memory_bytes=config.memory_bytes
    )


def _schema(dataset: Dataset, config: LinkConfig) -> Schema:
    return schema_of(dataset, config.features, config.seed).without_labels()


ONE_TYPE = LinkSteps(LINK_RUN, _read_task, prepare_links, _schema)


def train_links(steps: LinkSteps, context: RunContext, config: LinkConfig, task: LinkTask | None = None) -> Trained:
    """Train a link model, keep the best by validation, test it, and write everything to the RUN folder, if any.

    task: what read_link_task() returns for this configuration, if it was read already. Raises ConfigError or
    BudgetError before anything but the split is written, TrainingError if the loss is not finite.
    """
    dataset, out = context.dataset, context.out
    folder = ModelFolder(out, context.injector) if out is not None else None
    if out is not None and not context.resume:
        require_new_folder(out)
    task = task or steps.read_task(dataset, config)
    if config.lr_schedule == PLATEAU and Purpose.VALID not in task.used:
        raise ConfigError(
            "--lr-schedule plateau needs validation edges, and the split has none: use --lr-schedule cosine"
        )
    ranks, split = context.group.ranks, task
    share = share_of(config, ranks)
    budget = budget_of(config, ranks)
    prepared = prepare_in_turns(
        share, context.group, lambda each: steps.prepare(dataset, each, split, budget, context.callback)
    )
    planned = prepared.config
    assert isinstance(planned, LinkConfig)
    job = TrainingJob(
        kind=steps.kind,
        task=LinkObjective(planned, task.num_nodes, task.num_edges),
        prepared=prepared,
        config=whole_of(planned, config, ranks),
        schema=steps.schema(dataset, planned),
        has_valid=Purpose.VALID in task.used,
        has_test=Purpose.TEST in task.used,
        held=held_bytes(planned, task),
        resident=0,
    )
    return run_job(job, context, folder, budget)

"""Training on links: what is read, checked and planned before runs/training.py trains it."""

from __future__ import annotations

from diskhop.budget import Budget
from diskhop.config.learning import PLATEAU
from diskhop.config.link import LinkConfig
from diskhop.errors import ConfigError
from diskhop.protocols import Purpose
from diskhop.run_files import LINK_RUN
from diskhop.runs.context import RunContext
from diskhop.runs.folder import ModelFolder, require_new_folder
from diskhop.runs.links.objective import LinkObjective
from diskhop.runs.links.prepare import held_bytes, prepare_links
from diskhop.runs.links.task import LinkTask, read_link_task
from diskhop.runs.schema import schema_of
from diskhop.runs.training import Trained, TrainingJob, run_job


def train_links(context: RunContext, config: LinkConfig, task: LinkTask | None = None) -> Trained:
    """Train a link model, keep the best by validation, test it, and write everything to the RUN folder, if any.

    task: what read_link_task() returns for this configuration, if it was read already. Raises ConfigError or
    BudgetError before anything but the split is written, TrainingError if the loss is not finite.
    """
    dataset, out = context.dataset, context.out
    folder = ModelFolder(out, context.injector) if out is not None else None
    if out is not None and not context.resume:
        require_new_folder(out)
    task = task or read_link_task(
        dataset, config.link_split, config.split, evaluate=config.evaluate, memory_bytes=config.memory_bytes
    )
    if config.lr_schedule == PLATEAU and Purpose.VALID not in task.used:
        raise ConfigError(
            "--lr-schedule plateau needs validation edges, and the split has none: use --lr-schedule cosine"
        )
    budget = Budget(config.memory_bytes)
    prepared = prepare_links(dataset, config, task, budget, context.callback)
    planned = prepared.config
    assert isinstance(planned, LinkConfig)
    job = TrainingJob(
        kind=LINK_RUN,
        task=LinkObjective(planned, dataset.num_nodes, task.num_edges),
        prepared=prepared,
        schema=schema_of(dataset, planned.features, planned.seed).without_labels(),
        has_valid=Purpose.VALID in task.used,
        has_test=Purpose.TEST in task.used,
        held=held_bytes(planned, dataset, task),
        resident=0,
    )
    return run_job(job, context, folder, budget)

"""Trial steps of embeddings: what a step takes besides what is reserved for it, measured before a run starts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from diskhop.budget import Budget
from diskhop.config.embed import EmbedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.scoring.scores import SCORES
from diskhop.embedding.step.gradients import StepOptions
from diskhop.embedding.step.step import step_bytes
from diskhop.errors import BudgetError
from diskhop.nn.reproducible import reproducible
from diskhop.nn.step_memory import StepMemory
from diskhop.planning.embeddings.costs import RandomSteps
from diskhop.planning.embeddings.partitions import choose_partitions, plan_embedding
from diskhop.planning.embeddings.size import embed_size
from diskhop.runs.devices import device_of
from diskhop.runs.embedding.device_trainer import batch_errors
from diskhop.runs.trial_steps import Trial
from diskhop.runtime.progress import Progress
from diskhop.system.memory import resident_bytes

_ROWS, _STEPS = 10_000, 2


def try_embeddings(
    dataset: Dataset, config: EmbedConfig, _task: None, allowed_bytes: int, _progress: Progress
) -> Trial:
    """Train on a few batches of random edges. Rows, gradients and scores of a batch are graph data: they are reserved.

    A batch that would exceed `allowed_bytes` is not tried: the budget for it is refused.
    """
    memory, device = StepMemory(allowed_bytes), device_of(config)
    trial = Trial(memory, partial(_least_bytes, dataset, config))
    batch_bytes = 0
    if device is None:
        options, relation_dim = StepOptions(**config.step_options()), SCORES[config.model].relation_dim(config.dim)
        batch_bytes = step_bytes(options, config.dim, relation_dim, config.threads)
    if batch_bytes > allowed_bytes - resident_bytes("VmRSS"):
        return trial
    with reproducible(config.threads, device), batch_errors(device, config):
        steps = RandomSteps(dataset, config, max(2, min(_ROWS, dataset.num_nodes)), device)
        for _ in range(_STEPS):
            memory.run(steps.run)
    return trial._replace(held_bytes=batch_bytes + (steps.table_bytes if device is None else 0))


def _least_bytes(dataset: Dataset, config: EmbedConfig) -> int:
    """Return the smallest budget of a run, with as many partitions as need least."""
    config = replace(config, memory_bytes=1)
    size = embed_size(dataset, config)
    try:
        plan_embedding(choose_partitions(config, size), size, Budget(1))
    except BudgetError as error:
        return error.smallest_bytes or 0
    return 1

"""Trial steps of a run, for every kind of run: what they take is measured before it starts.

A small batch comes first: where the large one would exceed `allowed_bytes`, what the process may take, it is not tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from diskhop.budget import Budget
from diskhop.config.embed import EmbedConfig
from diskhop.config.hop import HopConfig
from diskhop.config.link import LinkConfig
from diskhop.config.options import AUTO
from diskhop.config.sampled import SampledConfig
from diskhop.config.typed import TypedConfig
from diskhop.config.typed_hop import TypedHopConfig
from diskhop.config.typed_link import AnyTypedConfig, TypedLinkConfig
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.scoring.scores import SCORES
from diskhop.embedding.step.gradients import StepOptions
from diskhop.embedding.step.step import step_bytes
from diskhop.errors import BudgetError
from diskhop.nn.link_model import build_link_model
from diskhop.nn.models import build_hop_model, hops_read, num_hop_tables
from diskhop.nn.reproducible import reproducible
from diskhop.nn.step_memory import StepMemory
from diskhop.planning.batch_sizes import SMALL, sample_probes
from diskhop.planning.embeddings.costs import RandomSteps
from diskhop.planning.embeddings.partitions import choose_partitions, plan_embedding
from diskhop.planning.embeddings.size import embed_size
from diskhop.planning.store_plan import plan_store
from diskhop.planning.workload import Workload
from diskhop.protocols import Purpose
from diskhop.runs.devices import device_errors, device_of
from diskhop.runs.embedding.device_trainer import batch_errors
from diskhop.runs.links.prepare import planned_workload
from diskhop.runs.links.task import LinkTask
from diskhop.runs.nodes.clusters import with_clusters
from diskhop.runs.nodes.sampled import make_network, run_step, sampled_workload
from diskhop.runs.nodes.task import NodeTask
from diskhop.runs.typed.model import make_model as make_typed_model
from diskhop.runs.typed.model import types_of_run
from diskhop.runs.typed.prepare import merged_workload, run_typed_step
from diskhop.runs.typed_links import prepare as typed_links
from diskhop.runs.typed_links.model import make_link_model
from diskhop.runs.typed_links.target import target_of
from diskhop.runtime.progress import Progress
from diskhop.system.memory import resident_bytes

MakeModel = Callable[[], nn.Module]

_SMALLEST_STORE = "direct"
_EMBEDDED_ROWS, _EMBEDDING_STEPS = 10_000, 2


class Trial(NamedTuple):
    """A measured trial.

    memory: of the model.
    held_bytes: of it, those that are graph data.
    least_bytes: returns the smallest budget for graph data; None: it is not known before hop tables are made.
    """

    memory: StepMemory
    least_bytes: Callable[[], int] | None = None
    held_bytes: int = 0


def try_nodes(dataset: Dataset, config: SampledConfig, task: NodeTask, allowed_bytes: int, progress: Progress) -> Trial:
    """Train and evaluate on a large batch of each pass of a run on nodes."""
    dataset, _ = with_clusters(_with_features(dataset, config), config, Budget(config.memory_bytes), progress)
    workload, make_model = sampled_workload(dataset, config, task), partial(make_network, dataset, config)
    return _try_sampled(dataset, config, workload, make_model, run_step, allowed_bytes)


def try_links(dataset: Dataset, config: LinkConfig, task: LinkTask, allowed_bytes: int, progress: Progress) -> Trial:
    """Train and evaluate on a large batch of each pass of a run on links."""
    dataset = _with_features(dataset, config)
    make_model = partial(build_link_model, config, dataset.feature_dim or dataset.made_features.dim)
    workload = planned_workload(dataset, config, task)
    return _try_sampled(dataset, config, workload, make_model, run_step, allowed_bytes)


def try_hops(dataset: Dataset, config: HopConfig, task: NodeTask, allowed_bytes: int, progress: Progress) -> Trial:
    """Train on a batch of rows of hop tables. Evaluation has batches of the same size, and takes less."""
    num_tables = len(config.paths) if isinstance(config, TypedHopConfig) else num_hop_tables(config)
    num_tables, device, memory = len(hops_read(config.model, num_tables)), device_of(config), StepMemory(allowed_bytes)
    if not dataset.feature_dim:
        return Trial(memory)  # refused where tables are made
    large = min(config.batch_size, max(1, len(task.seeds.train)))
    small = -(-large // SMALL)
    make_model = partial(build_hop_model, config, dataset.feature_dim, num_tables, dataset.num_outputs)
    with reproducible(config.threads, device), device_errors(device, config):
        for batch_size in (small, large):
            if batch_size > small and memory.is_known(large / small):
                break
            x = torch.full((num_tables, batch_size, dataset.feature_dim), 0.01, device=device)
            memory.train(make_model, config.lr, (x,), device)
    return Trial(memory)


def try_typed_hops(
    dataset: Dataset, config: TypedHopConfig, task: NodeTask, allowed_bytes: int, progress: Progress
) -> Trial:
    """Train on a batch of rows of tables along paths; see try_hops()."""
    return try_hops(dataset.of_node_type(config.target), config, task, allowed_bytes, progress)


def try_typed(dataset: Dataset, config: TypedConfig, task: NodeTask, allowed_bytes: int, progress: Progress) -> Trial:
    """Train and evaluate on a large batch of each pass of a run on nodes of several types."""
    merged, workload = merged_workload(dataset, config, task, progress)
    return _try_typed(merged, config, workload, partial(make_typed_model, merged, config), allowed_bytes)


def try_typed_links(
    dataset: Dataset, config: TypedLinkConfig, task: LinkTask, allowed_bytes: int, progress: Progress
) -> Trial:
    """Train and evaluate on a large batch of each pass of a run on one edge type."""
    merged, workload = typed_links.planned_workload(dataset, config, task, progress)
    make_model = partial(make_link_model, merged, config, target_of(task))
    return _try_typed(merged, config, workload, make_model, allowed_bytes)


def try_embeddings(
    dataset: Dataset, config: EmbedConfig, _task: None, allowed_bytes: int, _progress: Progress
) -> Trial:
    """Train on a few batches of random edges. Rows, gradients and scores of a batch are graph data: they are reserved.

    A batch that would exceed `allowed_bytes` is not tried: the budget for it is refused.
    """
    memory, device = StepMemory(allowed_bytes), device_of(config)
    trial = Trial(memory, partial(_least_bytes_of_embeddings, dataset, config))
    batch_bytes = 0
    if device is None:
        options, relation_dim = StepOptions(**config.step_options()), SCORES[config.model].relation_dim(config.dim)
        batch_bytes = step_bytes(options, config.dim, relation_dim, config.threads)
    if batch_bytes > allowed_bytes - resident_bytes("VmRSS"):
        return trial
    with reproducible(config.threads, device), batch_errors(device, config):
        steps = RandomSteps(dataset, config, max(2, min(_EMBEDDED_ROWS, dataset.num_nodes)), device)
        for _ in range(_EMBEDDING_STEPS):
            memory.run(steps.run)
    return trial._replace(held_bytes=batch_bytes + (steps.table_bytes if device is None else 0))


def _try_typed(
    merged: Dataset, config: AnyTypedConfig, workload: Workload, make_model: MakeModel, allowed_bytes: int
) -> Trial:
    """Try a model whose learned rows are graph data: the budget has them."""
    trial = _try_sampled(merged, config, workload, make_model, run_typed_step, allowed_bytes)
    return trial._replace(held_bytes=sum(types_of_run(merged, config).held.values()))


def _try_sampled(
    dataset: Dataset, config: SampledConfig, workload: Workload, make_model: MakeModel, run: Any, allowed_bytes: int
) -> Trial:
    """Try a model on batches of a workload. run: run_step or run_typed_step."""
    lists_bytes = min(config.memory_bytes, allowed_bytes)
    probes, memory = sample_probes(dataset, workload.seed_sets, config.seed, lists_bytes), StepMemory(allowed_bytes)
    for probe in probes:
        measure = memory.train if probe.purpose == Purpose.TRAIN else memory.evaluate
        run(measure, dataset, config, make_model, probe.small)
        if not memory.is_known(probe.large.num_bytes / probe.small.num_bytes):
            run(measure, dataset, config, make_model, probe.large)
    return Trial(memory, partial(_least_bytes, dataset, workload))


def _least_bytes(dataset: Dataset, workload: Workload) -> int:
    """Return the smallest budget of a run, with the store that takes least unless one is named."""
    store = _SMALLEST_STORE if workload.store in (None, AUTO) else workload.store
    try:
        plan_store(dataset, replace(workload, store=store), store, Budget(1))
    except BudgetError as error:
        return error.smallest_bytes or 0
    return 1


def _least_bytes_of_embeddings(dataset: Dataset, config: EmbedConfig) -> int:
    """Return the smallest budget of a run, with as many partitions as need least."""
    config = replace(config, memory_bytes=1)
    size = embed_size(dataset, config)
    try:
        plan_embedding(choose_partitions(config, size), size, Budget(1))
    except BudgetError as error:
        return error.smallest_bytes or 0
    return 1


def _with_features(dataset: Dataset, config: SampledConfig) -> Dataset:
    return dataset.with_made_features(config.features, config.seed) if config.features else dataset

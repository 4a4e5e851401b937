"""Training on a graph with types: its types are merged, a store per type is planned, and batches come by type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from diskhop.batches.typed import SPLIT_BYTES
from diskhop.budget import Budget
from diskhop.config.typed import TypedConfig
from diskhop.config.typed_link import AnyTypedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.merge import MergeTools
from diskhop.derived.scratch import scratch_path
from diskhop.io.engine import open_engine
from diskhop.nn.dry_run import measure_step_seconds
from diskhop.nn.reproducible import reproducible
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.pipeline.transfer import DeviceCopies
from diskhop.planning.planner import choose_predicted_plan
from diskhop.planning.workload import Workload
from diskhop.protocols import NodeRows, Purpose, SampledBatch
from diskhop.runs.callbacks import Callback
from diskhop.runs.devices import device_errors, device_of, device_row_bytes, held_by_device, with_device
from diskhop.runs.feeds import Feed, PreparedRun
from diskhop.runs.nodes.task import NodeTask
from diskhop.runs.nodes.workload import planned_config, workload_of
from diskhop.runs.typed.feed import TypedDelivery, TypedFeed, inputs_of
from diskhop.runs.typed.model import TypedModel, make_model, types_of_run
from diskhop.runs.typed.samplers import eval_sampler, train_sampler
from diskhop.runs.typed.target import reversed_types
from diskhop.runtime.progress import Progress, silent
from diskhop.sampling.samplers import merged_graph
from diskhop.sampling.seeds import SeedSet, SplitSeeds

ResultT = TypeVar("ResultT")


def merge_types(dataset: Dataset, config: AnyTypedConfig, budget: Budget, progress: Progress) -> Dataset:
    """Return a dataset as one graph of all its types. Its merged lists are made if they are not there yet."""
    tools = MergeTools(
        scratch=scratch_path(dataset.path, config.scratch or None),
        engine=open_engine(config.engine).engine,
        budget=budget,
        threads=config.threads,
        progress=progress,
    )
    return merged_graph(dataset, [train_sampler(config), eval_sampler(config)], tools, reversed_types(config.reverse))


def prepare_typed(
    dataset: Dataset, config: TypedConfig, task: NodeTask, budget: Budget, callback: Callback
) -> PreparedRun:
    """Merge the types and plan. task: of the target's nodes, by their own rows. Raises as choose_plan()."""
    merged = merge_types(dataset, config, budget, callback.prepared)
    types = merged.types
    assert types is not None
    if described := types_of_run(merged, config).place.describe():
        callback.announced(described)
    first_row = types.first_row(config.target)
    seeds = _merged_seeds(task.seeds, first_row)
    workload = typed_workload(merged, config, seeds, task)
    device = device_of(config)
    plan = with_device(choose_predicted_plan(merged, workload, budget), device)
    planned = planned_config(config, plan)

    @contextmanager
    def open_feed(model: TypedModel) -> Iterator[Feed]:
        with ExitStack() as held:
            for name, num_bytes in {**model.held, **held_by_device(device)}.items():
                held.enter_context(budget.reserve(name, num_bytes))
            copies = None if device is None else DeviceCopies(device)
            expected = workload.seed_sets[0]
            pipeline = held.enter_context(open_pipeline(merged, plan, budget, expected=expected, copies=copies))
            delivery = None
            if copies is not None:
                assert task.labels is not None, "a task without labels is only planned"
                delivery = TypedDelivery(copies, task.labels)
            yield TypedFeed(pipeline, seeds, first_row, planned, types_of_run(merged, planned).made, delivery)

    return PreparedRun(
        config=planned,
        plan=plan,
        make_model=partial(make_model, merged, planned),
        open=open_feed,
        facts={"target": config.target, "types": described_types(merged)},
        device=device,
    )


def merged_workload(
    dataset: Dataset, config: TypedConfig, task: NodeTask, progress: Progress = silent
) -> tuple[Dataset, Workload]:
    """Merge the types, and describe a run for the planner."""
    merged = merge_types(dataset, config, Budget(config.memory_bytes), progress)
    types = merged.types
    assert types is not None
    return merged, typed_workload(merged, config, _merged_seeds(task.seeds, types.first_row(config.target)), task)


def typed_workload(merged: Dataset, config: TypedConfig, seeds: SplitSeeds, task: NodeTask) -> Workload:
    """Describe a run for the planner, which may measure a step of the model on a batch."""

    def seed_set(purpose: Purpose, rows: NodeRows) -> SeedSet:
        is_training = purpose == Purpose.TRAIN
        return SeedSet(
            purpose=purpose,
            seeds=rows,
            batch_size=config.batch_size if is_training else config.eval_batch_size,
            sampler=train_sampler(config) if is_training else eval_sampler(config),
            is_shuffled=is_training,
        )

    parts = ((Purpose.TRAIN, seeds.train), (Purpose.VALID, seeds.valid), (Purpose.TEST, seeds.test))
    seed_sets = [seed_set(purpose, rows) for purpose, rows in parts if rows is not None]
    held = {**task.held, **types_of_run(merged, config).held, **held_by_device(device_of(config))}
    workload = workload_of(config, seed_sets, held, step_measure(merged, config, partial(make_model, merged, config)))
    lends, device_bytes = device_of(config) is None, device_row_bytes(config)
    return replace(workload, values=SPLIT_BYTES, reads_lent_rows=lends, device_bytes=device_bytes)


def step_measure(
    merged: Dataset, config: AnyTypedConfig, make_model: Callable[[], nn.Module]
) -> Callable[[SampledBatch], float] | None:
    """Return what measures the seconds of a step of a model on a batch; None for a graph without features."""
    if merged.feature_table() is None:
        return None
    return partial(run_typed_step, measure_step_seconds, merged, config, make_model)


def run_typed_step(
    measure: Callable[[Callable[[], nn.Module], float, Sequence[Any], torch.device | None], ResultT],
    merged: Dataset,
    config: AnyTypedConfig,
    make_model: Callable[[], nn.Module],
    batch: SampledBatch,
) -> ResultT:
    """Measure a model on a batch whose rows are made up. measure: see measure_step_seconds()."""
    types, dims, device = merged.types, types_of_run(merged, config).schema.feature_dims, device_of(config)
    assert types is not None
    inputs = inputs_of(batch, types).mapped(lambda tensor: tensor.to(device))
    num_rows = {name: len(part.node_ids) for name, part in inputs.parts.items()}
    x = {name: torch.full((num_rows[name], dim), 0.01, device=device) for name, dim in dims.items() if dim}
    with reproducible(config.threads, device), device_errors(device, config):
        return measure(make_model, config.lr, (x, inputs), device)


def _merged_seeds(seeds: SplitSeeds, first_row: int) -> SplitSeeds:
    parts = (seeds.train, seeds.valid, seeds.test)
    train, valid, test = (None if rows is None else NodeRows(rows + first_row) for rows in parts)
    assert train is not None
    return SplitSeeds(train, valid, test)


def described_types(merged: Dataset) -> dict[str, Any]:
    """Return the entry of result.json about types: counts of nodes and edges."""
    types = merged.types
    assert types is not None
    return {
        "nodes": dict(types.num_nodes),
        "edges": {"__".join(edges.ends): edges.num_edges for edges in types.edges},
        "learned": [name for name, nodes in merged.nodes.items() if nodes.feature_table() is None],
    }

"""Training embeddings of a graph's nodes: plan, partitions, epochs, test, result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.config.embed import EmbedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.disk.probe import remembered_model
from diskhop.display import Display, Facts, Part
from diskhop.embedding.device.slots import DeviceSlots
from diskhop.embedding.graph_edges import embedded_nodes, read_edge_parts
from diskhop.embedding.partitions.buffer import PartitionBuffer
from diskhop.embedding.partitions.edges import edges_bytes
from diskhop.embedding.partitions.slots import HostSlots
from diskhop.embedding.partitions.store import PartitionStore
from diskhop.embedding.step.step import Table
from diskhop.errors import ConfigError
from diskhop.io.engine import choose_engine, open_engine
from diskhop.nn.reproducible import reproducible
from diskhop.pipeline.device_report import measure_copy_rate
from diskhop.pipeline.transfer import DeviceCopies
from diskhop.planning.embeddings.costs import measure_edges_per_second, predict_embedding, with_swaps_explained
from diskhop.planning.embeddings.partitions import (
    choose_order,
    config_of_rank,
    layout_of,
    permutation_of,
    plan_embedding,
)
from diskhop.planning.embeddings.size import embed_size
from diskhop.plans import EmbedPlan
from diskhop.run_files import EMBEDDING
from diskhop.runs.context import RunContext
from diskhop.runs.devices import device_of
from diskhop.runs.distributed import Group
from diskhop.runs.embedding.device_trainer import DeviceTrainer, batch_errors
from diskhop.runs.embedding.export import require_new_export, vectors_of, write_vectors
from diskhop.runs.embedding.folder import Commit, EmbeddingFolder
from diskhop.runs.embedding.loop import EmbeddingRun
from diskhop.runs.embedding.opened import open_run
from diskhop.runs.embedding.parts import EmbeddingParts
from diskhop.runs.embedding.trainers import BatchTrainer, HostTrainer
from diskhop.runs.embedding.warm_start import WarmStart
from diskhop.runs.folder import require_new_folder
from diskhop.runs.result import describe_run, make_result, measure_shared, memory_of_ranks
from diskhop.runs.shown import run_parts, run_title
from diskhop.runtime.executors import open_executor
from diskhop.runtime.jobs import Executor
from diskhop.runtime.tasks import TaskTools
from diskhop.system.memory import resident_bytes
from diskhop.system.memory_log import MemoryLog


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Embedded(Display):
    """A finished run.

    dataset: the graph.
    out: the RUN folder, where the embeddings are.
    config: all options.
    result: the content of result.json.
    """

    dataset: Dataset
    out: Path
    config: EmbedConfig
    result: dict[str, Any]

    def _title(self) -> str:
        return run_title(self.result)

    def _parts(self) -> Sequence[Part]:
        return [*run_parts(self.result), Facts([("written to", str(self.out))])]

    def export(self, path: Path | str, *, overwrite: bool = False) -> Path:
        """Write the embeddings to a .npy, .parquet or .tsv file. See export_embeddings()."""
        path = Path(path)
        require_new_export(path, overwrite=overwrite)
        return write_vectors(vectors_of(open_run(self.out, self.dataset)), path, overwrite=overwrite)


def train_embeddings(context: RunContext, config: EmbedConfig, _task: None = None) -> Embedded:
    """Train embeddings, test them, and write everything to the RUN folder.

    Raises ConfigError or BudgetError before anything is written, TrainingError if the loss is not finite.
    """
    dataset, group = context.dataset, context.group
    # The folder of the run is that of rank 0.
    out, resume = group.first(lambda: (context.out, context.resume))
    assert out is not None, "embeddings are trained in a folder"
    if group.ranks.is_first and not resume:
        require_new_folder(out)
    with closing(EmbeddingFolder(out, context.injector)) as folder:
        commit = _resume(folder, config, dataset, group) if resume else None
        return _train_in(folder, commit, context, config)


def _train_in(folder: EmbeddingFolder, commit: Commit | None, context: RunContext, config: EmbedConfig) -> Embedded:
    """Train from the last commit, if there is one."""
    dataset, group = context.dataset, context.group
    device = device_of(config)
    if device is not None and not group.is_alone:
        raise ConfigError(
            f"--device {config.device}: {group.ranks.count} processes train embeddings in memory; use --device cpu, or "
            "one process"
        )
    whole, config = config, config_of_rank(config, group.ranks)
    layout = layout_of(config, embedded_nodes(dataset).num_nodes)
    budget = Budget(whole.memory_bytes, group.ranks.local_count)
    moves = context.engine or open_engine(config.engine).engine
    spread = sorting_executor(
        group,
        context.executor,
        context.workers,
        threads=config.threads,
        memory_bytes=budget.total_bytes,
        engine=moves,
    )
    tools = TaskTools(moves, context.injector, executor=spread)
    plan = _plan(dataset, config, budget, group, device, tools.processes_per_machine)
    with ExitStack() as held:
        sorting = held.enter_context(ExitStack())
        sorting.enter_context(spread)
        for name, num_bytes in plan.reserved.items():
            held.enter_context(budget.reserve(name, num_bytes))
        held.enter_context(reproducible(config.threads, device))
        before_bytes = resident_bytes("VmRSS")
        edges = read_edge_parts(dataset, config, permutation_of(config, layout.num_nodes))
        versions = commit.partitions if commit else ()
        store = PartitionStore(folder.partitions, layout, moves, versions, context.injector)
        has_files = plan.edges_on_disk or tools.processes > 1
        files_bytes = edges_bytes(edges.num_train, edges.num_relations > 0) if has_files else 0
        warm_start = _begin(context, whole, plan, folder, store, files_bytes, commit)
        memory = held.enter_context(MemoryLog())
        slots: HostSlots | DeviceSlots
        if device is None:
            slots = HostSlots(store, layout, plan.num_slots)
        else:
            slots = DeviceSlots(store, layout, plan.num_slots, DeviceCopies(device))
        parts = EmbeddingParts(
            config=config,
            layout=layout,
            schedule=choose_order(config, group.ranks).schedule,
            store=store,
            edges_folder=held.enter_context(folder.edges(group.ranks.is_first)) if has_files else None,
            edges_on_disk=plan.edges_on_disk,
            tools=tools,
            close_executor=sorting.close,
            buffer=held.enter_context(PartitionBuffer(store, layout, slots)),
            edges=edges,
            folder=folder,
            memory=memory,
            callback=context.callback,
            group=group,
        )
        run = EmbeddingRun(parts, partial(_make_trainer, parts, slots))
        if commit is None:
            run.initialise(warm_start)
        else:
            run.restore(commit)
        run.train()
        tested = run.test()
        shared = measure_shared(group)
    sizes = {"num_nodes": layout.num_nodes, "num_edges": edges.num_train, "num_relations": edges.num_relations}
    result = make_result(
        {**describe_run(EMBEDDING, dataset, config.model, config.seed), **sizes},
        plan,
        budget,
        run.history,
        before_bytes=before_bytes,
        epochs=config.epochs,
        metric="mrr",
        test=tested,
        preparation={},
        overhead=context.overhead,
    )
    result |= memory_of_ranks(result, shared, group)
    if group.ranks.is_first:
        folder.finish(run.history, result)
    return Embedded(dataset, folder.path, whole, result)


def _make_trainer(parts: EmbeddingParts, slots: HostSlots | DeviceSlots, relations: Table | None) -> BatchTrainer:
    """Return what trains batches where the slots are."""
    if isinstance(slots, HostSlots):
        return HostTrainer(parts, slots, relations)
    return DeviceTrainer(parts, slots, relations, DeviceCopies(slots.values.device))


def sorting_executor(
    group: Group, executor: str, workers: int | None, *, threads: int, memory_bytes: int, engine: Engine
) -> Executor:
    """Return where edges are sorted. Raises ConfigError for an executor next to several ranks, one of which sorts."""
    if not group.is_alone and (executor or workers is not None):
        flag = f"--executor {executor}" if executor else f"--workers {workers}"
        raise ConfigError(
            f"{flag}: {group.ranks.count} processes train together, and one of them sorts the edges: remove it, or "
            "train in one process"
        )
    return open_executor(
        executor, workers, threads=max(threads, workers or 1), memory_bytes=memory_bytes, engine=engine
    )


def _plan(
    dataset: Dataset, config: EmbedConfig, budget: Budget, group: Group, device: torch.device | None, sorters: int
) -> EmbedPlan:
    """Plan a run, with its predicted cost. All ranks measure at once, as they train.

    config: of a rank.
    budget: of this machine.
    device: where it trains; None: in memory.
    sorters: processes of this machine that sort edges.
    """
    ranks, size = group.ranks, embed_size(dataset, config, sorters)
    plan = plan_embedding(config, size, budget, ranks)
    model = remembered_model(dataset.path, choose_engine(config.engine)[0])
    with batch_errors(device, config):
        edges_per_second = measure_edges_per_second(dataset, config, plan.reserved["partitions"], device)
    copy_rate = math.inf if device is None else measure_copy_rate(device)
    all_per_second = sum(group.gather(edges_per_second))
    predicted = predict_embedding(plan, config, size.num_edges, all_per_second, model, copy_rate)
    return replace(with_swaps_explained(plan, config, predicted, model), predicted=predicted)


def _resume(folder: EmbeddingFolder, config: EmbedConfig, dataset: Dataset, group: Group) -> Commit | None:
    """Return the last commit, on every rank. Raises ConfigError for another number of ranks."""
    commit = group.first(lambda: folder.resume(EMBEDDING, config, dataset))
    if commit is not None and len(commit.sums) != group.ranks.count:
        count = len(commit.sums)
        way = "without --processes" if count == 1 else f"with --processes {count}"
        raise ConfigError(
            f"{folder.path}: {count} process{'es' if count > 1 else ''} trained this run, which ends differently with "
            f"{group.ranks.count}; resume {way}"
        )
    return commit


def _begin(
    context: RunContext,
    config: EmbedConfig,
    plan: EmbedPlan,
    folder: EmbeddingFolder,
    store: PartitionStore,
    files_bytes: int,
    commit: Commit | None,
) -> WarmStart | None:
    """Create the folder, unless its run is resumed; return the embeddings to start from, if another run has them.

    files_bytes: disk space of sorted edges.
    """
    warm_start = None
    is_first = context.group.ranks.is_first
    if commit is None:
        if config.warm_start:
            warm_start = WarmStart(context.dataset, config)
            share = f"{warm_start.num_kept:,} of {embedded_nodes(context.dataset).num_nodes:,} nodes"
            context.callback.announced(f"Warm start: {share} initialised from {config.warm_start}")
        if is_first:
            store.require_room(files_bytes)
    if is_first:
        if not context.resume:
            folder.start(EMBEDDING, config, context.dataset)
        folder.write_plan(plan)
    context.group.wait()
    if not folder.config_path.exists():
        raise ConfigError(
            f"{folder.path}: process {context.group.ranks.rank} does not see the folder that process 0 writes; name an "
            "--out on a file system that all machines share, by the same path"
        )
    context.callback.planned(plan)
    return warm_start

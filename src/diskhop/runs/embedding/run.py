"""Embeddings of a graph's nodes, from a dataset and options to a run in a folder."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diskhop._native import Engine
from diskhop.budget import Budget, parse_sizes
from diskhop.config.embed import EmbedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.disk.probe import remembered_model
from diskhop.embedding.graph_edges import embedded_nodes, read_edge_parts
from diskhop.embedding.partitions.buffer import PartitionBuffer
from diskhop.embedding.partitions.edges import edges_bytes
from diskhop.embedding.partitions.store import PartitionStore
from diskhop.io.atomic import Injector
from diskhop.io.engine import choose_engine, open_engine
from diskhop.nn.reproducible import reproducible
from diskhop.planning.embeddings.costs import measure_edges_per_second, predict_embedding
from diskhop.planning.embeddings.partitions import choose_order, dealing_of, layout_of, plan_embedding
from diskhop.planning.embeddings.size import embed_size
from diskhop.runs.callbacks import Callback
from diskhop.runs.embedding.defaults import resolve_embed_config
from diskhop.runs.embedding.export import export_embeddings
from diskhop.runs.embedding.folder import EmbeddingFolder
from diskhop.runs.embedding.loop import EmbeddingParts, EmbeddingRun
from diskhop.runs.embedding.opened import open_run
from diskhop.runs.embedding.warm_start import WarmStart
from diskhop.runs.folder import require_new_folder
from diskhop.runs.result import describe_run, measure_memory
from diskhop.runs.source import find_run_source
from diskhop.system.memory import resident_bytes
from diskhop.system.memory_log import MemoryLog


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """A finished run: its folder, what made it, and what result.json holds."""

    dataset: Dataset
    out: Path
    config: EmbedConfig
    result: dict[str, Any]

    def export(self, path: Path | str) -> Path:
        """Write the embeddings to a .npy, .parquet or .tsv file. See export_embeddings()."""
        return export_embeddings(open_run(self.out, self.dataset), path)


def embed(
    dataset: Dataset | Path | str | None = None,
    *,
    out: Path | str,
    preset: str | None = None,
    config: Path | str | None = None,
    resume: bool = False,
    memory: int | str | None = None,
    watcher: Callback | None = None,
    **options: Any,
) -> Embedded:
    """Train embeddings of a dataset's nodes, with the options of EmbedConfig; what is not given is chosen.

    out: the folder for the run, where the partitions are. memory: bytes or a size such as '2GB'. config: a file with
    options, such as a run's config.toml; options given here win over it, and it over the preset. resume: go on with the
    run in `out`, by its config.toml. The dataset may then be left out. `watcher` is told why choices are as they are.
    """
    options.update(parse_sizes(memory=memory))
    source = find_run_source(
        dataset, options, config=config, preset=preset, out=out, resume=resume, kinds=(EmbedConfig,)
    )
    resolved = resolve_embed_config(source.dataset, source.options, preset)
    watcher = watcher or Callback()
    watcher.configured(resolved.config, resolved.reasons)
    return train_embeddings(source.dataset, resolved.config, Path(out), resume=resume, watcher=watcher)


def train_embeddings(
    dataset: Dataset,
    config: EmbedConfig,
    out: Path,
    *,
    resume: bool = False,
    watcher: Callback | None = None,
    engine: Engine | None = None,
    injector: Injector | None = None,
) -> Embedded:
    """Train by a whole configuration. See embed(); engine: that moves partitions; injector: decides over other changes.

    Raises ConfigError or BudgetError before anything is written, TrainingError if the loss is not finite.
    """
    watcher = watcher or Callback()
    if not resume:
        require_new_folder(out)
    folder, layout = EmbeddingFolder(out, injector), layout_of(config, embedded_nodes(dataset).num_nodes)
    budget = Budget(config.memory_bytes)
    plan = plan_embedding(config, embed_size(dataset, config), budget)
    device = remembered_model(dataset.path, choose_engine(config.engine)[0])
    edges_per_second = measure_edges_per_second(dataset, config, plan.reserved["partitions"])
    num_edges = embed_size(dataset, config).num_edges
    plan = replace(plan, predicted=predict_embedding(plan, config, num_edges, edges_per_second, device))
    with ExitStack() as held:
        for name, num_bytes in plan.reserved.items():
            held.enter_context(budget.reserve(name, num_bytes))
        held.enter_context(reproducible(config.threads))
        before_bytes = resident_bytes("VmRSS")
        edges = read_edge_parts(dataset, config, dealing_of(config, layout.num_nodes))
        commit = folder.resume(config, dataset) if resume else None
        moves = engine or open_engine(config.engine).engine
        store = PartitionStore(folder.partitions, layout, moves, commit.partitions if commit else (), injector)
        warm_start = WarmStart(dataset, config) if commit is None and config.warm_start else None
        if warm_start is not None:
            watcher.announced(
                f"{warm_start.num_kept:,} of {layout.num_nodes:,} nodes begin as {config.warm_start} has them"
            )
        if commit is None:
            kept_bytes = edges_bytes(edges.num_train, edges.num_relations > 0) if plan.edges_on_disk else 0
            store.require_room(kept_bytes)
        if not resume:
            folder.start(config, dataset)
        folder.write_plan(plan)
        watcher.planned(plan)
        columns = held.enter_context(folder.edges()) if plan.edges_on_disk else None
        memory = held.enter_context(MemoryLog())
        buffer = held.enter_context(PartitionBuffer(store, layout, plan.num_slots))
        run = EmbeddingRun(
            EmbeddingParts(
                config=config,
                layout=layout,
                states=choose_order(config).states,
                store=store,
                buffer=buffer,
                edges=edges,
                columns=columns,
                folder=folder,
                memory=memory,
                watcher=watcher,
            )
        )
        if commit is None:
            run.initialise(warm_start)
        else:
            run.restore(commit)
        run.train()
        tested = run.test()
    result = {
        **describe_run(dataset, config.model, config.seed),
        "num_nodes": layout.num_nodes,
        "num_edges": edges.num_train,
        "num_relations": edges.num_relations,
        **measure_memory(before_bytes, budget),
        "plan": {**plan.to_dict(), "reserved": budget.table()},
        "epochs": run.history,
        "stopped_early": run.has_stopped,
        "metric": "mrr",
        **({} if tested is None else {"test": tested}),
    }
    folder.write_result(run.history, result)
    return Embedded(dataset, out, config, result)

"""Importing a graph from an opened source: estimate, read, write, commit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from diskhop._native import Engine
from diskhop.budget import Budget, format_bytes
from diskhop.dataset.build.builder import WRITING, DatasetBuilder
from diskhop.dataset.build.files import WRITER_BYTES
from diskhop.dataset.dataset import Dataset
from diskhop.disk.probe import remembered_model
from diskhop.importing.estimate import Estimate, estimate_import
from diskhop.importing.options import ImportOptions
from diskhop.importing.source import Source
from diskhop.importing.write import write_graph
from diskhop.io.atomic import Injector, require_parent
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools
from diskhop.runtime.work_tools import WorkTools
from diskhop.runtime.workers import Workers
from diskhop.system.memory import default_memory_bytes, default_threads


def import_source(
    source: Source,
    destination: Path,
    *,
    origin: str,
    name: str | None = None,
    options: ImportOptions,
    facts: dict[str, Any] | None = None,
    engine: Engine,
    budget: Budget | None = None,
    threads: int | None = None,
    workers: int = 1,
    injector: Injector | None = None,
    progress: Progress | None = None,
    on_plan: Callable[[Estimate], None] | None = None,
) -> Dataset:
    """Make a dataset of a source that was looked at. origin: what errors call it. All else: see import_graph."""
    budget = budget or Budget(default_memory_bytes())
    threads = max(threads or default_threads(), workers)
    crew = Workers(workers, threads, engine)
    least_memory = {WRITING: WRITER_BYTES, **source.least_memory}
    budget.require(least_memory)
    estimate = estimate_import(
        source.load,
        options,
        least_memory=least_memory,
        memory_bytes=budget.total_bytes,
        threads=threads,
        device=remembered_model(require_parent(destination), engine.name),
    )
    builder = DatasetBuilder(
        destination,
        name=name or source.name,
        engine=engine,
        budget=budget,
        threads=threads,
        origin=origin,
        injector=injector,
        progress=progress,
        workers=crew,
    )
    with builder, crew, ExitStack() as held:
        what = f"the import, with a result of {format_bytes(estimate.result_bytes)},"
        builder.require_space(estimate.work_bytes - builder.work.kept_bytes(), what)
        if on_plan is not None:
            on_plan(estimate)
        shop = WorkTools(
            builder.work, TaskTools(engine, injector, workers=crew), budget, threads, progress or silent, held
        )
        graph = source.read(shop)
        found = write_graph(graph, builder, options, shop, origin)
        if facts is not None:
            facts.update(found)
        return builder.finish()

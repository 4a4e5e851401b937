"""Runs an import: detect and open the source, estimate, read, write, commit.

Objects in memory, such as PyG's, are a source already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from diskhop._native import Engine
from diskhop.budget import Budget, format_bytes
from diskhop.dataset.build.builder import WRITING, DatasetBuilder
from diskhop.dataset.build.files import WRITER_BYTES
from diskhop.dataset.dataset import Dataset
from diskhop.disk.probe import remembered_model
from diskhop.errors import ConfigError, SourceError
from diskhop.importing.estimate import Estimate, estimate_import
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.options import OF_FEATURES, OF_TABLES, ImportOptions, as_option
from diskhop.importing.source import Source
from diskhop.importing.source_file import source_errors
from diskhop.importing.sources import SOURCES
from diskhop.importing.tools import ImportLimits, ImportTools
from diskhop.importing.unknown import refuse_pickles, unknown_error
from diskhop.importing.write import write_graph
from diskhop.io.atomic import Injector, require_parent
from diskhop.runtime.executors import open_executor
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools
from diskhop.system.memory import default_memory_bytes, default_threads

OnEstimate = Callable[[Estimate], None]
OnDecisions = Callable[[Sequence[Decision]], None]
OnFacts = Callable[[Mapping[str, Any]], None]


def import_graph(
    source: Path | Source,
    destination: Path,
    *,
    origin: str = "",
    format_name: str | None = None,
    name: str | None = None,
    options: ImportOptions | None = None,
    engine: Engine,
    budget: Budget | None = None,
    threads: int | None = None,
    workers: int | None = None,
    executor: str = "",
    limits: ImportLimits | None = None,
    injector: Injector | None = None,
    progress: Progress | None = None,
    on_decisions: OnDecisions | None = None,
    on_estimate: OnEstimate | None = None,
    on_facts: OnFacts | None = None,
    overwrite: bool = False,
) -> Dataset:
    """Make a dataset from a file or folder, or from an opened source.

    origin: what errors call an opened source.
    format_name: a key of SOURCES; default: detected.
    name: the dataset's name; default: the source's.
    options: default: what the source suggests.
    budget: memory in all; default: half of the free memory.
    threads: threads in all; default: all cores.
    workers: processes that share budget and threads; 1: only this process.
    executor: where tasks run, as --executor; see runtime/executors.py.
    limits: sizes of tasks; tests pass tiny ones.
    on_decisions: receives what was decided about the source before anything is read.
    on_estimate: receives the estimate before anything is written.
    on_facts: receives what only the import knows, such as counts of duplicates.
    overwrite: whether a dataset at the destination is replaced.

    Raises SourceError for a source that breaks a rule, ConfigError for an option that does not apply, BudgetError for
    too small a budget, DestinationError for a full disk. Only the work folder is then left, if finished work is in it;
    the error names it.
    """
    options = options or ImportOptions()
    if isinstance(source, Path):
        origin = str(source)
        source = open_source(source, format_name, options)
    budget = budget or Budget(default_memory_bytes())
    limits = limits or ImportLimits()
    threads = max(threads or default_threads(), workers or 1)
    spread = open_executor(
        executor,
        workers,
        threads=threads,
        memory_bytes=budget.total_bytes,
        engine=engine,
        copied_array_bytes=limits.copied_array_bytes,
    )
    least_memory = {WRITING: WRITER_BYTES, **source.least_memory(limits)}
    budget.require(least_memory)
    estimate = estimate_import(
        source.load,
        options,
        least_memory=least_memory,
        memory_bytes=budget.total_bytes,
        threads=threads,
        disk_model=remembered_model(require_parent(destination), engine.name),
        limits=limits,
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
        sort_limits=limits.sort,
        range_bytes=limits.range_bytes,
        executor=spread,
        overwrite=overwrite,
    )
    with builder, spread, ExitStack() as held:
        what = f"the import, with a result of {format_bytes(estimate.result_bytes)},"
        builder.require_space(estimate.work_bytes - builder.work.kept_bytes(), what)
        if on_decisions is not None:
            on_decisions(source.decisions)
        if on_estimate is not None:
            on_estimate(estimate)
        tools = TaskTools(engine, injector, executor=spread)
        work = ImportTools(builder.work, tools, budget, threads, progress or silent, held, limits=limits)
        facts = write_graph(source.read(work), builder, options, work, origin)
        if on_facts is not None:
            on_facts(facts)
        return builder.finish()


def open_source(source: Path, format_name: str | None, options: ImportOptions) -> Source:
    """Open a file or folder as a kind of source; None: as the first kind that recognises it."""
    if format_name is not None and format_name not in SOURCES:
        raise ConfigError(f"--format '{format_name}' is unknown; use one of {', '.join(SOURCES)}")
    with source_errors(str(source)):
        if not source.exists():
            raise SourceError(f"{source}: does not exist; give the folder or file of a graph")
        refuse_pickles(source)
        detected = format_name or _detect(source, options)
        if detected is None:
            raise unknown_error(source, SOURCES)
    kind = SOURCES[detected]
    takes = (*kind.takes, *(OF_FEATURES if options.random_features else ()))
    unfit = [as_option(name) for name in options.given() if name not in takes]
    if unfit:
        raise ConfigError(f"{source}: {', '.join(unfit)} does not apply to {kind.looks_like}; remove it")
    return kind.open(source, options)


def _detect(source: Path, options: ImportOptions) -> str | None:
    """Find the first kind that recognises a source, or the kind that takes the same files with the options given."""
    detected = next((key for key, kind in SOURCES.items() if kind.detect(source)), None)
    if detected is None:
        return None
    instead = SOURCES[detected].instead
    unfit = set(options.given()) - {*SOURCES[detected].takes}
    # Tables read the same files, and columns next to the ids: weights and times.
    fits_instead = instead is not None and unfit <= {*OF_TABLES} and {*options.given()} <= {*SOURCES[instead].takes}
    return instead if unfit and fits_instead else detected

"""diskhop.propagate(): the command `diskhop propagate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from diskhop.budget import Budget
from diskhop.config.hop import HopConfig
from diskhop.config.options import option_fields, options_of
from diskhop.config.typed_hop import FIXED, TypedHopConfig
from diskhop.config.words import takes_words
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.errors import ConfigError
from diskhop.hops.make.plan import PropagationPlan
from diskhop.hops.make.propagate import Propagated
from diskhop.hops.make.propagate import propagate as make_hop_tables
from diskhop.hops.path_tables import propagate_paths
from diskhop.hops.paths import PathSpec
from diskhop.hops.spec import PropagationSpec
from diskhop.planning.overhead import MemoryWish
from diskhop.runs.fitted_memory import PlainNeeds, WorkMemory
from diskhop.runs.program_memory import measure_program
from diskhop.runs.result import measure_memory
from diskhop.runs.typed_hops.spec import find_path_spec
from diskhop.runtime.progress import Progress, silent
from diskhop.system.memory import default_threads, resident_bytes

_OF_TYPES = ("target", "paths", "reverse")
RESOURCES = ("memory_bytes", "total_memory_bytes", "disk_bytes", "scratch", "engine", "threads")
KINDS = (PropagationSpec, HopConfig, TypedHopConfig)
OPTIONS = (*options_of(PropagationSpec), *RESOURCES, *_OF_TYPES)


@takes_words(*KINDS, only=OPTIONS)
def propagate(
    dataset: Dataset | Path | str,
    spec: PropagationSpec | PathSpec | None = None,
    *,
    executor: str = "",
    workers: int | None = None,
    progress: Progress = silent,
    on_plan: Callable[[PropagationPlan], None] = lambda _: None,
    log: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> Propagated:
    """Aggregate features over the graph, hop by hop, into tables; existing ones are found.

    HopLoader and train(model="sign") read rows of them.

    dataset: open, or its folder.
    spec: which tables, instead of options: a PropagationSpec; of a graph with several types a PathSpec.
    executor, workers: where blocks of columns are computed, as --executor; see runtime/executors.py.
    progress: called with a stage, and what is done of it and in total.
    on_plan: called with the plan before anything is written.
    log: called with a line about the memory of the whole process, and for each folder of tables that is out of date.

    Raises ConfigError for features or a graph that cannot be propagated and for too small a disk; BudgetError;
    DestinationError.

    >>> tables = diskhop.propagate("my-graph", hops=2, memory="200MB")
    """
    opened = as_dataset(dataset)
    given = {name: value for name, value in options.items() if name not in RESOURCES}
    if spec is not None and given:
        raise ConfigError(f"{next(iter(given))} has no effect with a spec, which has all of them; remove one of them")
    if opened.has_several_types if spec is None else isinstance(spec, PathSpec):
        if executor or workers:
            raise ConfigError("--executor and --workers are for graphs of one type: remove them")
        paths = spec if isinstance(spec, PathSpec) else _path_spec(opened, given)
        return _within_memory(
            lambda use, memory: propagate_paths(
                opened, paths, **use, progress=progress, on_begin=lambda: memory.describe(log)
            ),
            options,
            None,
        )
    for name in _OF_TYPES:
        if name in given:
            raise ConfigError(
                f"{option_fields(TypedHopConfig)[name].main_flag} is for graphs with several types: remove it"
            )

    def make_tables(use: Mapping[str, Any], memory: WorkMemory) -> Propagated:
        def planned(plan: PropagationPlan) -> None:
            memory.describe(log)
            on_plan(plan)

        return make_hop_tables(
            opened,
            spec if isinstance(spec, PropagationSpec) else PropagationSpec(**given),
            **use,
            executor=executor,
            workers=workers,
            progress=progress,
            on_plan=planned,
            log=log,
        )

    return _within_memory(make_tables, options, workers)


def _within_memory(
    make_tables: Callable[[Mapping[str, Any], WorkMemory], Propagated], options: Mapping[str, Any], workers: int | None
) -> Propagated:
    """Make tables within the budget that the memory of the whole process leaves; see fit_needs().

    make_tables: takes the arguments that are about this machine, and what was predicted.
    """
    needs = PlainNeeds(
        program=measure_program(0),
        threads=options.get("threads") or default_threads(),
        processes=1 if workers in (None, 1) else 1 + workers,
    )
    memory = WorkMemory(needs, MemoryWish(options.get("memory_bytes") or 0, options.get("total_memory_bytes") or 0))
    budget, before_bytes = Budget(memory.budget_bytes), resident_bytes("VmRSS")
    with memory.explained():
        done = make_tables({"budget": budget, **_resources(options)}, memory)
    return replace(done, memory={**measure_memory(before_bytes, budget), **memory.result()})


def _path_spec(dataset: Dataset, given: Mapping[str, Any]) -> PathSpec:
    for name in FIXED:
        if name in given:
            flag = option_fields(HopConfig)[name].main_flag
            raise ConfigError(f"{flag} is for graphs of one type, and {dataset.path} has several: remove it")
    return find_path_spec(dataset, **given)


def _resources(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the functions above that are about this machine."""
    scratch = options.get("scratch")
    return {
        "disk": options.get("disk_bytes"),
        "scratch": Path(scratch) if scratch else None,
        "threads": options.get("threads"),
        "engine": options.get("engine", "auto"),
    }

"""A small run packed ahead, as tests want it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.config.sampled import SampledConfig
from diskhop.dataset.dataset import Dataset
from diskhop.io.atomic import Injector
from diskhop.io.engine import open_engine
from diskhop.pipeline.pack_ahead import Packed, pack_epochs
from diskhop.pipeline.pack_steps import Samples
from diskhop.planning.planner import choose_plan
from diskhop.plans import SampledPlan
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.nodes.packing import run_samples
from diskhop.runs.nodes.workload import training_workload

# Of a small graph: most rows are read, a segment has several batches.
OPTIONS: dict[str, Any] = {
    "hidden": 8,
    "fanout": (4, 4),
    "batch_size": 25,
    "epochs": 2,
    "memory_bytes": 200_000_000,
    "cache_bytes": 2_000,
    "threads": 1,
    "engine": "threads",
    "evaluate": False,
    "matmul": "blas",
}


def pack_small(
    dataset: Dataset,
    scratch: Path,
    *,
    disk_bytes: int | None = None,
    engine: Engine | None = None,
    injector: Injector | None = None,
    **changes: Any,
) -> Packed:
    """Pack what a run with OPTIONS and changes to them trains on."""
    options = {**OPTIONS, "scratch": str(scratch), "store": "packed", **changes}
    config, _, task = resolve_config(dataset, options)
    assert isinstance(config, SampledConfig)
    budget = Budget(config.memory_bytes)
    plan = choose_plan(dataset, training_workload(config, task.seeds, task.held, dataset.num_nodes), budget)
    samples = run_samples(config, task.seeds.train, dataset.num_nodes)
    return pack(dataset, plan, budget, samples, disk_bytes=disk_bytes, engine=engine, injector=injector)


def pack(
    dataset: Dataset,
    plan: SampledPlan,
    budget: Budget,
    samples: Samples,
    *,
    disk_bytes: int | None = None,
    engine: Engine | None = None,
    injector: Injector | None = None,
) -> Packed:
    """Pack samples by a plan, without a word."""
    return pack_epochs(
        dataset,
        plan,
        budget,
        samples,
        engine or open_engine("threads").engine,
        disk_bytes=disk_bytes,
        progress=lambda _stage, _done, _total: None,
        log=lambda _text: None,
        injector=injector,
    )

"""Norms of GraphSAINT for a run: found next to the dataset, or counted before training."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from diskhop._native import BufferPool
from diskhop.budget import Budget
from diskhop.config.sampled import SampledConfig
from diskhop.dataset.dataset import Dataset
from diskhop.derived.make import make_once
from diskhop.derived.scratch import scratch_path
from diskhop.io.engine import open_engine
from diskhop.plans import SampledPlan
from diskhop.runs.callbacks import Callback
from diskhop.runs.nodes.samplers import train_sampler
from diskhop.sampling.norms import Norms, NormsSpec, make_norms, open_norms
from diskhop.sampling.open import open_plan_topology
from diskhop.sampling.samplers import open_sampler


def prepare_norms(
    dataset: Dataset, config: SampledConfig, plan: SampledPlan, budget: Budget, callback: Callback
) -> tuple[Norms, list[dict[str, Any]]]:
    """Find the norms of a run's sampler, or make them. Returns them, and the work as entries of result.json.

    They are the same for every seed of a run. Raises BudgetError, DestinationError, FormatError, ReadError.
    """
    spec = NormsSpec(dataset_hash=dataset.hash, sampler=train_sampler(config), coverage=config.sample_coverage)
    folder = spec.folder(scratch_path(dataset.path, config.scratch or None))
    steps: list[dict[str, Any]] = []

    def count() -> None:
        started = time.perf_counter()
        engine = open_engine(plan.engine, plan.engine_depth).engine
        pool = BufferPool(plan.reserved["sampled ahead"] + plan.staging_bytes)
        with ExitStack() as opened:
            topology = opened.enter_context(open_plan_topology(dataset, plan, engine, budget, pool))
            for name in ("sampling", "sampled ahead", "staging"):
                opened.enter_context(budget.reserve(name, plan.reserved.get(name, 0)))
            sampler = open_sampler(topology, spec.sampler, 0, pool)
            threads = plan.sampling_threads
            make_norms(spec, folder, topology, sampler, budget, threads=threads, progress=callback.prepared)
        num_bytes = 4 * (dataset.num_nodes + dataset.num_edges)
        seconds = time.perf_counter() - started
        steps.append({"step": "count norms", "seconds": seconds, "bytes_read": 0, "bytes_written": num_bytes})

    make_once(folder, count, callback.prepared)
    return open_norms(folder, spec, dataset.num_nodes, dataset.num_edges), steps

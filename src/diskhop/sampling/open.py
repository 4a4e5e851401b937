"""Opens the topology that a plan chose: in memory, mapped or cached."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

from diskhop._native import BufferPool, Engine
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.plans import SampledPlan
from diskhop.sampling.cached_topology import AnyTopology, NeighborCacheOptions, open_cached_topology
from diskhop.sampling.columns import ColumnUse, check_weights, find_column
from diskhop.sampling.topology import open_topology
from diskhop.system.resident import ResidentMemory


def open_plan_topology(
    dataset: Dataset,
    plan: SampledPlan,
    engine: Engine,
    budget: Budget,
    pool: BufferPool,
    memory: ResidentMemory | None = None,
) -> AbstractContextManager[AnyTopology]:
    """Open the plan's topology with its weights and times, which are checked, and reserve its bytes.

    memory: of arrays that processes share; None: nothing is shared.
    """
    columns = tuple(find_column(dataset, ColumnUse(*each)) for each in plan.columns)
    check_weights(columns, engine, budget)
    files = replace(dataset.topology, columns=columns)
    if plan.topology != "cached":
        return open_topology(files, plan.topology, engine, budget, memory)
    options = NeighborCacheOptions(cache_bytes=plan.topology_cache_bytes, max_gap_bytes=plan.max_gap_bytes)
    return open_cached_topology(files, options, engine, budget, pool, memory)

"""Opens the topology that a plan chose: in memory, mapped or cached, or in memory that rows have in turn."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.plans import SampledPlan
from diskhop.sampling.cached_topology import AnyTopology, NeighborCacheOptions, open_cached_topology
from diskhop.sampling.columns import ColumnUse, check_weights, find_column
from diskhop.sampling.lists_in_turn import ListsInTurn, open_lists_in_turn
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


def open_plan_lists(
    dataset: Dataset,
    plan: SampledPlan,
    content: NDArray[np.uint8],
    engine: Engine,
    budget: Budget,
    pool: BufferPool,
    scratch: Path,
) -> AbstractContextManager[ListsInTurn]:
    """Open the plan's topology in memory that others have in turn. See open_lists_in_turn()."""
    options = NeighborCacheOptions(cache_bytes=plan.share.lists_in_cache_bytes, max_gap_bytes=plan.max_gap_bytes)
    return open_lists_in_turn(dataset.topology, options, content, engine, budget, pool, scratch)

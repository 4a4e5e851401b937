"""The rows to pin in memory: the most accessed, by degree or by a measured trace."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine
from diskhop.dataset.dataset import Dataset
from diskhop.plans import SampledPlan
from diskhop.policies.device_rows import place_rows
from diskhop.protocols import NodeIds
from diskhop.sampling.accesses import count_accesses
from diskhop.sampling.cached_topology import AnyTopology, count_neighbors
from diskhop.sampling.seeds import SeedSet
from diskhop.stores.group_share import pick_pinned
from diskhop.stores.stores import STORES


def counts_accesses(dataset: Dataset, store: str, pinned: str) -> bool:
    """True if the rows to pin are found by counting; in hot order they are simply the first rows."""
    return "pinned" in STORES[store].uses and not (pinned == "degree" and dataset.order == "hot")


def choose_pinned(
    dataset: Dataset,
    plan: SampledPlan,
    topology: AnyTopology,
    expected: SeedSet | None,
    engine: Engine,
    pool: BufferPool,
) -> NodeIds:
    """Choose the rows that will probably be accessed most, as many as the plan's share has memory for, ascending."""
    table = dataset.features()
    assert table is not None
    return pick_pinned(_expected_accesses(dataset, plan, topology, expected, engine, pool), table, plan.share)


def choose_ids_on_levels(
    dataset: Dataset,
    plan: SampledPlan,
    topology: AnyTopology,
    expected: SeedSet | None,
    engine: Engine,
    pool: BufferPool,
) -> NodeIds:
    """Choose the rows of the plan's places: those on a device, ascending, then those in pinned memory, ascending."""
    places = plan.row_places
    assert places is not None, "the plan has rows on a device"
    counts = _expected_accesses(dataset, plan, topology, expected, engine, pool)
    # Rows that no counted batch accesses come last, in the order of their ids.
    counts += 1
    levels = place_rows(counts, places.device_rows, places.pinned_rows)
    return np.concatenate([levels.device, levels.host])


def _expected_accesses(
    dataset: Dataset,
    plan: SampledPlan,
    topology: AnyTopology,
    expected: SeedSet | None,
    engine: Engine,
    pool: BufferPool,
) -> NDArray[Any]:
    """Return how often each row of the table is accessed: by a few sampled batches, or by its node's neighbours."""
    if plan.pinned == "accesses" and expected is not None:
        return count_accesses(topology, expected)
    return count_neighbors(dataset.topology, engine, pool)

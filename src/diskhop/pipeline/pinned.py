"""The rows to pin in memory: the most accessed, by degree or by a measured trace."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine
from diskhop.dataset.dataset import Dataset
from diskhop.plans import SampledPlan
from diskhop.policies.device_rows import place_rows
from diskhop.protocols import NodeIds, TableGroup
from diskhop.sampling.accesses import count_accesses
from diskhop.sampling.cached_topology import AnyTopology, count_neighbors
from diskhop.sampling.seeds import SeedSet
from diskhop.stores.group_share import pick_pinned
from diskhop.stores.stores import STORES


def counts_accesses(dataset: Dataset, store: str, pinned: str) -> bool:
    """True if the rows to pin are found by counting; in hot order they are simply the first rows."""
    return "pinned" in STORES[store].uses and not (pinned == "degree" and dataset.order == "hot")


def choose_rows(
    dataset: Dataset,
    plan: SampledPlan,
    topology: AnyTopology,
    expected: SeedSet | None,
    engine: Engine,
    pool: BufferPool,
    among: NodeIds | None = None,
) -> NodeIds:
    """Choose the rows that will probably be accessed most, as many as the plan has memory for, ascending.

    Those that lie on a device, if the plan has any, come before those in pinned memory; of a graph with types, both are
    chosen type by type.

    among: rows to choose from, as many as the plan has places for; None: all.
    """
    if plan.pinned == "accesses" and expected is not None:
        counts: NDArray[Any] = count_accesses(topology, expected)
    else:
        counts = count_neighbors(dataset.topology, engine, pool)
    places = plan.row_places
    if places is None:
        table = dataset.feature_table()
        assert table is not None
        return pick_pinned(counts, table, plan.share)
    # Rows that no counted batch accesses come last, in the order of their ids.
    counts += 1
    if among is not None:
        kept = counts[among]
        counts[:] = 0
        counts[among] = kept
    table = dataset.feature_table()
    if not isinstance(table, TableGroup):
        levels = place_rows(counts, places.device_rows, places.pinned_rows)
        return np.concatenate([levels.device, levels.host])
    on_device, in_memory = [], []
    for part in table.parts:
        own = places.parts[part.name]
        levels = place_rows(counts[part.first_row :][: part.table.num_rows], own.device_rows, own.pinned_rows)
        on_device.append(part.first_row + levels.device)
        in_memory.append(part.first_row + levels.host)
    return np.concatenate([*on_device, *in_memory])

"""Rows of a short trace that miss the cache, for stores with pinned rows and for caches that evict. No I/O here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.policies.lru import lru_misses
from diskhop.protocols import NodeIds
from diskhop.stores.costs import Scenario

# Share of a copy that the model's first access to lent rows takes.
_LENT_SHARE = 0.5


def least_recently_used(
    scenario: Scenario, trace: Sequence[NDArray[Any]], num_rows: int, capacity: int
) -> list[NDArray[Any]]:
    """Return what each batch of an epoch misses if the most recently used rows stay, of num_rows rows in all."""
    count = scenario.num_batches
    if scenario.is_reused:
        trace = [*trace, *trace]
    misses = list(lru_misses(trace, num_rows, capacity))
    # An epoch longer than the trace, or after others, looks like the second half of the trace.
    steady = misses[len(misses) // 2 :]
    first = misses[:count] if scenario.is_only else []
    return [*first, *(steady[number % len(steady)] for number in range(count - len(first)))]


def pinned_rows(scenario: Scenario) -> NodeIds:
    """Return the ids of the pinned rows, ascending."""
    cache_rows = scenario.plan.share.cache_rows
    if scenario.pinned is not None:
        return scenario.pinned[:cache_rows]
    return np.arange(min(cache_rows, scenario.table.num_rows), dtype=np.int64)


def not_pinned(scenario: Scenario) -> Iterator[NDArray[Any]]:
    """Yield the rows of each batch that are not pinned."""
    if scenario.pinned is None:
        for ids in scenario.trace.node_ids:
            yield ids[np.searchsorted(ids, scenario.plan.share.cache_rows) :]
        return
    is_pinned = np.zeros(scenario.table.num_rows, np.bool_)
    is_pinned[scenario.pinned] = True
    for ids in scenario.trace.node_ids:
        yield ids[~is_pinned[ids]]


def pinning_seconds(scenario: Scenario) -> float:
    """Seconds to choose the pinned rows and to read them."""
    num_bytes = len(pinned_rows(scenario)) * scenario.table.row_stride
    return scenario.counting_bytes / scenario.sequential_rate + num_bytes / scenario.shared_rate


def lent_seconds(scenario: Scenario) -> float:
    """Seconds of one core per batch for rows that the model reads in the store's memory; 0 if they are assembled."""
    if not scenario.is_lent:
        return 0.0
    return _LENT_SHARE * scenario.trace.num_rows * scenario.machine.copy_seconds

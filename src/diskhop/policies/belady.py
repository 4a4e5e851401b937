"""Belady's rule with bypass: the optimal cache for a known future, with the fewest reads (Ginex, section 3.3).

A *span* is a sequence of batches known at once. What the cache should contain after each of its batches follows from
the next use of every row, which is found by going through the span backwards (see belady.hpp).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BeladyCache
from diskhop._native import NextUses as NativeNextUses
from diskhop.protocols import NodeIds


@dataclass(frozen=True, slots=True, eq=False)
class CacheChanges:
    """Changes of the cache after a batch.

    in_positions: positions in the batch of the rows to cache, int64.
    out_ids: ids of the rows to evict, int64.
    num_hits: rows of the batch that were cached.
    """

    in_positions: NDArray[np.int64]
    out_ids: NodeIds
    num_hits: int


class NextUses(Protocol):
    """A stack of next uses, one array per batch. A list is one."""

    def append(self, next_uses: NDArray[np.uint32], /) -> None:
        """Push an array."""

    def pop(self) -> NDArray[np.uint32]:
        """Pop the last array."""


def plan_span(
    cache: BeladyCache,
    node_ids: Callable[[int], NodeIds],
    num_batches: int,
    num_rows: int,
    *,
    fills: bool,
    next_uses: NextUses,
) -> Iterator[CacheChanges]:
    """Yield the changes before the first batch of a span (ids instead of positions), then after each batch.

    cache: state after the span before; updated along the way.
    node_ids: returns the rows of a batch; called twice per batch.
    fills: rows may be read into the cache before the first batch.
    next_uses: an empty stack to work with.
    """
    uses = NativeNextUses(num_rows, num_batches)
    for number in reversed(range(num_batches)):
        next_uses.append(uses.look_back(node_ids(number)))
    yield CacheChanges(*cache.begin(uses, num_batches, fills))
    for number in range(num_batches):
        yield CacheChanges(*cache.step(node_ids(number), next_uses.pop()))


def belady_misses(
    trace: Sequence[NDArray[Any]], num_rows: int, capacity: int, *, spans: Sequence[int]
) -> Iterator[tuple[NodeIds, list[NodeIds]]]:
    """Yield for each span the rows read before its first batch, and the rows that each of its batches misses.

    spans: batches of each span. Takes 5 bytes per row of the table, and 7 per row of the trace.
    """
    is_used = np.zeros(num_rows, np.bool_)
    for ids in trace:
        is_used[ids] = True
    # Rows by their rank among those of the trace, which keeps their order: most of a large table is in no batch.
    rows = np.flatnonzero(is_used)
    ranks = np.empty(num_rows, np.uint32)
    ranks[rows] = np.arange(len(rows), dtype=np.uint32)
    cache = BeladyCache(len(rows), min(capacity, len(rows)))
    is_cached = np.zeros(len(rows), np.bool_)
    first = 0
    for span in spans:
        batches = [ranks[ids].astype(np.int64) for ids in trace[first : first + span]]
        first += span
        changes = plan_span(cache, batches.__getitem__, len(batches), len(rows), fills=True, next_uses=[])
        begin = next(changes)
        is_cached[begin.out_ids] = False
        is_cached[begin.in_positions] = True
        misses = []
        for ids, change in zip(batches, changes, strict=True):
            misses.append(rows[ids[~is_cached[ids]]])
            is_cached[change.out_ids] = False
            is_cached[ids[change.in_positions]] = True
        yield rows[begin.in_positions], misses

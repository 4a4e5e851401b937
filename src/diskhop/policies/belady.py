"""Belady's rule with bypass: of all caches that know the future, the one with the fewest reads (Ginex, section 3.3).

A *span* is the batches whose future is known together. Within it, what a cache of some rows should hold after each
batch follows from when each row is used next, found by walking over the span backwards (belady.hpp tells how).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BeladyCache, NextUses
from diskhop.counters import CacheCounts
from diskhop.protocols import NodeIds


@dataclass(frozen=True, slots=True, eq=False)
class CacheChanges:
    """What a batch changes: rows that come in, by their positions in it, int64; rows that go, int64."""

    in_positions: NDArray[np.int64]
    out_ids: NodeIds
    num_hits: int


def plan_span(cache: BeladyCache, span: Sequence[NodeIds], num_rows: int, fills: bool) -> Iterator[CacheChanges]:
    """What to change before the span's first batch (positions are ids there), then after each batch.

    cache: what is held from the span before; it goes along. fills: whether rows are read before the first batch.
    """
    uses = NextUses(num_rows, len(span))
    next_uses = [uses.look_back(ids) for ids in reversed(span)]
    yield CacheChanges(*cache.begin(uses, len(span), fills))
    for ids in span:
        yield CacheChanges(*cache.step(ids, next_uses.pop()))


def replay_belady(trace: Sequence[NodeIds], num_rows: int, capacity: int, *, span: int, fills: bool) -> CacheCounts:
    """Hits and misses of a trace, its future known `span` batches at a time."""
    counts = CacheCounts()
    cache = BeladyCache(num_rows, capacity)
    for first in range(0, len(trace), span):
        batches = trace[first : first + span]
        changes = plan_span(cache, batches, num_rows, fills)
        counts.filled += len(next(changes).in_positions)
        for ids, change in zip(batches, changes, strict=True):
            counts.hits += change.num_hits
            counts.misses += len(ids) - change.num_hits
    return counts

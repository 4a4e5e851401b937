"""Caches replayed on a trace without I/O: what the rules of policies/ should cost, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from diskhop._native import BeladyCache
from diskhop.policies.belady import plan_span
from diskhop.protocols import NodeIds


@dataclass(slots=True, kw_only=True)
class CacheCounts:
    """Hits and misses of a cache on a trace.

    hits: requests served from the cache.
    misses: requests read from disk.
    filled: rows read into the cache before a batch requested them.
    """

    hits: int = 0
    misses: int = 0
    filled: int = 0

    @property
    def rows_read(self) -> int:
        """Rows read from disk, misses and fills."""
        return self.misses + self.filled


def replay_static(trace: Iterable[NodeIds], pinned: NodeIds) -> CacheCounts:
    """Replay a trace with a fixed set of cached rows, which are read first."""
    counts = CacheCounts(filled=len(pinned))
    is_pinned = np.zeros(int(pinned.max(initial=-1)) + 1, np.bool_)
    is_pinned[pinned] = True
    for ids in trace:
        num_hits = int(np.count_nonzero(is_pinned[ids[ids < len(is_pinned)]]))
        counts.hits += num_hits
        counts.misses += len(ids) - num_hits
    return counts


def replay_belady(trace: Sequence[NodeIds], num_rows: int, capacity: int, *, span: int, fills: bool) -> CacheCounts:
    """Replay a trace with Belady's rule, which knows the next `span` batches at a time."""
    counts = CacheCounts()
    cache = BeladyCache(num_rows, capacity)
    for first in range(0, len(trace), span):
        batches = trace[first : first + span]
        changes = plan_span(cache, batches.__getitem__, len(batches), num_rows, fills=fills, next_uses=[])
        counts.filled += len(next(changes).in_positions)
        for ids, change in zip(batches, changes, strict=True):
            counts.hits += change.num_hits
            counts.misses += len(ids) - change.num_hits
    return counts

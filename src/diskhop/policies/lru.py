"""Evicting the least recently used rows, batch by batch: as a page cache does, or a buffer that batches share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.protocols import NodeIds

# Fibonacci hashing: an order of ids that is unrelated to their own.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def lru_misses(trace: Iterable[NDArray[Any]], num_rows: int, capacity: int) -> Iterator[NodeIds]:
    """Yield the rows of each batch that miss a cache of the `capacity` most recently used rows.

    Rows of one batch are used at the same time. If only some rows of a batch fit the cache, which ones is arbitrary.
    Takes 4 bytes per row of the table.
    """
    last_batch = np.full(num_rows, -1, np.int32)
    num_last_used: list[int] = []  # by batch: rows that no later one has used
    for number, ids in enumerate(trace):
        first_whole, num_cached = number, 0
        while first_whole > 0 and num_cached + num_last_used[first_whole - 1] <= capacity:
            first_whole -= 1
            num_cached += num_last_used[first_whole]
        used = last_batch[ids]
        is_cached = used >= first_whole
        if first_whole > 0:
            share = (capacity - num_cached) / num_last_used[first_whole - 1]
            with np.errstate(over="ignore"):
                place = ids.astype(np.uint64) * _MULTIPLIER
            is_cached |= (used == first_whole - 1) & (place < np.uint64(min(share, 1 - 1e-9) * 2**64))
        yield ids[~is_cached].astype(np.int64)
        known = used[used >= 0]
        for batch, count in enumerate(np.bincount(known, minlength=number)):
            num_last_used[batch] -= int(count)
        num_last_used.append(len(ids))
        last_batch[ids] = number

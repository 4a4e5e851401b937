"""Least recently used, batch by batch: what a page cache does, or a buffer that batches share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.protocols import NodeIds

# Fibonacci hashing: an order of ids that has nothing to do with their own.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def lru_misses(trace: Iterable[NDArray[Any]], num_rows: int, capacity: int) -> Iterator[NodeIds]:
    """Of each batch the rows that are not held, in its order, where the `capacity` rows used last are.

    Rows of one batch are used at the same time: of a batch that is only partly among the last ones, as many are held
    as there is room for, whichever. Holds 4 bytes a row of the table.
    """
    last_batch = np.full(num_rows, -1, np.int32)
    num_last_used: list[int] = []  # by batch: rows that no later one has used
    for number, ids in enumerate(trace):
        first_whole, num_held = number, 0
        while first_whole > 0 and num_held + num_last_used[first_whole - 1] <= capacity:
            first_whole -= 1
            num_held += num_last_used[first_whole]
        used = last_batch[ids]
        is_held = used >= first_whole
        if first_whole > 0:
            share = (capacity - num_held) / num_last_used[first_whole - 1]
            with np.errstate(over="ignore"):
                place = ids.astype(np.uint64) * _MULTIPLIER
            is_held |= (used == first_whole - 1) & (place < np.uint64(min(share, 1 - 1e-9) * 2**64))
        yield ids[~is_held].astype(np.int64)
        known = used[used >= 0]
        for batch, count in enumerate(np.bincount(known, minlength=number)):
            num_last_used[batch] -= int(count)
        num_last_used.append(len(ids))
        last_batch[ids] = number

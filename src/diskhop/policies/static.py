"""Choosing rows to pin in memory: those expected, or measured, to be accessed most."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.protocols import NodeIds


def most_accessed(counts: NDArray[Any], capacity: int) -> NodeIds:
    """Return the `capacity` rows with the highest counts, ascending; ties to the lower id, none with a count of 0.

    counts: number of accesses of each row of the table, or its node's out-degree (PaGraph).
    """
    num_counted = int(np.count_nonzero(counts))
    capacity = min(capacity, num_counted)
    if capacity == 0:
        return np.empty(0, np.int64)
    least = np.partition(counts, len(counts) - capacity)[len(counts) - capacity]
    more = np.flatnonzero(counts > least)
    ties = np.flatnonzero(counts == least)
    return np.sort(np.concatenate([more, ties[: capacity - len(more)]]))

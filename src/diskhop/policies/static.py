"""The rows that a cache holds from the first batch to the last: those expected, or measured, to be asked for most."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.protocols import NodeIds


def most_accessed(counts: NDArray[Any], capacity: int) -> NodeIds:
    """The rows with the highest counts, `capacity` at most, ties to the lower id; ascending, none with a count of 0.

    counts: of every row of the table, how often it was asked for, or its node's out-degree (PaGraph).
    """
    num_counted = int(np.count_nonzero(counts))
    capacity = min(capacity, num_counted)
    if capacity == 0:
        return np.empty(0, np.int64)
    least = np.partition(counts, len(counts) - capacity)[len(counts) - capacity]
    more = np.flatnonzero(counts > least)
    ties = np.flatnonzero(counts == least)
    return np.sort(np.concatenate([more, ties[: capacity - len(more)]]))

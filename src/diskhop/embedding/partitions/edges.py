"""Edges sorted into buckets: *bucket* (i, j) has the edges from partition i to partition j.

An edge is stored as its source's row in partition i, its destination's row in partition j and its relation, if any.
Each of these is an int32 column (see columns.py). Edges of a bucket are contiguous, in input order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop._native import keyed_permutation
from diskhop.embedding.partitions.columns import EdgeColumns
from diskhop.policies.orderings import Bucket
from diskhop.protocols import Purpose

# Places of sources, relations or None, places of destinations.
Block = tuple[NDArray[np.int64], NDArray[np.int64] | None, NDArray[np.int64]]
# Yields blocks, in the same order at every call.
EdgeBlocks = Callable[[], Iterator[Block]]

_ITEM_BYTES = 4
# Rows of both ends, relation and position in the shuffled order.
_PHASE_BYTES_PER_EDGE = 8 + 8 + _ITEM_BYTES + 8


@dataclass(frozen=True, slots=True, eq=False)
class EdgeRows:
    """Edges by the rows of their ends in the partition buffer.

    sources: int64 (edges).
    relations: int32 (edges), or None without relations.
    destinations: int64 (edges).
    """

    sources: NDArray[np.int64]
    relations: NDArray[np.int32] | None
    destinations: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sources)

    def take(self, order: NDArray[np.int64]) -> EdgeRows:
        """Return the edges at positions."""
        relations = None if self.relations is None else self.relations[order]
        return EdgeRows(self.sources[order], relations, self.destinations[order])


class EdgeBuckets:
    """Edges in buckets, see sort_edges().

    starts: int64 (buckets + 1), the first edge of each bucket.
    columns: the edges.
    """

    def __init__(self, num_partitions: int, starts: NDArray[np.int64], columns: EdgeColumns) -> None:
        self._num_partitions = num_partitions
        self._starts = starts
        self._columns = columns

    def count(self, buckets: Sequence[Bucket]) -> int:
        """Return the number of edges in buckets."""
        return sum(self._range(bucket)[1] - self._range(bucket)[0] for bucket in buckets)

    def rows(self, buckets: Sequence[Bucket], base: Callable[[int], int]) -> EdgeRows:
        """Return the edges of buckets, concatenated.

        base: returns the first row of a partition in the buffer.
        """
        num_edges, columns = self.count(buckets), self._columns
        sources, destinations = np.empty(num_edges, np.int64), np.empty(num_edges, np.int64)
        relations = None if columns.relations is None else np.empty(num_edges, np.int32)
        end = 0
        for bucket in buckets:
            first, last = self._range(bucket)
            start, end = end, end + last - first
            np.add(columns.sources.get(first, last), base(bucket[0]), out=sources[start:end])
            np.add(columns.destinations.get(first, last), base(bucket[1]), out=destinations[start:end])
            if relations is not None and columns.relations is not None:
                relations[start:end] = columns.relations.get(first, last)
        return EdgeRows(sources, relations, destinations)

    def _range(self, bucket: Bucket) -> tuple[int, int]:
        number = bucket[0] * self._num_partitions + bucket[1]
        return int(self._starts[number]), int(self._starts[number + 1])


def edges_bytes(num_edges: int, has_relations: bool) -> int:
    """Return the memory or disk space of EdgeBuckets in bytes."""
    return num_edges * _ITEM_BYTES * (3 if has_relations else 2)


def phase_bytes(num_edges: int) -> int:
    """Return the memory of a phase's EdgeRows and their order in bytes: two copies while they are shuffled."""
    return 2 * num_edges * _PHASE_BYTES_PER_EDGE


def shuffled(num_edges: int, seed: int, epoch: int, phase: int) -> NDArray[np.int64]:
    """Return the shuffled order of the edges of an epoch's phase."""
    return keyed_permutation(num_edges, seed, Purpose.BATCH_ORDER, epoch << 32 | phase)

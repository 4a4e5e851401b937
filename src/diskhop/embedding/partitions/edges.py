"""Edges sorted into buckets: *bucket* (i, j) has the edges from partition i to partition j.

An edge is stored as its source's row in partition i, its destination's row in partition j and its relation, if any.
Each of these is an int32 *column*, in memory or in a file. Edges of a bucket are contiguous, in input order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop._native import keyed_permutation
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.errors import ReadError
from diskhop.io.atomic import allocate, destination_errors
from diskhop.policies.orderings import Bucket
from diskhop.protocols import Purpose

# Yields blocks (places of sources, relations or None, places of destinations), in the same order at every call.
EdgeBlocks = Callable[[], Iterator[tuple[NDArray[np.int64], NDArray[np.int64] | None, NDArray[np.int64]]]]

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


class Column(Protocol):
    """One int32 value per edge."""

    def put(self, start: int, values: NDArray[np.int64]) -> None:
        """Set the values from `start` on."""

    def get(self, start: int, stop: int) -> NDArray[np.int32]:
        """Return the values from `start` to `stop` (exclusive)."""


class MemoryColumn:
    """Column in memory."""

    def __init__(self, num_edges: int) -> None:
        self._values = np.empty(num_edges, np.int32)

    def put(self, start: int, values: NDArray[np.int64]) -> None:
        """See Column."""
        self._values[start : start + len(values)] = values

    def get(self, start: int, stop: int) -> NDArray[np.int32]:
        """See Column."""
        return self._values[start:stop]


class FileColumn:
    """Column in a file, which is overwritten: it is derived from the dataset. Raises DestinationError, ReadError."""

    def __init__(self, path: Path, num_edges: int) -> None:
        self._path = path
        with destination_errors(path):
            path.touch()
            allocate(path, 0, num_edges * _ITEM_BYTES)

    def put(self, start: int, values: NDArray[np.int64]) -> None:
        """See Column."""
        with destination_errors(self._path), self._path.open("r+b") as file:
            file.seek(start * _ITEM_BYTES)
            file.write(values.astype(np.int32).tobytes())

    def get(self, start: int, stop: int) -> NDArray[np.int32]:
        """See Column."""
        values = np.fromfile(self._path, np.int32, stop - start, offset=start * _ITEM_BYTES)
        if len(values) != stop - start:
            raise ReadError(f"{self._path}: ended before edge {stop}; resume with --resume to write the file again")
        return values


class EdgeBuckets:
    """Edges in buckets. Reads all blocks twice: to count the edges of each bucket, then to place them.

    folder: folder of the columns' files, or None to keep the columns in memory.
    progress: called with the number of edges read, and the total over both passes.
    """

    def __init__(
        self,
        layout: PartitionLayout,
        num_edges: int,
        has_relations: bool,
        blocks: EdgeBlocks,
        folder: Path | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        num_partitions = layout.num_partitions
        self._num_partitions = num_partitions
        counts = np.zeros(num_partitions**2, np.int64)
        num_read = 0
        for sources, _, destinations in blocks():
            buckets = layout.locate(sources)[0] * num_partitions + layout.locate(destinations)[0]
            counts += np.bincount(buckets, minlength=len(counts))
            num_read += len(sources)
            progress(num_read, 2 * num_edges)
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        assert self._starts[-1] == num_edges, "the blocks have num_edges edges"

        def column(name: str) -> Column:
            return MemoryColumn(num_edges) if folder is None else FileColumn(folder / f"{name}.bin", num_edges)

        self._sources, self._destinations = column("sources"), column("destinations")
        self._relations = column("relations") if has_relations else None
        filled = self._starts[:-1].copy()
        for sources, relations, destinations in blocks():
            self._place(layout, sources, relations, destinations, filled)
            num_read += len(sources)
            progress(num_read, 2 * num_edges)

    def count(self, buckets: Sequence[Bucket]) -> int:
        """Return the number of edges in buckets."""
        return sum(self._range(bucket)[1] - self._range(bucket)[0] for bucket in buckets)

    def rows(self, buckets: Sequence[Bucket], base: Callable[[int], int]) -> EdgeRows:
        """Return the edges of buckets, concatenated.

        base: returns the first row of a partition in the buffer.
        """
        num_edges = self.count(buckets)
        sources, destinations = np.empty(num_edges, np.int64), np.empty(num_edges, np.int64)
        relations = None if self._relations is None else np.empty(num_edges, np.int32)
        end = 0
        for bucket in buckets:
            first, last = self._range(bucket)
            start, end = end, end + last - first
            np.add(self._sources.get(first, last), base(bucket[0]), out=sources[start:end])
            np.add(self._destinations.get(first, last), base(bucket[1]), out=destinations[start:end])
            if relations is not None and self._relations is not None:
                relations[start:end] = self._relations.get(first, last)
        return EdgeRows(sources, relations, destinations)

    def _place(
        self,
        layout: PartitionLayout,
        sources: NDArray[np.int64],
        relations: NDArray[np.int64] | None,
        destinations: NDArray[np.int64],
        filled: NDArray[np.int64],
    ) -> None:
        """Append a block's edges to their buckets. filled: the next free position of each bucket, updated."""
        source_partitions, source_rows = layout.locate(sources)
        destination_partitions, destination_rows = layout.locate(destinations)
        # NumPy sorts 16-bit integers by radix sort.
        buckets = (source_partitions * self._num_partitions + destination_partitions).astype(np.uint16)
        order = np.argsort(buckets, kind="stable")
        found, firsts, counts = np.unique(buckets[order], return_index=True, return_counts=True)
        for bucket, first, count in zip(found, firsts, counts, strict=True):
            taken = order[first : first + count]
            start = int(filled[bucket])
            self._sources.put(start, source_rows[taken])
            self._destinations.put(start, destination_rows[taken])
            if self._relations is not None and relations is not None:
                self._relations.put(start, relations[taken])
            filled[bucket] += count

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

"""Sorting edges into buckets: ranges of the input are parts of a job that any process can run (runtime/jobs.py).

First each range counts its edges by bucket, then it writes them at their places in the columns. Ranges do not depend on
the processes, and a range that is repeated writes the same bytes at the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop.embedding.partitions.columns import Column, EdgeColumns, FileColumn, MemoryColumn
from diskhop.embedding.partitions.edges import Block, EdgeBuckets
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.runtime.tasks import TaskTools, run_job

_ITEM = np.dtype(np.int32)
LEAST_RANGE_EDGES, _MOST_RANGES = 1 << 20, 64
# Ranges times buckets, of which memory has the counts.
_MOST_COUNTS = 1 << 20


class EdgeShare(Protocol):
    """Edges to sort, among those of an input; plain data, or objects that can be copied to a worker."""

    @property
    def num_edges(self) -> int:
        """Their number."""

    @property
    def num_input(self) -> int:
        """Number of edges of the input."""

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """Yield those from edge `start` to `stop` of the input, a block at a time, in the order of the input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SortJob:
    """See the module.

    layout: partitions.
    edges: what is sorted.
    num_parts: number of ranges.
    counts: (ranges, buckets): edges of each bucket in a range; later where the first of them is placed.
    columns: where edges are placed; None to count.
    """

    layout: PartitionLayout
    edges: EdgeShare
    num_parts: int
    counts: Column
    columns: EdgeColumns | None = None

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """Count or place the edges of a range (see Job)."""
        num_input, num_buckets = self.edges.num_input, self.layout.num_partitions**2
        blocks = self.edges.blocks(number * num_input // self.num_parts, (number + 1) * num_input // self.num_parts)
        own = np.array([number * num_buckets]), np.array([num_buckets])
        if self.columns is None:
            counts = np.zeros(num_buckets, np.int64)
            for sources, _, destinations in blocks:
                counts += np.bincount(self._buckets(sources, destinations), minlength=num_buckets)
            self.counts.put(*own, counts)
        else:
            filled = self.counts.get(number * num_buckets, (number + 1) * num_buckets).copy()
            for block in blocks:
                self._place(self.columns, block, filled)

    def _place(self, columns: EdgeColumns, block: Block, filled: NDArray[np.int64]) -> None:
        """Append a block's edges to their buckets. filled: the next free position of each bucket, updated."""
        sources, relations, destinations = block
        order = np.argsort(buckets := self._buckets(sources, destinations), kind="stable")
        found, counts = np.unique(buckets[order], return_counts=True)
        starts = filled[found]
        columns.sources.put(starts, counts, self.layout.locate(sources)[1][order])
        columns.destinations.put(starts, counts, self.layout.locate(destinations)[1][order])
        if columns.relations is not None and relations is not None:
            columns.relations.put(starts, counts, relations[order])
        filled[found] += counts

    def _buckets(self, sources: NDArray[np.int64], destinations: NDArray[np.int64]) -> NDArray[np.uint16]:
        """Return the bucket of each edge; NumPy sorts 16-bit integers by radix sort."""
        of_sources, of_destinations = self.layout.locate(sources)[0], self.layout.locate(destinations)[0]
        return (of_sources * self.layout.num_partitions + of_destinations).astype(np.uint16)


def num_ranges(num_input: int, num_partitions: int) -> int:
    """Return the number of ranges into which an input is divided."""
    return max(1, min(_MOST_RANGES, num_input // LEAST_RANGE_EDGES, _MOST_COUNTS // num_partitions**2))


def counts_bytes(num_input: int, num_partitions: int) -> int:
    """Return the memory of the counts, and of where the edges of each range begin."""
    return 4 * 8 * num_ranges(num_input, num_partitions) * num_partitions**2


def sort_edges(
    layout: PartitionLayout,
    edges: EdgeShare,
    *,
    has_relations: bool,
    folder: Path | None,
    in_memory: bool,
    tools: TaskTools,
    progress: Callable[[int, int], None],
) -> EdgeBuckets:
    """Sort edges into buckets, in all processes of an executor.

    folder: an empty folder for files of columns; None sorts in this process, in memory.
    in_memory: whether sorted edges are read into memory, and the files are not needed any more.
    progress: called with the number of edges read, and the total over both passes.
    """
    num_parts, num_buckets = num_ranges(edges.num_input, layout.num_partitions), layout.num_partitions**2
    column = partial(_column, folder)
    counts = column("counts", num_parts * num_buckets, np.dtype(np.int64))
    job = SortJob(layout=layout, edges=edges, num_parts=num_parts, counts=counts)

    def run(job: SortJob, parts_before: int) -> None:
        def report(done: int, _: int) -> None:
            progress((parts_before + done) * edges.num_input // num_parts, 2 * edges.num_input)

        # The folder has no task outputs: the parts of a job are written in place.
        run_job(job, folder or Path(), tools, threads=min(tools.processes, num_parts), here=1, progress=report)

    run(job, 0)
    # A bucket has its edges of the first range, then those of the second, and so on.
    by_bucket = counts.get(0, num_parts * num_buckets).reshape(num_parts, num_buckets).T
    stops = np.cumsum(by_bucket).reshape(num_buckets, num_parts)
    assert stops[-1, -1] == edges.num_edges, "the blocks have num_edges edges"
    first = (stops - by_bucket).T
    starts = np.append(first[0], edges.num_edges)
    counts.put(np.array([0]), np.array([first.size]), first.reshape(-1))
    columns = EdgeColumns(
        sources=column("sources", edges.num_edges, _ITEM),
        destinations=column("destinations", edges.num_edges, _ITEM),
        relations=column("relations", edges.num_edges, _ITEM) if has_relations else None,
    )
    run(replace(job, columns=columns), num_parts)
    if folder is not None and in_memory:
        columns = EdgeColumns(
            sources=_loaded(columns.sources, edges.num_edges),
            destinations=_loaded(columns.destinations, edges.num_edges),
            relations=None if columns.relations is None else _loaded(columns.relations, edges.num_edges),
        )
    return EdgeBuckets(layout.num_partitions, starts, columns)


def _column(folder: Path | None, name: str, num_values: int, dtype: np.dtype[Any]) -> Column:
    if folder is None:
        return MemoryColumn(np.empty(num_values, dtype))
    return FileColumn(folder / f"{name}.bin", num_values, dtype)


def _loaded(column: Column, num_values: int) -> Column:
    return MemoryColumn(column.get(0, num_values))

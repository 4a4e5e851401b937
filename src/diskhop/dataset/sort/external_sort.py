"""External sorting of edges: sample, partition into buckets, spill, then read back and sort one bucket at a time.

The core does the work (csc.hpp defines the terms); this module orchestrates it. Spills are a stage of the work folder
of the destination. Sorted edges go straight to the writer and are sorted again after a crash, which is the smaller half
of the work.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, EdgeSpill, KeyRange, SortedEdges, SpilledEdges
from diskhop.budget import Budget
from diskhop.dataset.edges import EdgeSource
from diskhop.dataset.manifest import MOST_COUNT
from diskhop.dataset.sort.keys import EdgeShape, spill_edges
from diskhop.dataset.sort.plan import (
    SPARE_BLOCKS,
    WINDOW_BLOCKS,
    SortLimits,
    SpillLayout,
    ThreadSplit,
    plan_spills,
    smallest_sort_bytes,
    split_threads,
)
from diskhop.errors import BudgetError
from diskhop.io.atomic import remove_tree, require_free_space, write_file
from diskhop.runtime.blocks import map_in_order, row_ranges
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools, WorkFolder, run_tasks

# Version of the files on disk: a change invalidates the work of earlier runs.
_WORK_FORMAT = 4
_LAYOUT_NAME = ".cut"
_SAMPLED_PLACES = 1024
_SAMPLED_EDGES_PER_PLACE = 128
_SAMPLE_BYTES_PER_EDGE = 64
_SAMPLING_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorting:
    """The means of sorting edges.

    work: work folder of the destination.
    stage: name of the stage with the spills.
    budget: memory to reserve from.
    threads: maximum number of threads.
    tools: engine and workers.
    progress: receives progress.
    limits: limits of the sort.
    """

    work: WorkFolder
    stage: str
    budget: Budget
    threads: int
    tools: TaskTools
    progress: Progress
    limits: SortLimits


@dataclass(frozen=True, slots=True, eq=False)
class EdgeSample:
    """A sample of edges: short runs at evenly spaced places.

    sources: source ids.
    destinations: destination ids.
    numbers: int64, edge numbers.
    """

    sources: NDArray[Any]
    destinations: NDArray[Any]
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, edges: EdgeSource) -> EdgeSample:
        """Sample a constant number of edges."""
        num_places = min(_SAMPLED_PLACES, edges.num_edges)
        places = [number * edges.num_edges // num_places for number in range(num_places)]
        if not places:
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
        with ThreadPoolExecutor(_SAMPLING_THREADS) as readers:
            runs = readers.map(partial(_copied_run, edges), places, [*places[1:], edges.num_edges])
            return cls(*(np.concatenate(column) for column in zip(*runs, strict=True)))


class ExternalSort:
    """The stage with the spills of some edges. sample: a sample of these edges, if there is one already."""

    def __init__(self, edges: EdgeSource, shape: EdgeShape, sorting: Sorting, sample: EdgeSample | None = None) -> None:
        self._edges = edges
        self._shape = shape
        self._sorting = sorting
        self._budget, self._tools, self._limits = sorting.budget, sorting.tools, sorting.limits
        layout = shape.layout()
        self._key_bytes = layout.key_bytes
        # Node counts that the edges determine do not change the files: only the bits of ids do.
        counts = None if shape.counts_are_found else (shape.num_sources, shape.num_destinations)
        bits = (layout.source_bits, layout.destination_bits, layout.number_bits)
        facts = {"counts": counts, "bits": bits, "edges": shape.num_edges, "source": edges.identity}
        key = json.dumps({**facts, "format": _WORK_FORMAT}, indent=1)
        work, stage = sorting.work, sorting.stage
        # A budget that is too small is refused before anything is written.
        planned = self._plan_spills()
        threads = self._plan_threads(planned)
        self._folder = work.stage(stage, key)
        kept = self._read_layout()
        if kept is not None:
            self._spills, self._starts = kept
            try:
                self._threads = self._plan_threads(self._spills)
            except BudgetError:  # started with more memory than is available now
                remove_tree(self._folder, self._tools.injector)
                self._folder = work.stage(stage, key)
            else:
                return
        self._spills, self._threads = planned, threads
        with self._budget.reserve("sampling edges", sample_bytes(edges)):
            self._starts = _starts_of(sample or EdgeSample.of(edges), shape, planned.num_buckets)
        content = json.dumps({"cut": asdict(self._spills), "starts": self._starts}).encode()
        write_file(self._folder / _LAYOUT_NAME, content, self._tools.injector)

    def spill(self) -> None:
        """Write the spills that are missing. Raises SourceError for the first id out of range."""
        starts = self._bucket_starts()
        tasks = [
            _SpillTask(path.name, self._edges, self._shape, start, stop, starts, self._spills, self._limits)
            for path, (start, stop) in zip(self._spill_paths(), self._spilled_edges(), strict=True)
        ]
        if not all((self._folder / task.name).exists() for task in tasks):
            self._require_space()
        with self._budget.reserve("spilling edges", self._threads.spill_bytes):
            run_tasks(
                tasks,
                self._folder,
                self._tools,
                threads=self._threads.spill_threads,
                pool_bytes=self._threads.spill_bytes,
                progress=partial(self._sorting.progress, "spilling edges"),
            )

    def highest_id(self) -> int:
        """Return the highest id at either end of any edge; needs edges that determine the node counts."""
        return max(int(_highest_path(path).read_bytes()) for path in self._spill_paths())

    @contextmanager
    def sort(self) -> Iterator[Iterator[SortedEdges]]:
        """Yield all edges in order, in pieces; the next pieces are read and sorted while the caller uses one."""
        with self._budget.reserve("sorting edges", self._threads.sort_bytes):
            spilled = SpilledEdges(
                self._tools.engine,
                BufferPool(self._threads.sort_bytes),
                self._shape.layout(),
                [str(path) for path in self._spill_paths()],
                self._bucket_starts(),
                WINDOW_BLOCKS,
            )
            with closing(map_in_order(spilled.sort, self._ranges(spilled), self._threads.sort_threads)) as pieces:
                yield pieces

    def _ranges(self, spilled: SpilledEdges) -> Iterator[KeyRange]:
        for bucket in range(len(self._starts)):
            yield from spilled.cut(bucket, self._threads.sorted_keys)

    def _spilled_edges(self) -> list[tuple[int, int]]:
        return list(row_ranges(self._shape.num_edges, self._spills.spill_edges))

    def _spill_paths(self) -> list[Path]:
        return [self._folder / f"spill-{number:05}" for number in range(len(self._spilled_edges()))]

    def _bucket_starts(self) -> NDArray[np.uint64]:
        return np.array([(start >> 64, start & (2**64 - 1)) for start in self._starts], np.uint64)

    def _plan_spills(self) -> SpillLayout:
        return plan_spills(
            self._shape.num_edges, self._key_bytes, self._budget.available_bytes, self._sorting.threads, self._limits
        )

    def _plan_threads(self, spills: SpillLayout) -> ThreadSplit:
        try:
            return split_threads(
                spills,
                self._shape.num_edges,
                self._key_bytes,
                self._budget.available_bytes,
                self._sorting.threads,
                self._limits,
            )
        except BudgetError:
            smallest_bytes = smallest_sort_bytes(self._shape.num_edges, self._key_bytes, self._limits)
            self._budget.require({"sorting edges": smallest_bytes})
            raise

    def _read_layout(self) -> tuple[SpillLayout, list[int]] | None:
        path = self._folder / _LAYOUT_NAME
        if not path.exists():
            return None
        content = json.loads(path.read_bytes())
        return SpillLayout(**content["cut"]), content["starts"]

    def _require_space(self) -> None:
        """Require disk space for the missing spills and the lists."""
        layout = self._shape.layout()
        ends = [*self._starts[1:], 1 << (layout.source_bits + layout.destination_bits + layout.number_bits)]
        widest = max((end - 1 - start).bit_length() for start, end in zip(self._starts, ends, strict=True))
        spilled_bytes = self._shape.num_edges * -(-widest // 8)
        kept_bytes = sum(path.stat().st_size for path in self._folder.iterdir())
        require_free_space(self._folder, spilled_bytes + self._shape.list_bytes - kept_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class _SpillTask:
    """Reads a run of edges, checks and partitions them into a spill."""

    name: str
    edges: EdgeSource
    shape: EdgeShape
    first_edge: int
    end_edge: int
    starts: NDArray[np.uint64]
    spills: SpillLayout
    limits: SortLimits

    def write(self, path: Path, tools: TaskTools) -> None:
        """Write the spill (see Task)."""
        spill = EdgeSpill(
            tools.engine,
            tools.pool,
            str(path),
            self.shape.layout(),
            self.starts,
            self.spills.block_bytes,
            SPARE_BLOCKS,
        )
        highest = spill_edges(spill, self.edges, self.shape, self.first_edge, self.end_edge, self.limits.read_edges)
        spill.finish()
        if self.shape.counts_are_found:  # durable before the spill gets its name
            write_file(_highest_path(path.with_name(self.name)), b"%d" % highest, tools.injector)


def shape_of_sample(sample: EdgeSample, num_edges: int, is_numbered: bool, origin: str) -> EdgeShape:
    """Estimate node counts from the bits of sampled ids, which fit all edges unless higher ids are very rare."""
    highest = max(int(sample.sources.max(initial=0)), int(sample.destinations.max(initial=0)))
    highest = min(highest, MOST_COUNT - 1)
    # The dtype of indices changes at 2^32, not above it.
    most = 2**32 - 1 if highest.bit_length() == 32 else 1 << highest.bit_length()
    return EdgeShape(
        num_sources=most,
        num_destinations=most,
        num_edges=num_edges,
        is_numbered=is_numbered,
        origin=origin,
        counts_are_found=True,
    )


def _highest_path(spill: Path) -> Path:
    return spill.with_name(f".{spill.name}.highest")


def _starts_of(sample: EdgeSample, shape: EdgeShape, num_buckets: int) -> list[int]:
    """Choose the first keys of buckets of about equal size from a sample."""
    sources, destinations, numbers = sample.sources, sample.destinations, sample.numbers
    # Ids out of range are refused when they are spilled.
    is_good = (sources >= 0) & (sources < shape.num_sources)
    is_good &= (destinations >= 0) & (destinations < shape.num_destinations)
    sources, destinations, numbers = sources[is_good], destinations[is_good], numbers[is_good]
    order = np.lexsort((numbers, sources, destinations))
    layout = shape.layout()
    starts = {0}
    for bucket in range(1, num_buckets if len(order) else 0):
        edge = order[bucket * len(order) // num_buckets]
        key = (int(destinations[edge]) << layout.source_bits) | int(sources[edge])
        starts.add((key << layout.number_bits) | (int(numbers[edge]) if shape.is_numbered else 0))
    return sorted(starts)


def sample_bytes(edges: EdgeSource) -> int:
    """Return the memory of a sample and of sorting it."""
    return min(edges.num_edges, _SAMPLED_PLACES * _SAMPLED_EDGES_PER_PLACE) * _SAMPLE_BYTES_PER_EDGE


def _copied_run(edges: EdgeSource, first: int, end: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
    """Copy sources, destinations and numbers of a few edges; views would keep the whole blocks that were read."""
    sources, destinations = edges.read(first, min(_SAMPLED_EDGES_PER_PLACE, end - first))
    return sources.copy(), destinations.copy(), first + np.arange(len(sources))

"""Sorting edges by way of the disk: sample, cut, spill, sort, then read the parts back one after another.

The core does the work (csc.hpp has the words); here is the order of things. What is on the disk is a stage of the
destination's work folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, EdgeSpill, StreamFile, StreamReader, sort_bucket
from diskhop.budget import Budget
from diskhop.dataset.edge_keys import EdgeShape, spill_edges
from diskhop.dataset.edges import EdgeSource
from diskhop.dataset.progress import Progress, row_ranges
from diskhop.dataset.sort_plan import (
    SPARE_BLOCKS,
    WINDOW_BLOCKS,
    Crew,
    Cut,
    SortLimits,
    plan_crew,
    plan_cut,
    reading_sorted_bytes,
    smallest_sort_bytes,
)
from diskhop.errors import BudgetError
from diskhop.io.atomic import announce, remove_tree, require_free_space, write_file
from diskhop.tasks import Task, Tools, WorkFolder, run_tasks

# Part of what is on the disk: a change of it makes earlier work useless.
_WORK_FORMAT = 2
_CUT_NAME = ".cut"
_SAMPLED_PLACES = 1024
_SAMPLED_EDGES_A_PLACE = 128
_SAMPLE_BYTES_AN_EDGE = 64
_SAMPLING_THREADS = 8
_INDICES, _INDPTR, _NUMBERS = range(3)  # streams of a part


class ExternalSort:
    """The stage of a work folder that ends with a part for each bucket."""

    def __init__(
        self,
        edges: EdgeSource,
        shape: EdgeShape,
        work: WorkFolder,
        stage: str,
        budget: Budget,
        threads: int,
        tools: Tools,
        limits: SortLimits,
    ) -> None:
        self._edges = edges
        self._shape = shape
        self._budget = budget
        self._threads = threads
        self._tools = tools
        self._limits = limits
        self._key_bytes = shape.layout().key_bytes
        key = json.dumps({**asdict(shape), "origin": "", "source": edges.identity, "format": _WORK_FORMAT}, indent=1)
        # Too small a budget is refused before anything is written.
        wanted = self._plan_cut()
        crew = self._plan_crew(wanted)
        self._folder = work.stage(stage, key)
        kept = self._read_cut()
        if kept is not None:
            self._cut, self._starts = kept
            try:
                self._crew = self._plan_crew(self._cut)
            except BudgetError:  # begun with more memory than there is now
                remove_tree(self._folder, tools.injector)
                self._folder = work.stage(stage, key)
            else:
                return
        self._cut, self._crew = wanted, crew
        with budget.reserve("sampling edges", _SAMPLED_PLACES * _SAMPLED_EDGES_A_PLACE * _SAMPLE_BYTES_AN_EDGE):
            self._starts = _bucket_starts(edges, shape, wanted.num_buckets)
        content = json.dumps({"cut": asdict(self._cut), "starts": self._starts}).encode()
        write_file(self._folder / _CUT_NAME, content, tools.injector)

    def _part_paths(self) -> list[Path]:
        """In the order of the lists."""
        return [self._folder / f"part-{bucket:05}" for bucket in range(len(self._starts))]

    def open_lists(self) -> PartEdges:
        """The lists, once run() is done."""
        return PartEdges(self._part_paths(), self._shape, self._tools, self._budget, self._limits)

    def run(self, progress: Progress) -> None:
        """Do what is not done yet."""
        parts = self._part_paths()
        starts = np.array([(start >> 64, start & (2**64 - 1)) for start in self._starts], np.uint64)
        spills = [
            _SpillTask(f"spill-{number:05}", self._edges, self._shape, start, stop, starts, self._cut, self._limits)
            for number, (start, stop) in enumerate(row_ranges(self._shape.num_edges, self._cut.spill_edges))
        ]
        spill_paths = [self._folder / spill.name for spill in spills]
        if not all(path.exists() for path in parts):
            self._require_space()
            sorts = [
                _SortTask(path.name, self._shape, spill_paths, starts, bucket, self._crew, self._limits)
                for bucket, path in enumerate(parts)
            ]
            crew = self._crew
            self._run("spilling edges", spills, crew.spill_threads, crew.spill_bytes, progress)
            self._run("sorting edges", sorts, crew.sort_threads, crew.sort_bytes, progress)
        for path in filter(Path.exists, spill_paths):
            announce(self._tools.injector, "rename", path)
            path.unlink()

    def _run(self, stage: str, tasks: Sequence[Task], threads: int, held_bytes: int, progress: Progress) -> None:
        with self._budget.reserve(stage, held_bytes):
            tools = replace(self._tools, pool=BufferPool(held_bytes))
            run_tasks(tasks, self._folder, tools, threads=threads, progress=partial(progress, stage))

    def _plan_cut(self) -> Cut:
        return plan_cut(
            self._shape.num_edges, self._key_bytes, self._budget.available_bytes, self._threads, self._limits
        )

    def _plan_crew(self, cut: Cut) -> Crew:
        try:
            return plan_crew(
                cut,
                self._shape.num_edges,
                self._key_bytes,
                self._budget.available_bytes,
                self._threads,
                self._limits,
            )
        except BudgetError:
            smallest_bytes = smallest_sort_bytes(self._shape.num_edges, self._key_bytes, self._limits)
            self._budget.require({"sorting edges": smallest_bytes})
            raise

    def _read_cut(self) -> tuple[Cut, list[int]] | None:
        path = self._folder / _CUT_NAME
        if not path.exists():
            return None
        content = json.loads(path.read_bytes())
        return Cut(**content["cut"]), content["starts"]

    def _require_space(self) -> None:
        """For spills and parts, then for parts and what is made of them."""
        part_bytes = self._shape.part_bytes
        most_bytes = part_bytes + max(part_bytes, self._shape.num_edges * self._key_bytes)
        kept_bytes = sum(path.stat().st_size for path in self._folder.iterdir())
        require_free_space(self._folder, most_bytes - kept_bytes)


class PartEdges:
    """Lists read back from the parts of all buckets."""

    def __init__(self, paths: list[Path], shape: EdgeShape, tools: Tools, budget: Budget, limits: SortLimits) -> None:
        self._paths = paths
        self._shape = shape
        self._engine = tools.engine
        self._reservation = budget.reserve("reading sorted edges", reading_sorted_bytes(limits))
        num_streams = 3 if shape.is_numbered else 2
        window_bytes = 2 * WINDOW_BLOCKS // num_streams * limits.part_block_bytes
        pool = BufferPool(0)
        self._windows = [pool.take(window_bytes) for _ in range(num_streams)]

    def indptr(self) -> Iterator[NDArray[np.int64]]:
        """See csc.SortedEdges."""
        return self._read(_INDPTR, np.int64)

    def indices(self) -> Iterator[NDArray[Any]]:
        """See csc.SortedEdges."""
        return self._read(_INDICES, self._shape.index_dtype)

    def edge_ids(self) -> Iterator[NDArray[np.int64]]:
        """See csc.SortedEdges."""
        return self._read(_NUMBERS, np.int64)

    def _read(self, stream: int, dtype: Any) -> Iterator[NDArray[Any]]:
        window = self._windows[stream]
        for path in self._paths:
            reader = StreamReader(self._engine, StreamFile(self._engine, str(path)), stream, window)
            while len(block := reader.next()):
                yield block.view(dtype)

    def __enter__(self) -> PartEdges:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._windows
        self._reservation.release()


@dataclass(frozen=True, slots=True, eq=False)
class _SpillTask:
    """Reads a run of the edges, checks and partitions them."""

    name: str
    edges: EdgeSource
    shape: EdgeShape
    first_edge: int
    end_edge: int
    starts: NDArray[np.uint64]
    cut: Cut
    limits: SortLimits

    def write(self, path: Path, tools: Tools) -> None:
        """See Task."""
        spill = EdgeSpill(
            tools.engine,
            tools.pool,
            str(path),
            self.shape.layout(),
            self.starts,
            self.cut.block_bytes,
            SPARE_BLOCKS,
        )
        spill_edges(spill, self.edges, self.shape, self.first_edge, self.end_edge, self.limits.read_edges)
        spill.finish()


@dataclass(frozen=True, slots=True, eq=False)
class _SortTask:
    """Sorts a bucket of all spills into its part of the lists."""

    name: str
    shape: EdgeShape
    spill_paths: list[Path]
    starts: NDArray[np.uint64]
    bucket: int
    crew: Crew
    limits: SortLimits

    def write(self, path: Path, tools: Tools) -> None:
        """See Task."""
        sort_bucket(
            tools.engine,
            tools.pool,
            self.shape.layout(),
            [str(spill) for spill in self.spill_paths],
            self.starts,
            self.bucket,
            str(path),
            self.limits.part_block_bytes,
            SPARE_BLOCKS,
            WINDOW_BLOCKS,
            self.crew.sorted_keys,
        )


def _bucket_starts(edges: EdgeSource, shape: EdgeShape, num_buckets: int) -> list[int]:
    """Keys that cut the edges into about equal shares, by a sample: runs of edges at evenly spread places."""
    num_edges = shape.num_edges
    num_places = min(_SAMPLED_PLACES, num_edges)
    places = [number * num_edges // num_places for number in range(num_places)]
    with ThreadPoolExecutor(_SAMPLING_THREADS) as readers:
        runs = list(readers.map(lambda first, end: _copied_run(edges, first, end), places, [*places[1:], num_edges]))
    sources, destinations, numbers = (np.concatenate(column) for column in zip(*runs, strict=True))
    # What is out of range is refused when it is spilled.
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


def _copied_run(edges: EdgeSource, first: int, end: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
    """Sources, destinations and numbers of a few edges. Copies: a view would keep all that was read along."""
    sources, destinations = edges.read(first, min(_SAMPLED_EDGES_A_PLACE, end - first))
    return sources.copy(), destinations.copy(), first + np.arange(len(sources))

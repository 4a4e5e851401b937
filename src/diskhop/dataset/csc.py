"""From edge pairs to in-neighbour lists (CSC), in memory where they fit, else by way of the disk.

The core does the sorting (csc.hpp has the words); here is the order of things: sample, cut, spill, sort, and reading
the parts back one after another. What is on the disk is a stage of the destination's work folder.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, EdgeSpill, EdgeTable, KeyLayout, StreamFile, StreamReader, sort_bucket
from diskhop.budget import Budget, Reservation
from diskhop.dataset.edges import EdgeSource
from diskhop.dataset.progress import Progress, row_ranges
from diskhop.dataset.sort_plan import (
    SPARE_BLOCKS,
    WINDOW_BLOCKS,
    Crew,
    Cut,
    SortLimits,
    bytes_in_memory,
    plan_crew,
    plan_cut,
)
from diskhop.errors import BudgetError, SourceError
from diskhop.io.atomic import announce, remove_tree, require_free_space, write_file
from diskhop.tasks import Tools, WorkFolder, run_tasks

# Part of what is on the disk: a change of it makes earlier work useless.
_WORK_FORMAT = 1
_CUT_NAME = ".cut"
_SAMPLED_PLACES = 1024
_SAMPLED_EDGES_A_PLACE = 128
_SAMPLE_BYTES_AN_EDGE = 64
_SAMPLING_THREADS = 8
_BLOCK = 1 << 20
_INDICES, _INDPTR, _NUMBERS = range(3)  # streams of a part


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeShape:
    """What keys are made of: node counts, edge count, and whether edges keep their numbers. origin: for errors."""

    num_sources: int
    num_destinations: int
    num_edges: int
    is_numbered: bool
    origin: str

    def layout(self) -> KeyLayout:
        """How keys lie in memory."""
        return KeyLayout(self.num_sources, self.num_destinations, max(1, self.num_edges) if self.is_numbered else 0)

    @property
    def index_dtype(self) -> np.dtype[Any]:
        """Of `indices`."""
        return np.dtype(np.uint32 if self.layout().index_bytes == 4 else np.int64)

    @property
    def part_bytes(self) -> int:
        """What the lists take on the disk."""
        edge_bytes = self.layout().index_bytes + 8 * self.is_numbered
        return self.num_edges * edge_bytes + 8 * (self.num_destinations + 1)


class SortedEdges(Protocol):
    """In-neighbour lists in blocks, front to back; a context that holds what they are read with."""

    def indptr(self) -> Iterator[NDArray[np.int64]]:
        """indptr (destinations + 1)."""

    def indices(self) -> Iterator[NDArray[Any]]:
        """Sources (edges), of the dtype that the format asks for."""

    def edge_ids(self) -> Iterator[NDArray[np.int64]]:
        """The source's number of each edge (edges); only of edges that were sorted with their numbers."""

    def __enter__(self) -> SortedEdges: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def sort_edges(
    edges: EdgeSource,
    shape: EdgeShape,
    *,
    work: WorkFolder,
    stage: str,
    budget: Budget,
    threads: int,
    tools: Tools,
    progress: Progress,
    limits: SortLimits,
) -> SortedEdges:
    """Sort edges by destination, then source, then number. Edges that the budget does not hold go to a stage of `work`.

    Raises SourceError for the first id out of range, BudgetError, DestinationError where the disk is too small.
    """
    needed_bytes = bytes_in_memory(shape.num_edges, shape.layout().key_bytes, limits)
    if shape.num_edges == 0 or needed_bytes <= min(budget.available_bytes, limits.in_memory_bytes):
        return _TableEdges(edges, shape, budget.reserve("sorting edges", needed_bytes), threads, progress, limits)
    sorter = _ExternalSort(edges, shape, work, stage, budget, threads, tools, limits)
    sorter.run(progress)
    return _PartEdges(
        sorter.part_paths, shape, tools, budget.reserve("reading sorted edges", 2 * _window_bytes(limits))
    )


class _TableEdges:
    """Lists sorted in memory."""

    def __init__(
        self,
        edges: EdgeSource,
        shape: EdgeShape,
        reservation: Reservation,
        threads: int,
        progress: Progress,
        limits: SortLimits,
    ) -> None:
        self._shape = shape
        self._reservation = reservation
        try:
            self._table = EdgeTable(shape.layout(), shape.num_edges)
            num_edges = shape.num_edges
            _add_edges(
                self._table,
                edges,
                shape,
                0,
                num_edges,
                limits,
                lambda done: progress("reading edges", done, num_edges),
            )
            self._table.sort(threads)
        except BaseException:
            reservation.release()
            raise

    def indptr(self) -> Iterator[NDArray[np.int64]]:
        """See SortedEdges."""
        for start, stop in row_ranges(self._shape.num_destinations + 1, _BLOCK):
            yield self._table.indptr(start, stop - start)

    def indices(self) -> Iterator[NDArray[Any]]:
        """See SortedEdges."""
        for start, stop in row_ranges(self._shape.num_edges, _BLOCK):
            yield self._table.indices(start, stop - start)

    def edge_ids(self) -> Iterator[NDArray[np.int64]]:
        """See SortedEdges."""
        for start, stop in row_ranges(self._shape.num_edges, _BLOCK):
            yield self._table.numbers(start, stop - start)

    def __enter__(self) -> _TableEdges:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._table
        self._reservation.release()


class _PartEdges:
    """Lists read back from the parts of all buckets."""

    def __init__(self, paths: list[Path], shape: EdgeShape, tools: Tools, reservation: Reservation) -> None:
        self._paths = paths
        self._shape = shape
        self._engine = tools.engine
        self._reservation = reservation
        # Two: who looks for duplicates reads indptr beside indices.
        pool = BufferPool(0)
        self._windows = [pool.take(reservation.num_bytes // 2) for _ in range(2)]

    def indptr(self) -> Iterator[NDArray[np.int64]]:
        """See SortedEdges."""
        return self._read(_INDPTR, np.int64)

    def indices(self) -> Iterator[NDArray[Any]]:
        """See SortedEdges."""
        return self._read(_INDICES, self._shape.index_dtype)

    def edge_ids(self) -> Iterator[NDArray[np.int64]]:
        """See SortedEdges."""
        return self._read(_NUMBERS, np.int64)

    def _read(self, stream: int, dtype: Any) -> Iterator[NDArray[Any]]:
        window = self._windows[stream == _INDPTR]
        for path in self._paths:
            reader = StreamReader(self._engine, StreamFile(self._engine, str(path)), stream, window)
            while len(block := reader.next()):
                yield block.view(dtype)

    def __enter__(self) -> _PartEdges:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._windows
        self._reservation.release()


class _ExternalSort:
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

    @property
    def part_paths(self) -> list[Path]:
        """In the order of the lists."""
        return [self._folder / f"part-{bucket:05}" for bucket in range(len(self._starts))]

    def run(self, progress: Progress) -> None:
        """Do what is not done yet."""
        parts = self.part_paths
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
            with self._budget.reserve("spilling edges", self._crew.spill_bytes):
                run_tasks(
                    spills,
                    self._folder,
                    replace(self._tools, pool=BufferPool(self._crew.spill_bytes)),
                    threads=self._crew.spill_threads,
                    progress=lambda done, total: progress("spilling edges", done, total),
                )
            with self._budget.reserve("sorting edges", self._crew.sort_bytes):
                run_tasks(
                    sorts,
                    self._folder,
                    replace(self._tools, pool=BufferPool(self._crew.sort_bytes)),
                    threads=self._crew.sort_threads,
                    progress=lambda done, total: progress("sorting edges", done, total),
                )
        for path in filter(Path.exists, spill_paths):
            announce(self._tools.injector, "rename", path)
            path.unlink()

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
        except BudgetError as error:
            self._budget.require({"sorting edges": error.smallest_bytes or 0})
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
        _add_edges(spill, self.edges, self.shape, self.first_edge, self.end_edge, self.limits)
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


def _window_bytes(limits: SortLimits) -> int:
    return WINDOW_BLOCKS * limits.part_block_bytes


def _add_edges(
    taker: EdgeSpill | EdgeTable,
    edges: EdgeSource,
    shape: EdgeShape,
    first_edge: int,
    end_edge: int,
    limits: SortLimits,
    progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Bring edges first_edge .. end_edge to a taker. Raises SourceError for the first that has an id out of range.

    A thread of its own reads the next edges while these are taken. progress hears how many are done.
    """
    blocks = [
        (first_edge + start, stop - start) for start, stop in row_ranges(end_edge - first_edge, limits.read_edges)
    ]
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as reader:
        ahead = deque(reader.submit(edges.read, *block) for block in blocks[:1])
        for number, (first, count) in enumerate(blocks):
            sources, destinations = ahead.popleft().result()
            ahead.extend(reader.submit(edges.read, *block) for block in blocks[number + 1 : number + 2])
            bad = taker.add(first, _as_ids(sources), _as_ids(destinations))
            if bad is not None:
                raise _out_of_range(shape, first, sources, destinations, bad)
            progress(first + count - first_edge)


def _out_of_range(
    shape: EdgeShape, first: int, sources: NDArray[Any], destinations: NDArray[Any], bad: tuple[int, bool]
) -> SourceError:
    position, is_source = bad
    what, ids = ("source", sources) if is_source else ("destination", destinations)
    num_nodes = shape.num_sources if is_source else shape.num_destinations
    return SourceError(
        f"{shape.origin}: edge {first + position} has {what} {ids[position]}, "
        f"but nodes are numbered 0 to {num_nodes - 1}; mend the edge or give the right num_nodes"
    )


def _as_ids(ids: NDArray[Any]) -> NDArray[Any]:
    """Integers as the core takes them: of 32 or 64 bits, in this machine's byte order."""
    if ids.dtype.itemsize >= 4 and ids.dtype.isnative and ids.flags.aligned:
        return ids
    return ids.astype(np.uint64 if ids.dtype.kind == "u" else np.int64)


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

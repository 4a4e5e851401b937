"""Neighbour lists for the products: the dataset's own if they fit, else sorted once; and scales of rows.

Lists are sorted for directions other than the dataset's, and without loops for operators that add a node's own row.
They are one file: indptr, padding, indices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool
from diskhop.budget import Budget
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.dataset.edges import EdgeSource, UndirectedEdges
from diskhop.dataset.listed_edges import EDGES_AT_ONCE, ListedEdges
from diskhop.dataset.sort.csc import sorted_lists
from diskhop.dataset.sort.external_sort import Sorting
from diskhop.dataset.sort.keys import EdgeShape
from diskhop.dataset.sort.plan import limits_within
from diskhop.dataset.sort.tidy import Tidying, TidyLists
from diskhop.hops.make.cold_edges import VALUES_FILE, open_cold_edges, write_cold_sources, writing_bytes
from diskhop.hops.make.passes import ColdEdges, Lists
from diskhop.hops.make.weighted_lists import (
    SUMS_BYTES,
    WEIGHTED_LISTS_BYTES,
    looped_lists,
    sum_weights,
    write_looped_lists,
)
from diskhop.hops.operators import Scaling
from diskhop.hops.tables import PAGE_BYTES
from diskhop.io.atomic import remove_tree
from diskhop.io.streams import SequentialWriter
from diskhop.io.values import read_values
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools, WorkFolder, run_tasks

# Parts of a file begin at multiples of this.
_PART_BYTES = 1 << 20
_WRITER_BYTES = 128 << 10
_SCALES_WRITER_BYTES = 32 << 10
_NODES_AT_ONCE = 4 << 10
LISTS_BYTES = 4 * _WRITER_BYTES + 64 * EDGES_AT_ONCE
SCALES_BYTES = 2 * _SCALES_WRITER_BYTES + 40 * _NODES_AT_ONCE


class ListsWanted(NamedTuple):
    """Specification of lists.

    direction: in, out or both.
    has_loops: whether they contain the edges from a node to itself. Without them, lists with weights have exactly one
        for each node; see weighted_lists.py.
    is_weighted: whether edges have weights; only for the direction in.
    """

    direction: str
    has_loops: bool
    is_weighted: bool = False

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"lists-{self.direction}{'' if self.has_loops else '-without-loops'}"

    @property
    def is_looped(self) -> bool:
        """Whether lists with weights get an edge from each node to itself."""
        return self.is_weighted and not self.has_loops


def dataset_lists(topology: TopologyFiles, weights: Path | None = None) -> Lists:
    """Return the dataset's own lists. weights: the file of their weights; None: without."""
    return Lists(
        indptr_path=topology.indptr_path,
        indptr_offset=0,
        indices_path=topology.indices_path,
        indices_offset=0,
        index_bytes=4 if topology.index_dtype.itemsize == 4 else 8,
        num_nodes=topology.num_nodes,
        num_edges=topology.num_edges,
        weights_path=weights,
    )


def num_sorted_edges(num_edges: int, wanted: ListsWanted) -> int:
    """Return the number of edges to sort for lists; 0 if the dataset's own lists fit."""
    if wanted.direction == "in" and (wanted.has_loops or wanted.is_weighted):
        return 0
    return 2 * num_edges if wanted.direction == "both" else num_edges


@dataclass(frozen=True, slots=True)
class _Step:
    """A task that creates a file by calling a function."""

    name: str
    make: Callable[[Path, TaskTools], None]

    def write(self, path: Path, tools: TaskTools) -> None:
        """Create the file (see Task)."""
        self.make(path, tools)


class ListMaker:
    """Creates missing lists and scales in a stage of the work folder."""

    def __init__(
        self, edges: ListedEdges, folder: Path, work: WorkFolder, tools: TaskTools, budget: Budget, threads: int,
        progress: Progress,
    ) -> None:  # fmt: skip
        self._edges = edges
        self._folder = folder
        self._work = work
        self._tools = tools
        self._budget = budget
        self._threads = threads
        self._progress = progress

    def sort(self, wanted: ListsWanted) -> Lists:
        """Sort lists. Direction both: each connected pair once. Raises BudgetError."""
        # Sorting takes all free memory, so the writers reserve theirs first.
        with self._budget.reserve("writing lists", LISTS_BYTES):
            run_tasks(
                [_Step(wanted.name, lambda path, tools: self._write_lists(wanted, path, tools))],
                self._folder,
                self._tools,
                threads=1,
            )
        if (self._work.path / "sort").exists():
            remove_tree(self._work.path / "sort", self._tools.injector)
        topology, path = self._edges.topology, self._folder / wanted.name
        indices_offset = _indices_offset(topology.num_nodes)
        num_edges = int(read_values(path, "<i8", 1, offset=8 * topology.num_nodes)[0])
        return Lists(
            indptr_path=path,
            indptr_offset=0,
            indices_path=path,
            indices_offset=indices_offset,
            index_bytes=4 if topology.index_dtype.itemsize == 4 else 8,
            num_nodes=topology.num_nodes,
            num_edges=num_edges,
        )

    def add_loops(self, wanted: ListsWanted, weights: NDArray[np.float32]) -> Lists:
        """Write lists with weights, with an edge from each node to itself."""
        topology = self._edges.topology

        def make(path: Path, tools: TaskTools) -> None:
            write_looped_lists(topology, weights, path, tools)

        with self._budget.reserve("writing lists", WEIGHTED_LISTS_BYTES):
            run_tasks([_Step(wanted.name, make)], self._folder, self._tools, threads=1)
        return looped_lists(topology, self._folder / wanted.name)

    def scale(self, scaling: Scaling, lists: Lists) -> Path:
        """Write the factors of rows, float32 (num_nodes), zeros to the end of the page; 0 for an empty list.

        With weights, the degree of a node is the sum of the absolute weights of its list.
        """
        name = f"scales-{scaling}-{lists.indptr_path.stem}"
        sums_bytes = 0 if lists.weights_path is None else SUMS_BYTES
        with self._budget.reserve("scales", SCALES_BYTES + sums_bytes):
            run_tasks(
                [_Step(name, lambda path, tools: _write_scales(scaling, lists, path, tools))],
                self._folder,
                self._tools,
                threads=1,
            )
        return self._folder / name

    def cold_edges(self, lists: Lists, first_cold: int) -> ColdEdges:
        """Find the edges of lists from first_cold or later nodes."""
        name, memory_bytes = f"cold-{first_cold}-{lists.indptr_path.stem}", self._budget.available_bytes

        def make(path: Path, tools: TaskTools) -> None:
            write_cold_sources(lists, first_cold, memory_bytes, path, tools)

        with self._budget.reserve("finding cold edges", writing_bytes(lists, memory_bytes)):
            run_tasks([_Step(name, make)], self._folder, self._tools, threads=1)
        return open_cold_edges(lists, first_cold, self._folder / name, self._folder / VALUES_FILE)

    def _write_lists(self, wanted: ListsWanted, path: Path, tools: TaskTools) -> None:
        edges: EdgeSource = self._edges
        if wanted.direction == "both":
            edges = UndirectedEdges(edges)
        elif wanted.direction == "out":
            edges = replace(self._edges, identity=f"{self._edges.identity}, turned round", is_reversed=True)
        num_nodes = self._edges.topology.num_nodes
        shape = EdgeShape(
            num_sources=num_nodes,
            num_destinations=num_nodes,
            num_edges=edges.num_edges,
            is_numbered=False,
            origin=str(self._edges.topology.indices_path),
        )
        sorting = Sorting(
            work=self._work,
            stage="sort",
            budget=self._budget,
            threads=self._threads,
            tools=tools,
            progress=self._progress,
            limits=limits_within(self._budget.available_bytes),
        )
        is_both = wanted.direction == "both"
        tidying = Tidying(both_ways=is_both, drop_loops=not wanted.has_loops, drop_duplicates=is_both)
        pool = BufferPool(0)
        with (
            sorted_lists(edges, shape, sorting) as blocks,
            SequentialWriter(path, tools.engine, pool, buffer_bytes=_WRITER_BYTES) as indptr,
            SequentialWriter(
                path, tools.engine, pool, buffer_bytes=_WRITER_BYTES, offset=_indices_offset(num_nodes)
            ) as indices,
        ):
            for block in TidyLists(blocks, tidying).blocks():
                indptr.append(block.starts.view(np.uint8))
                indices.append(np.ascontiguousarray(block.indices).view(np.uint8))
            indptr.finish()
            # At least a page, so that a file without edges has indices too.
            indices.append(np.zeros(PAGE_BYTES, np.uint8))
            indices.finish()


def _write_scales(scaling: Scaling, lists: Lists, path: Path, tools: TaskTools) -> None:
    with SequentialWriter(path, tools.engine, BufferPool(0), buffer_bytes=_SCALES_WRITER_BYTES) as writer:
        for start, stop in row_ranges(lists.num_nodes, _NODES_AT_ONCE):
            offset = lists.indptr_offset + 8 * start
            if lists.weights_path is not None:
                degrees = sum_weights(lists, start, stop)
            else:
                lengths = np.diff(read_values(lists.indptr_path, "<i8", stop - start + 1, offset=offset))
                degrees = lengths.astype(np.float64) + (scaling == "loops")
            powers = 1.0 if scaling == "mean" else 0.5
            scales = np.divide(1.0, degrees**powers, out=np.zeros_like(degrees), where=degrees > 0)
            writer.append(scales.astype("<f4").view(np.uint8))
        writer.append(np.zeros(-4 * lists.num_nodes % PAGE_BYTES, np.uint8))
        writer.finish()


def _indices_offset(num_nodes: int) -> int:
    return -(-8 * (num_nodes + 1) // _PART_BYTES) * _PART_BYTES

"""One scan of neighbour lists: which rows they name, how many have edges, and how many edges are loops."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool
from diskhop.hops.make.passes import Lists
from diskhop.hops.stream.lists import ListStream, edge_rows, streaming_bytes, stretch_edges
from diskhop.hops.tables import TILE_ROWS
from diskhop.io.atomic import destination_errors
from diskhop.io.values import read_values
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools

# Rows of a part, each of which costs a call: as many as take a small share of the memory.
_LEAST_PART_ROWS, _MOST_PART_ROWS, _MEMORY_PER_ROW = 4 << 10, 64 << 10, 4 << 10
# Bytes per edge while loops are counted: the row of each edge, and whether it is a loop.
_COUNTING_BYTES = 10


@dataclass(frozen=True, slots=True)
class ScannedLists:
    """Findings of a scan.

    num_sources: highest source + 1.
    num_loops: edges from a node to itself; 0 if they were not counted.
    path: file with those of every row, if they were counted, and then the rows with edges of every group; int32.
    """

    num_sources: int
    num_loops: int
    path: Path


def scanning_bytes(lists: Lists, memory_bytes: int) -> int:
    """Return the memory of a scan."""
    edges = stretch_edges(lists.num_edges, memory_bytes, lists.index_bytes)
    streaming = streaming_bytes(edges, lists.index_bytes, lists.num_edges, _part_rows(memory_bytes))
    return streaming + _COUNTING_BYTES * min(edges, lists.num_edges)


def _part_rows(memory_bytes: int) -> int:
    return max(_LEAST_PART_ROWS, min(_MOST_PART_ROWS, memory_bytes // _MEMORY_PER_ROW))


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """The task that scans lists. counts_loops: also count edges from a node to itself."""

    name: str
    lists: Lists
    counts_loops: bool
    memory_bytes: int
    progress: Progress = silent

    def write(self, path: Path, tools: TaskTools) -> None:
        """Write the loops of every row, rows with edges, then the numbers of sources and of loops, int64 (see Task)."""
        lists = self.lists
        num_sources = num_loops = 0
        edges = stretch_edges(lists.num_edges, self.memory_bytes, lists.index_bytes)
        part_rows = _part_rows(self.memory_bytes)
        stream = ListStream(lists, part_rows, edges, tools.engine, BufferPool(0))
        with destination_errors(path), path.open("wb") as file:
            loops, with_edges = np.zeros(part_rows, np.int32), np.zeros(-(-lists.num_nodes // TILE_ROWS), np.int32)
            for stretch in stream.stretches(range(0, lists.num_nodes, part_rows), lists.num_nodes):
                if len(stretch.indices):
                    num_sources = max(num_sources, int(stretch.indices.max()) + 1)
                if stretch.is_last:
                    found = stretch.first_row + np.flatnonzero(np.diff(stretch.indptr))
                    with_edges += np.bincount(found // TILE_ROWS, minlength=len(with_edges)).astype(np.int32)
                if not self.counts_loops:
                    continue
                rows = edge_rows(stretch)
                found = rows[stretch.indices == rows].astype(np.int64) - stretch.first_row
                num_rows = len(stretch.indptr) - 1
                loops[:num_rows] += np.bincount(found, minlength=num_rows).astype(np.int32)
                if stretch.is_last:
                    num_loops += int(loops.sum())
                    file.write(loops[:num_rows].tobytes())
                    loops[:] = 0
                    self.progress("reading lists", stretch.first_row + num_rows, lists.num_nodes)
            file.write(with_edges.tobytes())
            file.write(np.array([num_sources, num_loops], "<i8").tobytes())


def read_scan(path: Path) -> ScannedLists:
    """Read what a scan found."""
    with path.open("rb") as file:
        file.seek(-16, 2)
        num_sources, num_loops = np.frombuffer(file.read(16), "<i8").tolist()
    return ScannedLists(num_sources, num_loops, path)


def rows_with_edges(scanned: ScannedLists, num_nodes: int) -> NDArray[np.int32]:
    """Return how many rows of each group have edges."""
    num_groups = -(-num_nodes // TILE_ROWS)
    offset = scanned.path.stat().st_size - 16 - 4 * num_groups
    return read_values(scanned.path, "<i4", num_groups, offset=offset)


def loops_of(scanned: ScannedLists, start: int, stop: int) -> NDArray[np.int32] | None:
    """Return the loops of some rows, int32; None if the lists have none."""
    if scanned.num_loops == 0:
        return None
    return read_values(scanned.path, "<i4", stop - start, offset=4 * start)

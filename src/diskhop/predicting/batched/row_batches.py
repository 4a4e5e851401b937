"""Batches of consecutive rows for prediction: all nodes in row order, each batch with the lists of its rows.

A batch ends where its rows and their neighbours would exceed a number of *entries*. The rule reads the graph and the
widths of a layer alone: kernels round differently for other shapes, and results must not depend on memory or threads. A
row with a longer list is a batch of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.config.sampled import ALL_NEIGHBORS
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.dataset.files import map_array
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.jobs import Share, SharedArray

# Bytes of a batch's rows if every neighbour is another node: large enough for kernels, small next to any budget.
_ROWS_BYTES = 16 << 20
_FEWEST_ENTRIES, _MOST_ENTRIES = 256, 1 << 16
_EDGES_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class RowBatches:
    """Batches of consecutive rows.

    starts: first row of every batch, then the number of rows, int64 (batches + 1).
    num_edges: edges of every batch, int64 (batches).
    most_sources: distinct nodes of every batch at most, int64 (batches).
    lists_per_row: neighbour lists of a row: in a graph with types, one per edge type that leads to the rows' type.
    first_row: merged row of row 0, in a graph with types.
    """

    starts: NDArray[np.int64]
    num_edges: NDArray[np.int64]
    most_sources: NDArray[np.int64]
    lists_per_row: int = 1
    first_row: int = 0

    def __len__(self) -> int:
        return len(self.num_edges)

    @property
    def num_rows(self) -> NDArray[np.int64]:
        """Rows of every batch, int64 (batches)."""
        rows: NDArray[np.int64] = np.diff(self.starts)
        return rows

    @property
    def seed_starts(self) -> NDArray[np.int64]:
        """Starts as rows that the sampler knows."""
        return self.starts + self.first_row

    def for_workers(self, _share: Share) -> partial[RowBatches]:
        """See jobs.py: arrays go through files."""
        arrays = SharedArray(self.starts), SharedArray(self.num_edges), SharedArray(self.most_sources)
        return partial(_open_again, *arrays, self.lists_per_row, self.first_row)

    def numbers(self, first: int, end: int) -> range:
        """Return the numbers of the batches of rows first to end, which are bounds of ranges."""
        return range(int(np.searchsorted(self.starts, first)), int(np.searchsorted(self.starts, end)))


def _open_again(
    starts: SharedArray, num_edges: SharedArray, most_sources: SharedArray, lists_per_row: int, first_row: int
) -> RowBatches:
    return RowBatches(starts.array, num_edges.array, most_sources.array, lists_per_row, first_row)


def most_entries(widest_dim: int) -> int:
    """Return the entries of a batch: rows and neighbours. widest_dim: columns of the wider of a layer's tables."""
    return min(max(_ROWS_BYTES // (4 * widest_dim), _FEWEST_ENTRIES), _MOST_ENTRIES)


def cut_batches(
    topology: TopologyFiles, fanout: int, entries: int, range_rows: int, budget: Budget, node_type: str | None = None
) -> RowBatches:
    """Cut the rows of a graph into batches of about `entries` rows and neighbours.

    fanout: neighbours drawn per list, -1 for all. range_rows: rows per range; no batch is in two ranges. node_type: of
    the rows, in a graph whose types are merged.

    Raises BudgetError if there is no room to count the distinct nodes of long lists.
    """
    rows = ListsOfRows.of(topology, node_type)
    starts: list[int] = []
    num_edges: list[int] = []
    # Long ranges are read in pieces; a batch ends with each.
    for first, end in row_ranges(rows.num_rows, min(range_rows, 1 << 20)):
        edges_before = np.concatenate([[0], np.cumsum(rows.lengths(first, end, fanout))])
        entries_before = edges_before + np.arange(len(edges_before))
        row = 0
        while row < end - first:
            stop = int(np.searchsorted(entries_before, entries_before[row] + entries, side="right")) - 1
            stop = max(stop, row + 1)
            starts.append(first + row)
            num_edges.append(int(edges_before[stop] - edges_before[row]))
            row = stop
    bounds = np.array([*starts, rows.num_rows])
    most_sources = np.minimum(np.diff(bounds) + np.array(num_edges), topology.num_nodes)
    long_lists = np.flatnonzero(np.array(num_edges) >= entries)
    if fanout == ALL_NEIGHBORS and len(long_lists):
        with budget.reserve("counting neighbours", topology.num_nodes + 8 * _EDGES_AT_ONCE):
            for number in long_lists:
                most_sources[number] = rows.count_sources(int(bounds[number]))
    return RowBatches(bounds, np.array(num_edges, np.int64), most_sources, len(rows.first_lists), rows.first_row)


@dataclass(frozen=True, slots=True, eq=False)
class ListsOfRows:
    """The neighbour lists of rows.

    topology: files of the lists.
    indptr: the mapped start of each list.
    num_rows: number of rows.
    first_row: see RowBatches.
    first_lists: number of row 0's list, for each edge type that leads to the rows.
    """

    topology: TopologyFiles
    indptr: NDArray[np.int64]
    num_rows: int
    first_row: int
    first_lists: list[int]

    @classmethod
    def of(cls, topology: TopologyFiles, node_type: str | None) -> ListsOfRows:
        """Open the lists of the rows of a type, or of a graph without types."""
        indptr, types = map_array(topology.indptr_path, np.int64, topology.num_lists + 1), topology.types
        if types is None or node_type is None:
            return cls(topology, indptr, topology.num_nodes, 0, [0])
        first_lists = [
            int(start)
            for start, edges in zip(types.list_starts, types.edges, strict=False)
            if edges.destination == node_type
        ]
        return cls(topology, indptr, types.num_nodes[node_type], types.first_row(node_type), first_lists)

    def lengths(self, first: int, end: int, fanout: int) -> NDArray[np.int64]:
        """Return the neighbours of rows first to end that are drawn, int64 (rows)."""
        lengths = np.zeros(end - first, np.int64)
        for start in self.first_lists:
            of_lists = np.diff(self.indptr[start + first : start + end + 1])
            lengths += of_lists if fanout == ALL_NEIGHBORS else np.minimum(of_lists, fanout)
        return lengths

    def count_sources(self, row: int) -> int:
        """Count a row and the distinct nodes of its lists."""
        topology = self.topology
        indices = map_array(topology.indices_path, topology.index_dtype, topology.num_edges)
        is_source = np.zeros(topology.num_nodes, np.bool_)
        is_source[self.first_row + row] = True
        for first in self.first_lists:
            begin, end = self.indptr[first + row : first + row + 2]
            for start, stop in row_ranges(int(end - begin), _EDGES_AT_ONCE):
                is_source[indices[begin + start : begin + stop]] = True
        return int(np.count_nonzero(is_source))

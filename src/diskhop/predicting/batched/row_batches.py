"""Batches of consecutive rows for prediction: all nodes in row order, each batch with the lists of its rows.

A batch ends where its rows and their neighbours would exceed a number of *entries*. The rule reads the graph and the
widths of a layer alone: kernels round differently for other shapes, and results must not depend on memory or threads. A
row with a longer list is a batch of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.config.train import ALL_NEIGHBORS
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.dataset.files import map_array
from diskhop.runtime.blocks import row_ranges

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
    """

    starts: NDArray[np.int64]
    num_edges: NDArray[np.int64]
    most_sources: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.num_edges)

    @property
    def num_rows(self) -> NDArray[np.int64]:
        """Rows of every batch, int64 (batches)."""
        rows: NDArray[np.int64] = np.diff(self.starts)
        return rows

    def numbers(self, first: int, end: int) -> range:
        """Return the numbers of the batches of rows first to end, which are bounds of ranges."""
        return range(int(np.searchsorted(self.starts, first)), int(np.searchsorted(self.starts, end)))


def most_entries(widest_dim: int) -> int:
    """Return the entries of a batch: rows and neighbours. widest_dim: columns of the wider of a layer's tables."""
    return min(max(_ROWS_BYTES // (4 * widest_dim), _FEWEST_ENTRIES), _MOST_ENTRIES)


def cut_batches(topology: TopologyFiles, fanout: int, entries: int, range_rows: int, budget: Budget) -> RowBatches:
    """Cut the rows of a graph into batches of about `entries` rows and neighbours.

    fanout: neighbours drawn per row, -1 for all. range_rows: rows per range; no batch is in two ranges.

    Raises BudgetError if there is no room to count the distinct nodes of long lists.
    """
    num_nodes = topology.num_nodes
    indptr = map_array(topology.indptr_path, np.int64, num_nodes + 1)
    starts: list[int] = []
    num_edges: list[int] = []
    # Long ranges are read in pieces; a batch ends with each.
    for first, end in row_ranges(num_nodes, min(range_rows, 1 << 20)):
        lengths = np.diff(indptr[first : end + 1])
        if fanout != ALL_NEIGHBORS:
            lengths = np.minimum(lengths, fanout)
        edges_before = np.concatenate([[0], np.cumsum(lengths)])
        entries_before = edges_before + np.arange(len(edges_before))
        row = 0
        while row < end - first:
            stop = int(np.searchsorted(entries_before, entries_before[row] + entries, side="right")) - 1
            stop = max(stop, row + 1)
            starts.append(first + row)
            num_edges.append(int(edges_before[stop] - edges_before[row]))
            row = stop
    bounds = np.array([*starts, num_nodes])
    most_sources = np.minimum(np.diff(bounds) + np.array(num_edges), num_nodes)
    long_lists = np.flatnonzero(np.array(num_edges) >= entries)
    if fanout == ALL_NEIGHBORS and len(long_lists):
        with budget.reserve("counting neighbours", num_nodes + 8 * _EDGES_AT_ONCE):
            for number in long_lists:
                most_sources[number] = _count_sources(topology, indptr, int(bounds[number]))
    return RowBatches(bounds, np.array(num_edges, np.int64), most_sources)


def _count_sources(topology: TopologyFiles, indptr: NDArray[np.int64], row: int) -> int:
    """Count a row and the distinct nodes of its list."""
    indices = map_array(topology.indices_path, topology.index_dtype, topology.num_edges)
    is_source = np.zeros(topology.num_nodes, np.bool_)
    is_source[row] = True
    for start, stop in row_ranges(int(indptr[row + 1] - indptr[row]), _EDGES_AT_ONCE):
        is_source[indices[indptr[row] + start : indptr[row] + stop]] = True
    return int(np.count_nonzero(is_source))

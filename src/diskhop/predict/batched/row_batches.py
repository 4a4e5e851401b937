"""Batches of consecutive rows for prediction: all nodes in row order, each batch with the lists of its rows.

A batch ends where its rows and their neighbours would exceed a number of *entries*. The rule reads the graph and the
widths of a layer alone: kernels round differently for other shapes, and results must not depend on memory or threads. A
row with a longer list is a batch of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop.config.train import ALL_NEIGHBORS
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.dataset.files import map_array
from diskhop.runtime.blocks import row_ranges

# Bytes of a batch's rows if every neighbour is another node: large enough for kernels, small next to any budget.
_ROWS_BYTES = 16 << 20
_FEWEST_ENTRIES, _MOST_ENTRIES = 256, 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class RowBatches:
    """Batches of consecutive rows.

    starts: first row of every batch, then the number of rows, int64 (batches + 1).
    num_edges: edges of every batch, int64 (batches).
    num_nodes: number of nodes of the graph.
    """

    starts: NDArray[np.int64]
    num_edges: NDArray[np.int64]
    num_nodes: int

    def __len__(self) -> int:
        return len(self.num_edges)

    @property
    def num_rows(self) -> NDArray[np.int64]:
        """Rows of every batch, int64 (batches)."""
        rows: NDArray[np.int64] = np.diff(self.starts)
        return rows

    @property
    def most_sources(self) -> NDArray[np.int64]:
        """Distinct nodes of every batch at most, int64 (batches)."""
        counts: NDArray[np.int64] = np.minimum(self.num_rows + self.num_edges, self.num_nodes)
        return counts

    def numbers(self, first: int, end: int) -> range:
        """Return the numbers of the batches of rows first to end, which are bounds of ranges."""
        return range(int(np.searchsorted(self.starts, first)), int(np.searchsorted(self.starts, end)))


def most_entries(widest_dim: int) -> int:
    """Return the entries of a batch: rows and neighbours. widest_dim: columns of the wider of a layer's tables."""
    return min(max(_ROWS_BYTES // (4 * widest_dim), _FEWEST_ENTRIES), _MOST_ENTRIES)


def cut_batches(topology: TopologyFiles, fanout: int, entries: int, range_rows: int) -> RowBatches:
    """Cut the rows of a graph into batches of about `entries` rows and neighbours.

    fanout: neighbours drawn per row, -1 for all. range_rows: rows per range; no batch is in two ranges.
    """
    indptr = map_array(topology.indptr_path, np.int64, topology.num_nodes + 1)
    starts: list[int] = []
    num_edges: list[int] = []
    # Long ranges are read in pieces; a batch ends with each.
    for first, end in row_ranges(topology.num_nodes, min(range_rows, 1 << 20)):
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
    return RowBatches(np.array([*starts, topology.num_nodes]), np.array(num_edges, np.int64), topology.num_nodes)

"""Which nodes the rows of hop tables are: their ids and positions in the source, and their rows in the dataset.

The words are those of dataset/id_map.py. Tables have these numbers in files of their own, so that they can be read
without the dataset.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.id_map import find_ids
from diskhop.errors import ConfigError
from diskhop.hops.tables import HopTables
from diskhop.protocols import NodeRows, SourceIds

TableRows = NDArray[np.int64]


class TableNodes:
    """The nodes of hop tables, by row of the tables."""

    def __init__(self, tables: HopTables) -> None:
        self._tables = tables

    def node_rows(self, rows: TableRows) -> NodeRows:
        """Return the rows of the dataset."""
        return NodeRows(rows if self._tables.rows is None else self._tables.rows[rows])

    def ids(self, rows: TableRows) -> SourceIds:
        """Return the ids in the source."""
        return SourceIds(self.node_rows(rows) if self._tables.ids is None else self._tables.ids[rows])

    def rows_of_node_rows(self, node_rows: NodeRows) -> TableRows:
        """Find the rows of nodes by their rows in the dataset. Raises ConfigError for the first node without a row."""
        return self._tables.row_of(node_rows)

    def rows_of_ids(self, ids: SourceIds) -> TableRows:
        """Find the rows of nodes by their ids. Raises ConfigError for the first node without a row."""
        if self._tables.ids is None:
            return self._tables.row_of(NodeRows(ids))
        rows = find_ids(self._tables.ids, ids)
        if (rows < 0).any():
            raise self._tables.no_row(int(ids[np.argmin(rows)]))
        return rows

    def rows_of_mask(self, mask: NDArray[np.bool_]) -> TableRows:
        """Find the rows of the nodes of a mask in the order of the source. Raises ConfigError as rows_of_ids()."""
        num_nodes = self._tables.num_nodes
        if mask.shape != (num_nodes,):
            raise ConfigError(
                f"nodes has a mask of shape {mask.shape}; a mask needs one entry for each of the {num_nodes:,} nodes, "
                "in the order of dataset.node_ids()"
            )
        all_rows = np.arange(self._tables.num_rows)
        positions = self.node_rows(all_rows) if self._tables.positions is None else self._tables.positions
        rows = np.flatnonzero(mask[positions])
        if len(rows) < np.count_nonzero(mask):
            is_stored = np.zeros(num_nodes, np.bool_)
            is_stored[positions] = True
            position = int(np.argmax(mask & ~is_stored))
            raise self._tables.no_row(position, "the mask's node at position")
        return rows

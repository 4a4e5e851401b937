"""Conversion between the numbers that a node has: its id in the source, its position there, and its row here.

- *id* (SourceIds): what the source calls the node. Users give and get ids, everywhere.
- *position*: the place of the node in the source's arrays, from 0: its entry in an array, its row in the table of
  nodes, or its rank by id in a source of edges alone. Masks and arrays of users are aligned with positions.
- *row* (NodeRows): the node's row in the tables of the dataset. It differs from the position in hot order only.

    ids = dataset.id_map()
    rows = ids.rows(wanted)               # raises ConfigError for an id that no node has
    rows = ids.rows_of_mask(mask)         # in the order of the positions
    shown = ids.ids(rows)                 # back, for users
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import ConfigError
from diskhop.protocols import NodeRows, SourceIds
from diskhop.runtime.blocks import row_ranges

_IDS_PER_BLOCK = 1 << 20


class IdMap:
    """The ids of the nodes of one type. It keeps 8 bytes per node in memory if ids are not rows, else nothing.

    path: the dataset, for errors.
    num_nodes: number of nodes.
    id_of_row: id of every row; None: ids are rows.
    positions: returns the position of every row; None: each row is at the position of the same number.
    """

    def __init__(
        self,
        path: Path,
        num_nodes: int,
        id_of_row: NDArray[np.int64] | None,
        positions: Callable[[], NDArray[np.int64] | None],
    ) -> None:
        self.num_nodes = num_nodes
        self.positions = positions
        self._path = path
        self._id_of_row = id_of_row

    @property
    def num_bytes(self) -> int:
        """Bytes of memory that the map keeps."""
        return 0 if self._id_of_row is None else self._id_of_row.nbytes

    @property
    def ids_are_rows(self) -> bool:
        """Whether every node's id is its row."""
        return self._id_of_row is None

    def ids(self, rows: NodeRows) -> SourceIds:
        """Return the ids of rows, in their order."""
        return SourceIds(rows if self._id_of_row is None else self._id_of_row[rows])

    def all_ids(self) -> SourceIds:
        """Return the ids of all nodes, in the order of the positions."""
        return self.ids(self.all_rows())

    def rows(self, ids: SourceIds, what: str = "ids") -> NodeRows:
        """Find the rows of ids, in their order. what: name of the ids in errors.

        Raises ConfigError, naming the first id that no node has.
        """
        if self._id_of_row is None:
            is_known = (ids >= 0) & (ids < self.num_nodes)
            rows: NDArray[np.int64] = ids
        else:
            rows = find_ids(self._id_of_row, ids)
            is_known = rows >= 0
        if not is_known.all():
            raise self._unknown(int(ids[np.argmin(is_known)]), what)
        return NodeRows(rows)

    def rows_in_range(self, start: int, stop: int | None, step: int) -> NodeRows:
        """Find the rows of the ids in range(start, stop, step), ascending by id; sorts these alone.

        stop: None: the range has no end.
        """
        if self._id_of_row is None:
            return NodeRows(np.arange(start, self.num_nodes if stop is None else min(stop, self.num_nodes), step))
        found = [np.empty(0, np.int64)]
        for first, end in row_ranges(self.num_nodes, _IDS_PER_BLOCK):
            ids = self._id_of_row[first:end]
            is_wanted = (ids >= start) & ((ids - start) % step == 0)
            if stop is not None:
                is_wanted &= ids < stop
            found.append(np.flatnonzero(is_wanted) + first)
        rows = np.concatenate(found)
        return NodeRows(rows[np.argsort(self._id_of_row[rows])])

    def all_rows(self) -> NodeRows:
        """Return the rows of all nodes, in the order of the positions."""
        positions = self.positions()
        rows = np.arange(self.num_nodes)
        if positions is None:
            return NodeRows(rows)
        row_at = np.empty_like(rows)
        row_at[positions] = rows
        return NodeRows(row_at)

    def rows_of_mask(self, mask: NDArray[np.bool_], what: str = "mask") -> tuple[NodeRows, NDArray[np.int64]]:
        """Return the rows of the nodes of a mask, and their positions, ascending. Raises ConfigError for its shape."""
        if mask.shape != (self.num_nodes,):
            raise ConfigError(
                f"{what} has shape {mask.shape}; a mask needs one entry for each of the {self.num_nodes:,} nodes, "
                "in the order of dataset.node_ids()"
            )
        of_row = self.positions()
        if of_row is None:
            chosen = np.flatnonzero(mask)
            return NodeRows(chosen), chosen
        rows = np.flatnonzero(mask[of_row])
        positions = of_row[rows]
        order = np.argsort(positions)
        return NodeRows(rows[order]), positions[order]

    def in_source_order(self, by_row: NDArray[Any]) -> NDArray[Any]:
        """Return values of all nodes in the order of the positions. by_row: the same values, one per row."""
        return by_row if self.positions() is None else by_row[self.all_rows()]

    def _unknown(self, wanted: int, what: str) -> ConfigError:
        if self._id_of_row is None:
            known = f"ids are 0 to {self.num_nodes - 1}"
        else:
            known = f"ids are {self._id_of_row.min()} to {self._id_of_row.max()}, {self.num_nodes:,} of them"
        return ConfigError(
            f"{what} has id {wanted}, which no node of {self._path} has; {known}: dataset.node_ids() lists them"
        )


class Ranking(NamedTuple):
    """Nodes in the ascending order of their ids, each at its *rank*.

    ids: id of every rank; None: ranks are the ids.
    rows: row of every rank; None: ranks are the rows.
    """

    ids: NDArray[np.int64] | None
    rows: NDArray[np.int64] | None


def rank_by_id(id_of_row: NDArray[np.int64]) -> Ranking | None:
    """Rank nodes by the ids of their rows; None for ids that are negative or not unique: the file is damaged."""
    rows = None if _ascend(id_of_row) else np.argsort(id_of_row)
    ids = id_of_row if rows is None else id_of_row[rows]
    if len(ids) and (ids[0] < 0 or not _ascend(ids)):
        return None
    is_dense = len(ids) == 0 or int(ids[-1]) == len(ids) - 1
    return Ranking(None if is_dense else ids, rows)


def _ascend(ids: NDArray[np.int64]) -> bool:
    return bool((np.diff(ids) > 0).all())


def positions_of_ids(id_of_row: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the position of every row in a source whose ids ascend: the rank of its id."""
    num_nodes = len(id_of_row)
    if num_nodes and int(id_of_row.max()) == num_nodes - 1:
        return id_of_row
    ranks = np.empty(num_nodes, np.int64)
    ranks[np.argsort(id_of_row)] = np.arange(num_nodes)
    return ranks


def find_ids(id_of_row: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row of each id, -1 for none. Sorts the wanted ids only, and passes over the others in blocks."""
    wanted, places = np.unique(ids, return_inverse=True)
    found = np.full(len(wanted), -1, np.int64)
    if len(wanted):
        for start, stop in row_ranges(len(id_of_row), _IDS_PER_BLOCK):
            block = id_of_row[start:stop]
            nearest = np.minimum(np.searchsorted(wanted, block), len(wanted) - 1)
            is_wanted = wanted[nearest] == block
            found[nearest[is_wanted]] = np.flatnonzero(is_wanted) + start
    return found[places]

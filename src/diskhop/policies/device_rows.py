"""Where each row of a feature table lies for a GPU: on the device, in pinned memory, or on disk (DiskGNN, section 4).

The rows that are accessed most lie on the device, the next ones in pinned memory that the device reads by itself. All
others are read from disk for every batch, and arrive staged. An *address* names the place of a row:

    level << 48 | index      level: DEVICE, HOST or STAGED; index: the row's, in the memory of that level
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.policies.static import most_accessed
from diskhop.protocols import NodeIds

# Bytes per placed row that place_rows() takes at most: ids in four arrays, and counts in two.
PLACING_BYTES_PER_ROW = 48
# The address of each row of a table, int64 (rows).
AddressTable = NDArray[np.int64]
DEVICE, HOST, STAGED = range(3)
LEVEL_SHIFT = 48
_INDEX_MASK = (1 << LEVEL_SHIFT) - 1


@dataclass(frozen=True, slots=True, eq=False)
class RowLevels:
    """Rows of a table by the memory that they lie in.

    device: ids of the rows on the device, ascending.
    host: ids of those in pinned memory, ascending.
    """

    device: NodeIds
    host: NodeIds


def place_rows(counts: NDArray[Any], device_rows: int, host_rows: int) -> RowLevels:
    """Place the most accessed rows on the device and the next ones in pinned memory; ties to the lower id.

    counts: accesses of each row of the table in a trace. device_rows, host_rows: rows that the two have room for. A row
    without accesses is placed nowhere.
    """
    # No copy of the counts, which are as long as the table.
    placed = most_accessed(counts, device_rows + host_rows)
    best = most_accessed(counts[placed], device_rows)
    return RowLevels(placed[best], np.delete(placed, best))


def address_table(levels: RowLevels, num_rows: int) -> AddressTable:
    """Return the address of each row of a table, int64 (num_rows); -1 for a row that is read from disk."""
    addresses = np.full(num_rows, -1, np.int64)
    set_addresses(addresses, levels)
    return addresses


def set_addresses(addresses: AddressTable, levels: RowLevels) -> None:
    """Set the addresses of the rows that have a place."""
    for level, ids in ((DEVICE, levels.device), (HOST, levels.host)):
        addresses[ids] = (level << LEVEL_SHIFT) | np.arange(len(ids))


def rest_of(table: AddressTable, node_ids: NodeIds) -> NodeIds:
    """Return the rows that are read from disk, of some, in their order."""
    return node_ids[table[node_ids] < 0]


def batch_addresses(table: AddressTable, node_ids: NodeIds) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the address of each row of a batch, int64 (nodes), and the positions of those that are staged, ascending.

    Row i of the staged ones is the batch's row at position i of the second array.
    """
    addresses = table[node_ids]
    staged = np.flatnonzero(addresses < 0)
    addresses[staged] = (STAGED << LEVEL_SHIFT) | np.arange(len(staged))
    return addresses, staged


def level_of(addresses: Any) -> Any:
    """Return the level of each address in an array or a tensor, int64."""
    return addresses >> LEVEL_SHIFT


def index_of(addresses: Any) -> Any:
    """Return the index of each address, in an array or a tensor, in the memory of its level, int64."""
    return addresses & _INDEX_MASK

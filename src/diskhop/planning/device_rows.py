"""The places of feature rows for a device: as many on it as its memory has room for, the next in pinned memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from diskhop.batches.short_trace import ShortTrace
from diskhop.budget import format_bytes
from diskhop.plans import PreparedBytes, RowPlaces, StoreShare
from diskhop.policies.static import most_accessed
from diskhop.protocols import Table, TableGroup
from diskhop.stores.kind import StoreKind

# Bytes in memory per row of the table: its address.
BYTES_PER_ROW = 8
# Of a batch: the address of each node's row, while it is looked up and afterwards.
ADDED = PreparedBytes(per_node=2 * BYTES_PER_ROW)


def on_device(table: Table | None, device_bytes: int) -> int:
    """Return how many rows lie on a device. device_bytes: of its memory, for rows."""
    if table is None or isinstance(table, TableGroup):
        return 0
    return min(device_bytes // table.row_bytes, table.num_rows)


def place_on(table: Table | None, kind: StoreKind, share: StoreShare, device_bytes: int) -> RowPlaces | None:
    """Return the places of a table's rows; None if none lies on a device. share: of the store."""
    device_rows = on_device(table, device_bytes)
    if table is None or not device_rows:
        return None
    pinned_rows = min(kind.resident_rows(table, share), table.num_rows - device_rows)
    return RowPlaces(device_rows=device_rows, pinned_rows=pinned_rows)


def describe(places: RowPlaces, table: Table, store: str) -> str:
    """Say in one line where the rows of a table lie."""
    num_rest = table.num_rows - places.device_rows - places.pinned_rows

    def part(num_rows: int) -> str:
        return f"{num_rows} ({num_rows / table.num_rows:.1%})"

    on_it = f"{part(places.device_rows)} on the device, {format_bytes(places.device_rows * table.row_bytes)}"
    rest = f", {part(num_rest)} from the store {store}" if num_rest else ""
    return f"Rows, most accessed first: {on_it}; {part(places.pinned_rows)} in pinned memory{rest}"


def without_device_rows(trace: ShortTrace, num_device_rows: int, num_rows: int) -> ShortTrace:
    """Return a trace without the rows that it accesses most, as many as lie on a device. num_rows: of the table."""
    counts = np.ones(num_rows, np.uint32)
    for ids in trace.node_ids:
        counts[ids] += 1
    is_there = np.zeros(num_rows, np.bool_)
    is_there[most_accessed(counts, num_device_rows)] = True
    return replace(trace, node_ids=tuple(ids[~is_there[ids]] for ids in trace.node_ids))

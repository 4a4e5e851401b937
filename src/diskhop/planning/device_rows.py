"""The places of feature rows for a device: as many on it as its memory has room for, the next in pinned memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from diskhop.batches.short_trace import ShortTrace
from diskhop.batches.sizes import BatchSizes
from diskhop.budget import format_bytes
from diskhop.plans import PreparedBytes, RowPlaces, StoreShare
from diskhop.policies.static import most_accessed
from diskhop.protocols import Table, TableGroup
from diskhop.stores.group_share import GroupShare, accessed_bytes, split_bytes
from diskhop.stores.kind import StoreKind

# Bytes of an address, and of an id.
BYTES_PER_ROW = 8
# Of a batch: the address of each node's row, while it is looked up and afterwards.
ADDED = PreparedBytes(per_node=2 * BYTES_PER_ROW)
# The name of the rows of a graph of one type.
_ONLY = ""


def on_device(table: Table | None, device_bytes: int, sizes: BatchSizes) -> dict[str, int]:
    """Return how many rows of each node type lie on a device, by name ('' for a graph of one type); {} for none.

    device_bytes: of its memory, for rows; types share it by the bytes that a batch accesses. sizes: of batches.
    """
    if isinstance(table, TableGroup):
        nothing = {part.name: 0 for part in table.parts}
        most = {part.name: part.table.num_rows * part.table.row_bytes for part in table.parts}
        shares = split_bytes(device_bytes, nothing, most, accessed_bytes(sizes, table))
        found = {part.name: shares[part.name] // part.table.row_bytes for part in table.parts}
        return found if any(found.values()) else {}
    num_rows = 0 if table is None else min(device_bytes // table.row_bytes, table.num_rows)
    return {_ONLY: num_rows} if num_rows else {}


def address_bytes(table: Table | None, kind: StoreKind, num_rows: Mapping[str, int]) -> int:
    """Return the memory for the address of each row, and for the ids of placed rows until these are read.

    Ids of rows that a store would cache are in the memory that it has for their places. num_rows: see on_device().
    """
    if table is None or not num_rows:
        return 0
    num_placed = min(table.num_rows, sum(num_rows.values()) + kind.resident_rows(table, StoreShare()))
    return BYTES_PER_ROW * (table.num_rows + num_placed)


def place_on(table: Table | None, kind: StoreKind, share: StoreShare, num_rows: Mapping[str, int]) -> RowPlaces | None:
    """Return the places of a table's rows; None if none lies on a device.

    share: of the store. num_rows: on the device, by type; see on_device().
    """
    if table is None or not num_rows:
        return None
    if not isinstance(table, TableGroup):
        return _places(table, kind, share, num_rows[_ONLY])
    assert isinstance(share, GroupShare)
    parts = {
        part.name: _places(part.table, kind, share.parts[part.name].share, num_rows[part.name]) for part in table.parts
    }
    return RowPlaces(
        device_rows=sum(each.device_rows for each in parts.values()),
        pinned_rows=sum(each.pinned_rows for each in parts.values()),
        parts=parts,
    )


def describe(places: RowPlaces, table: Table, store: str) -> list[str]:
    """Say where the rows of a table lie, in a line for each type."""
    if not isinstance(table, TableGroup):
        return [_describe(places, table, store)]
    parts = {part.name: part.table for part in table.parts}
    return [f"{name}: {_describe(each, parts[name], store)}" for name, each in places.parts.items() if each.num_rows]


def without_device_rows(trace: ShortTrace, num_device_rows: Mapping[str, int], table: Table) -> ShortTrace:
    """Return a trace without the rows that it accesses most, as many as lie on a device; see on_device()."""
    counts = np.ones(table.num_rows, np.uint32)
    for ids in trace.node_ids:
        counts[ids] += 1
    is_there = np.zeros(table.num_rows, np.bool_)
    for name, rows in _rows_by_type(table).items():
        is_there[rows][most_accessed(counts[rows], num_device_rows[name])] = True
    return replace(trace, node_ids=tuple(ids[~is_there[ids]] for ids in trace.node_ids))


def _places(table: Table, kind: StoreKind, share: StoreShare, device_rows: int) -> RowPlaces:
    """Return the places of rows of one table."""
    pinned_rows = min(kind.resident_rows(table, share), table.num_rows - device_rows)
    return RowPlaces(device_rows=device_rows, pinned_rows=pinned_rows)


def _describe(places: RowPlaces, table: Table, store: str) -> str:
    num_rest = table.num_rows - places.device_rows - places.pinned_rows

    def part(num_rows: int) -> str:
        return f"{num_rows} ({num_rows / table.num_rows:.1%})"

    on_it = f"{part(places.device_rows)} on the device, {format_bytes(places.device_rows * table.row_bytes)}"
    rest = f", {part(num_rest)} from the store {store}" if num_rest else ""
    return f"Rows, most accessed first: {on_it}; {part(places.pinned_rows)} in pinned memory{rest}"


def _rows_by_type(table: Table) -> dict[str, slice]:
    """Return the rows of each type with features among those of a table."""
    if not isinstance(table, TableGroup):
        return {_ONLY: slice(0, table.num_rows)}
    return {part.name: slice(part.first_row, part.first_row + part.table.num_rows) for part in table.parts}

"""A toy feature store. Adding it takes this file, and one entry in STORES.

`half` keeps the first half of the table in memory and reads rows of the other half for every batch.
"""

from __future__ import annotations

import numpy as np

from diskhop._native import BufferPool, RowReader
from diskhop.counters import FetchCounts
from diskhop.plans import Prediction, StoreShare
from diskhop.protocols import Table
from diskhop.stores.costs import Scenario, predict_epoch
from diskhop.stores.in_flight import MOST_IN_FLIGHT
from diskhop.stores.kind import StoreKind
from diskhop.stores.resources import StoreResources, empty_rows, open_reader, read_in_pieces
from diskhop.stores.room import StoreRoom, StoreWishes
from diskhop.stores.scan_costs import scan
from diskhop.stores.scanning import ScanningStore, scanned_bytes
from diskhop.stores.static import find_below


def half_of(table: Table) -> int:
    return table.num_rows // 2


def open_half(table: Table, resources: StoreResources) -> ScanningStore:
    """Read the first half; ScanningStore reads the rest."""
    half = empty_rows(BufferPool(0), half_of(table), table.row_bytes)
    reader = open_reader(RowReader, table, resources, resources.max_gap_bytes)
    read_in_pieces(reader, np.arange(half_of(table)), half, None, FetchCounts())
    return ScanningStore(table, resources, half, find_below(half_of(table)))


def divide(table: Table, room: StoreRoom, _wishes: StoreWishes) -> StoreShare:
    """Reserve half the table, then memory for batches in flight."""
    half_bytes = half_of(table) * table.row_bytes
    room.require({"half the table": half_bytes}, assembles=True, extra_bytes=scanned_bytes(table, room.sizes.num_rows))
    room.reasons.append(f"Half the table in memory: {half_of(table)} rows")
    room.grow_in_flight(MOST_IN_FLIGHT)
    return StoreShare(reserves=room.reserves)


def simulate(scenario: Scenario) -> Prediction:
    """Predict an epoch in which half the rows are read."""
    table = scenario.table
    misses = [ids[ids >= half_of(table)] for ids in scenario.trace.node_ids]
    open_seconds = half_of(table) * table.row_stride / scenario.sequential_rate
    return predict_epoch(scenario, scan(scenario, misses, find_seconds=scenario.cores.find_row), open_seconds)


KIND = StoreKind(name="half", simplicity=9, open=open_half, divide=divide, simulate=simulate)

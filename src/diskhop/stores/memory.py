"""`memory`: the whole table in memory: the upper bound for the other stores."""

from __future__ import annotations

import numpy as np

from diskhop._native import RowReader
from diskhop.budget import format_bytes
from diskhop.counters import FetchCounts
from diskhop.plans import Prediction, StoreShare
from diskhop.protocols import MakeRoom, Rows, RowSegment, SampledBatch, Table
from diskhop.stores.costs import BatchCost, Scenario, predict_epoch
from diskhop.stores.in_flight import MOST_IN_FLIGHT
from diskhop.stores.kind import StoreKind, keep_all
from diskhop.stores.misses import lent_seconds
from diskhop.stores.resources import StoreResources, open_reader, read_resident
from diskhop.stores.room import StoreRoom, StoreWishes

_TABLE = "feature table"


class MemoryStore:
    """Reads the table once, at open; every batch is then a list of positions in it."""

    def __init__(self, table: Table, resources: StoreResources) -> None:
        self.table = table
        reader = open_reader(RowReader, table, resources, resources.max_gap_bytes)
        all_rows = np.arange(table.num_rows, dtype=np.int64)
        self._rows = read_resident(reader, all_rows, None, (table.num_rows, table.row_bytes), resources.memory)

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> SampledBatch:
        """See FeatureStore."""
        make_room(0)
        return batch

    def collect(self, ticket: SampledBatch) -> Rows:
        """See FeatureStore."""
        num_bytes = ticket.num_rows * self.table.row_bytes
        counts = FetchCounts(rows_requested=ticket.num_rows, rows_hit=ticket.num_rows, bytes_needed=num_bytes)
        segment = RowSegment(self._rows, from_rows=ticket.row_ids)
        return Rows(ticket.num_rows, self.table.row_bytes, (segment,), counts)

    def cancel(self, ticket: SampledBatch) -> None:
        """See FeatureStore."""

    def release(self, ticket: SampledBatch) -> None:
        """See FeatureStore."""

    def close(self) -> None:
        """See FeatureStore. Collected rows that were not released keep the table alive."""
        del self._rows


def divide(table: Table, room: StoreRoom, wishes: StoreWishes) -> StoreShare:
    """Reserve the whole table."""
    room.require({_TABLE: table.num_rows * table.row_bytes}, assembles=True)
    room.grow_in_flight(wishes.most_in_flight or MOST_IN_FLIGHT)
    return StoreShare(reserves=room.reserves)


def simulate(scenario: Scenario) -> Prediction:
    """Predict an epoch in which every row is in memory."""
    table, trace = scenario.table, scenario.trace
    copied_seconds = 0 if scenario.is_lent else trace.num_rows * scenario.machine.copy_seconds
    fetching = BatchCost(hit_rate=1.0, cores_seconds=copied_seconds + lent_seconds(scenario))
    return predict_epoch(scenario, fetching, table.num_rows * table.row_stride / scenario.shared_rate)


def refuses(table: Table, wishes: StoreWishes) -> str:
    """Refuse a cache that is smaller than the table."""
    table_bytes = table.num_rows * table.row_bytes
    if wishes.cache_bytes is None or wishes.cache_bytes >= table_bytes:
        return ""
    return f"--cache {format_bytes(wishes.cache_bytes)} holds only part of the table ({format_bytes(table_bytes)})"


KIND = StoreKind(
    name="memory",
    simplicity=0,
    open=MemoryStore,
    divide=divide,
    simulate=simulate,
    refuses=refuses,
    lends=True,
    shares=frozenset({_TABLE}),
    resident_rows=keep_all,
    rest="direct",
)

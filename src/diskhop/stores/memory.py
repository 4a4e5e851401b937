"""`memory`: the whole table in RAM. The speed of light for the other stores."""

from __future__ import annotations

import numpy as np

from diskhop._native import BufferPool, RowReader
from diskhop.counters import FetchCounts
from diskhop.protocols import MakeRoom, Rows, RowSegment, SampledBatch, Table
from diskhop.stores.resources import StoreResources, empty_rows, open_reader, read_in_pieces


def memory_reserves(table: Table, _cache_rows: int, _batch_rows: int) -> dict[str, int]:
    """Bytes that the store holds, by their names in the budget."""
    return {"feature table": table.num_rows * table.row_bytes}


class MemoryStore:
    """Reads the table once, at open; every batch is then a list of positions in it."""

    def __init__(self, table: Table, resources: StoreResources) -> None:
        self.table = table
        # A pool of its own: the table is not one of the batches that come and go.
        self._rows = empty_rows(BufferPool(0), table.num_rows, table.row_bytes)
        reader = open_reader(RowReader, table, resources, resources.max_gap_bytes)
        read_in_pieces(reader, np.arange(table.num_rows, dtype=np.int64), self._rows, None, FetchCounts())

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> SampledBatch:
        """See FeatureStore."""
        make_room(0)
        return batch

    def collect(self, ticket: SampledBatch) -> Rows:
        """See FeatureStore."""
        num_bytes = ticket.num_nodes * self.table.row_bytes
        counts = FetchCounts(rows_requested=ticket.num_nodes, rows_hit=ticket.num_nodes, bytes_needed=num_bytes)
        segment = RowSegment(self._rows, from_rows=ticket.node_ids)
        return Rows(ticket.num_nodes, self.table.row_bytes, (segment,), counts)

    def cancel(self, ticket: SampledBatch) -> None:
        """See FeatureStore."""

    def release(self, ticket: SampledBatch) -> None:
        """See FeatureStore."""

    def close(self) -> None:
        """See FeatureStore. Rows that were handed out and not released keep the table."""
        del self._rows

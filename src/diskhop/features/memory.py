"""`memory`: the whole table in RAM. The speed of light for the other stores."""

from __future__ import annotations

import numpy as np

from diskhop._native import BufferPool
from diskhop.counters import FetchCounts
from diskhop.features.resources import StoreResources, empty_rows, open_reader
from diskhop.protocols import Rows, RowSegment, SampledBatch, Table

_ROWS_A_READ = 1 << 16


class MemoryStore:
    """Reads the table once, at open; every batch is then a list of positions in it."""

    def __init__(self, table: Table, resources: StoreResources) -> None:
        self.table = table
        self._reservation = resources.budget.reserve("feature table", table.num_rows * table.row_bytes)
        try:
            # A pool of its own: the table is not one of the batches that come and go.
            self._rows = empty_rows(BufferPool(0), table.num_rows, table.row_bytes)
            reader = open_reader(table, resources, resources.max_gap_bytes, num_readers=1)
            for start in range(0, table.num_rows, _ROWS_A_READ):
                stop = min(start + _ROWS_A_READ, table.num_rows)
                reader.read(np.arange(start, stop, dtype=np.int64), self._rows[start:stop])
        except BaseException:
            self._reservation.release()
            raise

    def submit(self, batch: SampledBatch) -> SampledBatch:
        """See FeatureStore."""
        return batch

    def collect(self, ticket: SampledBatch) -> Rows:
        """See FeatureStore."""
        num_bytes = ticket.num_nodes * self.table.row_bytes
        counts = FetchCounts(rows_requested=ticket.num_nodes, rows_hit=ticket.num_nodes, bytes_needed=num_bytes)
        segment = RowSegment(self._rows, from_rows=ticket.node_ids)
        return Rows(ticket.num_nodes, self.table.row_bytes, (segment,), counts)

    def release(self, ticket: SampledBatch) -> None:
        """See FeatureStore."""

    def close(self) -> None:
        """See FeatureStore. Rows that were handed out and not released keep the table."""
        del self._rows
        self._reservation.release()

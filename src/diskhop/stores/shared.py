"""`shared`: one buffer of rows for all batches that are on their way or with the model (GNNDrive, section 4.2).

A row that one batch has, or is reading, is there for the others; rows that no batch uses any more stay until their
places are wanted. Batches are extracted at the same time and are finished as their rows arrive, whichever came first.
What a batch gets is a list of places in the buffer (the paper's node alias list): its rows are not copied, and are its
own until release(). Rows come by the shared scan, so that they may be of any width and those that are close to each
other are read together; on a device with memory of its own the buffer would be there, and nothing else change.
"""

from __future__ import annotations

import numpy as np

from diskhop._native import BufferPool, BufferTicket, FeatureBuffer, SharedScan
from diskhop.budget import format_bytes
from diskhop.counters import FetchCounts
from diskhop.errors import BudgetError
from diskhop.protocols import MakeRoom, Rows, RowSegment, SampledBatch, Table
from diskhop.stores.resources import StoreResources, empty_rows, open_reader
from diskhop.stores.scanning import BYTES_PER_ROW_IN_FLIGHT

_SLOT_BYTES, _ADDRESS_BYTES = 16, 4


def shared_reserves(table: Table, buffer_rows: int, _batch_rows: int) -> dict[str, int]:
    """Bytes that the store holds, by their names in the budget."""
    return {
        "feature buffer": buffer_rows * (table.row_bytes + _SLOT_BYTES),
        "row addresses": _ADDRESS_BYTES * table.num_rows,
    }


class SharedStore:
    """See the module."""

    def __init__(self, table: Table, resources: StoreResources) -> None:
        self.table = table
        self._memory_bytes = resources.memory_bytes
        # A pool of its own: the slots are not among the batches that come and go.
        self._rows = empty_rows(BufferPool(0), resources.buffer_rows, table.row_bytes)
        self._scan = open_reader(SharedScan, table, resources, resources.max_gap_bytes)
        self._buffer = FeatureBuffer(self._scan, self._rows, resources.cache_rows)

    @property
    def totals(self) -> tuple[int, int, int]:
        """Rows read, let go again, and held now, since the store was opened."""
        return self._buffer.totals

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> BufferTicket:
        """See FeatureStore. Raises BudgetError for a batch that the whole buffer cannot hold."""
        ids = np.ascontiguousarray(batch.node_ids)
        lacking_rows = len(ids) - len(self._rows)
        if lacking_rows > 0:
            smallest_bytes = self._memory_bytes + lacking_rows * (self.table.row_bytes + _SLOT_BYTES)
            raise BudgetError(
                f"--memory {format_bytes(self._memory_bytes)} is too small: batch {batch.number} has {len(ids)} rows, "
                f"and the feature buffer of the store 'shared' holds {len(self._rows)}; "
                f"the smallest that works is {-(-smallest_bytes // 1_000_000)}MB, or take smaller batches",
                smallest_bytes,
            )
        make_room(len(ids) * BYTES_PER_ROW_IN_FLIGHT)
        return self._buffer.submit(ids)

    def collect(self, ticket: BufferTicket) -> Rows:
        """See FeatureStore."""
        reads = ticket.wait()
        num_rows = len(ticket.slots)
        counts = FetchCounts(
            rows_requested=num_rows,
            rows_hit=ticket.num_hits,
            rows_shared=ticket.num_shared,
            bytes_needed=num_rows * self.table.row_bytes,
        )
        counts.add_reads(*reads)
        return Rows(num_rows, self.table.row_bytes, (RowSegment(self._rows, from_rows=ticket.slots),), counts)

    def cancel(self, ticket: BufferTicket) -> None:
        """See FeatureStore."""
        ticket.cancel()

    def release(self, ticket: BufferTicket) -> None:
        """See FeatureStore. The rows may be another batch's from now on."""
        ticket.release()

    def close(self) -> None:
        """See FeatureStore."""
        self._scan.close()

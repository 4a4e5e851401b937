"""`shared`: one buffer of rows for all batches in flight or with the model (GNNDrive, section 4.2).

Batches share rows that one of them has or is reading. Unused rows stay cached until their slots are needed. Several
batches are fetched concurrently and each is finished as soon as its rows have arrived. A batch gets slots of the buffer
(the paper's node alias list): its rows are not copied and stay valid until release(). The shared scan reads the rows,
so they may have any width and reads close to each other are merged.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from diskhop._native import BufferPool, BufferTicket, FeatureBuffer, SharedScan
from diskhop.budget import format_bytes
from diskhop.counters import FetchCounts
from diskhop.errors import BudgetError
from diskhop.plans import Prediction, StoreShare
from diskhop.protocols import MakeRoom, Rows, RowSegment, SampledBatch, Table
from diskhop.runtime.process import keep_after_fork
from diskhop.stores.costs import Scenario, predict_epoch
from diskhop.stores.kind import StoreKind
from diskhop.stores.misses import least_recently_used, lent_seconds
from diskhop.stores.resources import StoreResources, empty_rows, open_reader
from diskhop.stores.room import StoreRoom, StoreWishes, row_bytes_reserved
from diskhop.stores.scan_costs import batches_in_flight, scan
from diskhop.stores.scanning import BYTES_PER_ROW_IN_FLIGHT

# Extractors are batches that the buffer has room for even if they share no row. With two, none waits for the other's
# rows; more of them share reads, but each one saves less: the planner tries more than eight where the disk is slow.
LEAST_EXTRACTORS, _MOST_EXTRACTORS = 2, 8
# Batches that share rows, in the room of one that shares nothing.
_MOST_SHARING_ROWS = 2
_SLOT_BYTES, _ADDRESS_BYTES = 16, 4


def shared_reserves(table: Table, buffer_rows: int, _batch_rows: int) -> dict[str, int]:
    """Bytes that the store holds, by name in the budget."""
    return {
        "feature buffer": buffer_rows * (table.row_bytes + _SLOT_BYTES),
        "row addresses": _ADDRESS_BYTES * table.num_rows,
    }


class SharedStore:
    """A store of one shared buffer, as the module describes it."""

    def __init__(self, table: Table, resources: StoreResources) -> None:
        self.table = table
        self._memory_bytes = resources.memory_bytes
        # A pool of its own, because the slots stay while batches come and go.
        self._rows = empty_rows(BufferPool(0), resources.share.buffer_rows, table.row_bytes)
        self._scan = keep_after_fork(open_reader(SharedScan, table, resources, resources.max_gap_bytes))
        self._buffer = keep_after_fork(FeatureBuffer(self._scan, self._rows, resources.share.cache_rows))

    @property
    def totals(self) -> tuple[int, int, int]:
        """Rows read and rows evicted since the store was opened, and rows resident now."""
        return self._buffer.totals

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> BufferTicket:
        """See FeatureStore. Raises BudgetError for a batch larger than the whole buffer."""
        ids = np.ascontiguousarray(batch.row_ids)
        lacking_rows = len(ids) - len(self._rows)
        if lacking_rows > 0:
            smallest_bytes = self._memory_bytes + lacking_rows * (self.table.row_bytes + _SLOT_BYTES)
            raise BudgetError(
                f"--memory {format_bytes(self._memory_bytes)} is too small: batch {batch.number} has {len(ids)} rows, "
                f"the feature buffer of --store shared has {len(self._rows)}; "
                f"use --memory {-(-smallest_bytes // 1_000_000)}MB or more, or a smaller --batch-size",
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
        """See FeatureStore. The slots may be reused from now on."""
        ticket.release()

    def close(self) -> None:
        """See FeatureStore."""
        self._scan.close()


def divide(table: Table, room: StoreRoom, wishes: StoreWishes) -> StoreShare:
    """Give memory to all extractors that fit, then to batches in flight, then to unused rows of the buffer."""
    batch_rows = room.sizes.num_rows
    room.require(
        shared_reserves(table, _rows_of(LEAST_EXTRACTORS, table, batch_rows, wishes), batch_rows),
        assembles=True,
        extra_bytes=batch_rows * BYTES_PER_ROW_IN_FLIGHT,
        num_batches=LEAST_EXTRACTORS,
    )
    most = max(wishes.most_in_flight or 0, _MOST_EXTRACTORS)
    extractors = _choose_extractors(table, room, wishes, most)
    most_extracting = min(_MOST_SHARING_ROWS * extractors, most)
    together = f" (up to {most_extracting} if they share rows)" if most_extracting > extractors else ""
    threads = "1 sampling thread" if room.sampling_threads == 1 else f"{room.sampling_threads} sampling threads"
    room.reasons.append(f"{threads}; {extractors} batches fetched concurrently{together}")
    room.grow_in_flight(most_extracting + wishes.is_lent)
    cache_rows, buffer_rows = _choose_buffer(table, room, wishes, _rows_of(extractors, table, batch_rows, wishes))
    return StoreShare(
        reserves=room.reserves,
        cache_rows=cache_rows,
        buffer_rows=buffer_rows,
        extractors=extractors,
        most_extracting=most_extracting,
    )


def _rows_of(extractors: int, table: Table, batch_rows: int, wishes: StoreWishes) -> int:
    """Rows of a buffer for n large batches that share no row, and for the model's batch if it reads them there."""
    return min((extractors + wishes.is_lent) * batch_rows, table.num_rows)


def _choose_extractors(table: Table, room: StoreRoom, wishes: StoreWishes, most: int) -> int:
    """Return how many extractors fit (GNNDrive, section 4.2). most: of them."""
    row_bytes, batch_rows = row_bytes_reserved(table, shared_reserves), room.sizes.num_rows
    least_rows = _rows_of(LEAST_EXTRACTORS, table, batch_rows, wishes)
    extractors, num_bytes = LEAST_EXTRACTORS, 0
    while extractors < most:
        more_rows = _rows_of(extractors + 1, table, batch_rows, wishes) - least_rows
        blocks = _MOST_SHARING_ROWS * (extractors + 1 - LEAST_EXTRACTORS)
        if more_rows * row_bytes + blocks * room.in_flight.bytes_each > room.left_bytes:
            break
        extractors, num_bytes = extractors + 1, more_rows * row_bytes
    room.take("feature buffer", num_bytes)
    return extractors


def _choose_buffer(table: Table, room: StoreRoom, wishes: StoreWishes, extracted_rows: int) -> tuple[int, int]:
    """Return how many unused rows stay cached, and the rows of the buffer. extracted_rows: reserved already."""
    wanted_rows, why = table.num_rows, "what batches leave free"
    if wishes.cache_bytes is not None:
        wanted_rows, why = wishes.cache_bytes // table.row_bytes, "--cache"
    row_bytes = row_bytes_reserved(table, shared_reserves)
    more_rows = min(extracted_rows + wanted_rows, table.num_rows) - extracted_rows
    more_rows = min(more_rows, room.left_bytes // row_bytes)
    room.take("feature buffer", more_rows * row_bytes)
    buffer_rows = extracted_rows + more_rows
    cache_rows = min(wanted_rows, buffer_rows)
    share = f"{buffer_rows / max(table.num_rows, 1):.1%} of {table.num_rows:,}"
    room.reasons.append(
        f"Shared buffer: {buffer_rows:,} rows ({share}; up to {cache_rows:,} unused rows stay cached: {why})"
    )
    return cache_rows, buffer_rows


def simulate(scenario: Scenario) -> Prediction:
    """Predict an epoch of a buffer that evicts the least recently used rows."""
    share, trace = scenario.plan.share, scenario.trace.node_ids
    # Rows of batches in flight are resident, and cached unused ones. On average about half the possible batches are.
    is_used = np.zeros(scenario.table.num_rows, np.bool_)
    for ids in trace[: 1 + share.most_extracting // 2]:
        is_used[ids] = True
    num_used = int(np.count_nonzero(is_used))
    capacity = min(share.buffer_rows, num_used + share.cache_rows)
    missed = least_recently_used(scenario, trace, scenario.table.num_rows, capacity)
    num_missed = sum(map(len, missed)) / len(missed)
    most_together = min(
        batches_in_flight(scenario, 0), share.most_extracting, int(share.buffer_rows // max(1.0, num_missed))
    )
    fetching = scan(
        scenario,
        missed,
        find_seconds=scenario.cores.share_row,
        # A buffer that batches share starts with several of them, which are finished together.
        fewest_together=2,
        most_together=max(1, most_together),
    )
    fetching = replace(fetching, cores_seconds=fetching.cores_seconds + lent_seconds(scenario))
    return predict_epoch(scenario, fetching)


KIND = StoreKind(
    name="shared",
    simplicity=3,
    uses=frozenset({"cache", "ordered"}),
    open=SharedStore,
    divide=divide,
    simulate=simulate,
    lends=True,
)

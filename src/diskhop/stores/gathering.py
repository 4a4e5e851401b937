"""Stores that gather the rows of one batch after the other and keep nothing: `mapped` and `pread`."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np

from diskhop.counters import FetchCounts
from diskhop.protocols import Bytes, MakeRoom, NodeIds, Rows, RowSegment, SampledBatch, Table
from diskhop.stores.resources import StoreResources, empty_rows
from diskhop.system.memory import buffer_bytes

ReadInto = Callable[[NodeIds, Bytes], FetchCounts]


class GatheringStore:
    """Gathers each batch's rows into a new buffer, on one background thread.

    `read_into(ids, out)` does the work and returns its counts.
    """

    def __init__(self, table: Table, resources: StoreResources, read_into: ReadInto) -> None:
        self.table = table
        self._pool = resources.pool
        self._read_into = read_into
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="diskhop-read")

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> Future[Rows]:
        """See FeatureStore."""
        make_room(buffer_bytes(batch.num_rows * self.table.row_bytes))
        return self._thread.submit(self._read, batch.row_ids)

    def collect(self, ticket: Future[Rows]) -> Rows:
        """See FeatureStore."""
        return ticket.result()

    def cancel(self, ticket: Future[Rows]) -> None:
        """See FeatureStore. A read that has started is finished."""
        ticket.cancel()

    def release(self, ticket: Future[Rows]) -> None:
        """See FeatureStore. Waits for a started read; the memory is freed with the last array that refers to it."""
        if not ticket.cancel():
            wait([ticket])

    def close(self) -> None:
        """See FeatureStore."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _read(self, ids: NodeIds) -> Rows:
        started = time.perf_counter()
        out = empty_rows(self._pool, len(ids), self.table.row_bytes)
        counts = self._read_into(np.ascontiguousarray(ids), out)
        counts.seconds = time.perf_counter() - started
        return Rows(len(ids), self.table.row_bytes, (RowSegment(out),), counts)

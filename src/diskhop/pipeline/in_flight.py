"""The batches in flight of one pass: their tickets, and the gates that bound their memory and disk."""

from __future__ import annotations

import threading
from typing import Any

from diskhop.pipeline.batch import InFlightBatch
from diskhop.plans import SampledPlan
from diskhop.protocols import FeatureStore
from diskhop.runtime.channels import ByteGate

# Gates bound the bytes in flight. This bounds the number of batches, which matters where they are tiny.
MOST_IN_FLIGHT = 128


class InFlightBatches:
    """Batches from submission to release. Any thread may call it.

    fetching: gate of the bytes from submission until rows are assembled; one batch always passes.
    assembled: gate of the bytes from then on; unused if rows are read straight to their place.
    extracting: gate of the number of batches between submission and delivery.
    superbatches: gate of the number of superbatches on disk; None for a pass that has none.
    holds_while_waiting: True if the consumer keeps a batch while it waits for the next one.
    """

    def __init__(
        self, plan: SampledPlan, store: FeatureStore[Any] | None, superbatches: ByteGate | None = None
    ) -> None:
        self.fetching = ByteGate(plan.bytes_in_flight)
        self.assembled = ByteGate(plan.bytes_assembled)
        self.extracting = ByteGate(plan.share.most_extracting or MOST_IN_FLIGHT)
        self.superbatches = superbatches
        self.holds_while_waiting = plan.holds_while_waiting
        self._store = store
        self._lock = threading.Lock()
        self._batches: set[InFlightBatch] = set()

    def add(self, batch: InFlightBatch) -> None:
        """Add a batch that is about to be submitted."""
        with self._lock:
            self._batches.add(batch)

    def cancel(self) -> None:
        """Cancel every ticket, so that no thread waits for its rows any longer."""
        with self._lock:
            tickets = [batch.ticket for batch in self._batches if batch.ticket is not None]
        for ticket in tickets:
            if self._store is not None:
                self._store.cancel(ticket)

    def release(self, batch: InFlightBatch) -> None:
        """Release everything that a batch uses."""
        with self._lock:
            self._batches.discard(batch)
        self.release_ticket(batch)
        batch.x = batch.x_by_type = batch.rows = batch.prepared = batch.arrival = batch.staged = None
        batch.staged_by_type, batch.rows_by_type = {}, {}
        self.leave_gates(batch)

    def release_all(self) -> None:
        """Release every batch; no other thread may use the pass any more."""
        for batch in list(self._batches):
            self.release(batch)

    def release_ticket(self, batch: InFlightBatch) -> None:
        """Return a batch's buffers to the store."""
        ticket, batch.ticket = batch.ticket, None
        if ticket is not None and self._store is not None:
            self._store.release(ticket)
            if batch.ends_superbatch and self.superbatches is not None:
                # Both the trace and the store's own files of this superbatch are gone from the disk by now.
                self.superbatches.leave(1)

    def leave_gates(self, batch: InFlightBatch) -> None:
        """Return a batch's bytes to the gates."""
        self.fetching.leave(batch.fetch_bytes)
        self.assembled.leave(batch.assembled_bytes)
        batch.fetch_bytes = batch.assembled_bytes = 0

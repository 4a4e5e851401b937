"""A stage that doubles features, after rows are collected."""

from __future__ import annotations

from diskhop.pipeline.batch import InFlightBatch
from diskhop.runtime.channels import Channel


class Double:
    name = "double"
    num_threads = 2
    capacity = 4

    def __init__(self, breaks_at: int | None = None) -> None:
        self._breaks_at = breaks_at

    def run(self, incoming: Channel[InFlightBatch], outgoing: Channel[InFlightBatch]) -> None:
        while True:
            batch = incoming.get()
            if batch.index == self._breaks_at:
                raise ZeroDivisionError("a batch that cannot be doubled")
            assert batch.x is not None
            batch.x = batch.x * 2
            outgoing.put(batch.index, batch)

    def close(self, error: BaseException | None) -> None:
        """Nothing waits at a gate."""

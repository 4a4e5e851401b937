"""One pass over seed nodes as a stream of batches; every stage runs on threads of its own.

Channels connect the stages, and the consumer reads from the last channel; one more thread releases its batches. An
error in a stage closes every channel and reaches the consumer. Leaving a stream, early or not, joins its threads.

Batches are delivered in order, or as soon as they are ready. Either way each batch is the same, and numbered.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from diskhop.counters import WaitSeconds
from diskhop.errors import DiskhopError, PipelineError
from diskhop.pipeline.ahead import SampledAhead
from diskhop.pipeline.batch import InFlightBatch, MiniBatch
from diskhop.pipeline.in_flight import MOST_IN_FLIGHT, InFlightBatches
from diskhop.pipeline.stage_threads import Stage, StageThreads
from diskhop.runtime.channels import ArrivalChannel, Channel, ClosedError


class BatchStream:
    """The batches of one pass; an iterator and a context manager.

    stages: in order; the first makes its items itself, or reads the superbatches of `ahead`.
    num_batches: batches to deliver.
    ordered: True to deliver batches in order of submission, False in order of completion.
    in_flight: releases batches and bounds their memory.
    ahead: the pass as a store that looks ahead has it; None for other stores.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        num_batches: int,
        *,
        ordered: bool,
        in_flight: InFlightBatches,
        ahead: SampledAhead | None = None,
    ) -> None:
        self._num_batches = num_batches
        self._in_flight = in_flight
        self._ahead = ahead
        self._num_delivered = 0
        self._pid = os.getpid()
        # The consumer's batch: the last one delivered.
        self._current: InFlightBatch | None = None
        self._used: Channel[InFlightBatch] = ArrivalChannel(MOST_IN_FLIGHT)
        first: Channel[Any] = ArrivalChannel(0) if ahead is None else ahead.superbatches
        self._threads = StageThreads(stages, first, ordered=ordered, stopped=self._stopped)
        self._threads.add("release", self._release_used)
        self._ready: Channel[InFlightBatch] = self._threads.outgoing
        # An iterator that still exists at exit must not keep the process alive.
        atexit.register(self.close)
        try:
            self._threads.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> BatchStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> BatchStream:
        return self

    def __len__(self) -> int:
        return self._num_batches

    def __next__(self) -> MiniBatch:
        if self._num_delivered == self._num_batches:
            self._release_current()
            raise StopIteration
        asked = time.perf_counter()
        holds_while_waiting = self._in_flight.holds_while_waiting
        if not holds_while_waiting:
            self._release_current()
        try:
            batch = self._ready.get()
        except ClosedError:
            raise PipelineError("this stream of batches is closed; call Pipeline.run() again") from None
        if holds_while_waiting:
            # The consumer's variable kept the previous batch until now. This batch takes its place in memory.
            self._release_current()
            self._in_flight.leave_gates(batch)
        self._in_flight.extracting.leave(1)
        self._current = batch
        self._num_delivered += 1
        # Without a device, a batch is complete once it is collected.
        collected_at = math.inf if batch.arrival is None else batch.collected_at
        if batch.arrival is not None:
            batch.arrival.wait()
            batch.arrival = None
        x, prepared, counts = batch.x, batch.prepared, batch.counts
        assert x is not None
        assert counts is not None
        x_by_type = batch.x_by_type
        batch.x = batch.x_by_type = batch.prepared = None
        delivered = time.perf_counter()
        return MiniBatch(
            sampled=batch.sampled,
            x=x,
            rows=batch.rows,
            prepared=prepared,
            in_degrees=batch.in_degrees,
            counts=counts,
            sample_seconds=batch.sample_seconds,
            waits=WaitSeconds.between(asked, batch.sampled_at, collected_at, delivered),
            x_by_type=x_by_type,
            rows_by_type=batch.rows_by_type,
            first_row=batch.first_row,
        )

    def close(self) -> None:
        """Stop every stage, join its threads and release all batches. In a forked child there are none.

        After the last batch, a following pass that is begun goes on; otherwise it is dropped.
        """
        if os.getpid() != self._pid:
            return
        self._threads.stop(None)
        self._threads.join()
        atexit.unregister(self.close)
        self._current = None
        ahead, self._ahead = self._ahead, None
        is_done = self._num_delivered == self._num_batches
        if ahead is not None and not is_done:
            # A superbatch that is released would let the next one begin.
            ahead.close()
        self._in_flight.release_all()
        if ahead is not None and is_done:
            ahead.finish()

    def _stopped(self, error: BaseException | None) -> None:
        self._used.close(error)
        # No batch reaches a collecting thread any more, so that no thread waits for a ticket that comes later.
        self._in_flight.cancel()

    def _release_current(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            # After a stop, whoever waits for the next batch gets the error, and close() releases this batch.
            with contextlib.suppress(ClosedError, DiskhopError):
                self._used.put(current.index, current)

    def _release_used(self) -> None:
        for _ in range(self._num_batches):
            self._in_flight.release(self._used.get())

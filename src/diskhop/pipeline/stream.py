"""A pass over seeds as a stream of batches: seeds -> sample -> fetch -> model, each stage on threads of its own.

Sampling threads fill a channel; one thread submits its batches to the store as the gates let them; extractors collect
them and bring rows to their places, one of them for all batches, in order, or one for each batch that is on its way;
the consumer takes them; another thread releases them. Where the store looks ahead, one more puts superbatches on the
disk between sampling and submitting. A stage's error closes every channel and reaches the consumer. Leaving a stream,
early or not, joins its threads.

Batches are delivered in their order or as they are finished; either way each is the same, and numbered.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any

import torch

from diskhop.errors import DiskhopError, PipelineError
from diskhop.pipeline.batch import SAMPLED_AHEAD, BatchSource, InFlightBatch, MiniBatch
from diskhop.pipeline.superbatch import NoRoomError, Sampled, Superbatch, SuperbatchMaker
from diskhop.policies.superbatches import SUPERBATCHES_ON_DISK
from diskhop.protocols import NodeIds, Purpose, SampledBatch, Sampler
from diskhop.runtime.channels import ArrivalChannel, ByteGate, ClosedError, OrderedChannel

# Gates bound their bytes; however small they are, no more batches than this wait in a channel.
_MOST_IN_FLIGHT = 16


class BatchStream:
    """One pass over seeds, `batch_size` at a time; an iterator and a context manager.

    numbers: of the batches that are wanted, in the order in which they are. replay: gives them, sampled before, in this
    order.
    """

    def __init__(
        self,
        pipeline: BatchSource,
        sampler: Sampler,
        seeds: NodeIds,
        batch_size: int,
        purpose: Purpose,
        epoch: int,
        numbers: Sequence[int],
        with_in_degrees: bool,
        prepare: Callable[[SampledBatch, torch.Tensor], Any] | None,
        look_ahead: Callable[[Callable[[], Sampled], Callable[[], None]], SuperbatchMaker] | None,
        replay: Callable[[], Iterator[Sampled]] | None,
    ) -> None:
        plan = pipeline.plan
        self._pipeline = pipeline
        self._sampler = sampler
        self._seeds = seeds
        self._batch_size = batch_size
        self._numbers = numbers
        self._num_batches = len(numbers)
        self._purpose = purpose
        self._epoch = epoch
        self._with_in_degrees = with_in_degrees
        self._prepare = prepare
        self._replay = replay
        self._next_to_sample = 0
        self._next_to_collect = 0
        self._num_delivered = 0
        self._is_stopped = False
        self._lock = threading.Lock()
        self._held: InFlightBatch | None = None
        self._unreleased: set[InFlightBatch] = set()
        self._on_their_way = ByteGate(plan.bytes_on_their_way)
        self._assembled = ByteGate(plan.bytes_assembled)
        self._extracting = ByteGate(plan.most_extracting or _MOST_IN_FLIGHT)
        # Those of a superbatch wait on the disk.
        num_sampled = plan.sampling_threads + (SAMPLED_AHEAD if look_ahead is None else 0)
        self._sampled = (OrderedChannel[Sampled] if plan.ordered else ArrivalChannel[Sampled])(num_sampled)
        self._maker = None if look_ahead is None else look_ahead(self._sampled.get, self._sampled.require_open)
        self._superbatches = OrderedChannel[Superbatch](SUPERBATCHES_ON_DISK)
        self._superbatch_gate = ByteGate(SUPERBATCHES_ON_DISK)
        self._submitted = ArrivalChannel[InFlightBatch](_MOST_IN_FLIGHT)
        self._ready = (OrderedChannel[InFlightBatch] if plan.ordered else ArrivalChannel[InFlightBatch])(
            _MOST_IN_FLIGHT
        )
        self._used = ArrivalChannel[InFlightBatch](_MOST_IN_FLIGHT)
        stages = [self._submit] if replay is not None else [self._sample] * plan.sampling_threads + [self._submit]
        # In order there is nothing to be gained from finishing a batch before the one that goes first.
        stages += [self._collect] * (1 if plan.ordered else plan.most_extracting) + [self._release_used]
        if self._maker is not None:
            stages.append(self._look_ahead)
        # Daemons, and closed at exit: an iterator that somebody still holds then must not keep the process alive.
        self._threads = [
            threading.Thread(target=self._guard, args=(stage,), name=f"diskhop{stage.__name__}", daemon=True)
            for stage in stages
        ]
        atexit.register(self.close)
        try:
            for thread in self._threads:
                thread.start()
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
            self._release_held()
            raise StopIteration
        asked = time.perf_counter()
        holds_while_waiting = self._pipeline.plan.holds_while_waiting
        if not holds_while_waiting:
            self._release_held()
        try:
            batch = self._ready.get()
        except ClosedError:
            raise PipelineError("these batches were closed: run the pipeline again") from None
        if holds_while_waiting:
            # The consumer's variable holds the batch before until now; this one is held in its place.
            self._release_held()
            self._leave(batch)
        self._extracting.leave(1)
        self._held = batch
        self._num_delivered += 1
        x, prepared, counts = batch.x, batch.prepared, batch.counts
        assert x is not None
        assert counts is not None
        batch.x = batch.prepared = None
        return MiniBatch(
            sampled=batch.sampled,
            x=x,
            rows=batch.rows,
            prepared=prepared,
            in_degrees=batch.in_degrees,
            counts=counts,
            sample_seconds=batch.sample_seconds,
            stall_seconds=time.perf_counter() - asked,
        )

    def close(self) -> None:
        """Stop every stage, wait for its threads and give all batches back."""
        self._stop(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        atexit.unregister(self.close)
        self._held = None
        for batch in list(self._unreleased):
            self._release(batch)

    def _stop(self, error: BaseException | None) -> None:
        """What fails because all was stopped is no error: the first reason counts."""
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
        channels = self._sampled, self._superbatches, self._submitted, self._ready, self._used
        for closable in (self._on_their_way, self._extracting, self._assembled, self._superbatch_gate, *channels):
            closable.close(error)
        # No batch is submitted to who collects any more: a ticket that comes later is nobody's to wait for.
        with self._lock:
            tickets = [batch.ticket for batch in self._unreleased if batch.ticket is not None]
        for ticket in tickets:
            if self._pipeline.store is not None:
                self._pipeline.store.cancel(ticket)

    def _guard(self, stage: Any) -> None:
        try:
            stage()
        except ClosedError:
            pass
        except DiskhopError as error:
            self._stop(error)
        except BaseException as error:
            wrapped = PipelineError(f"the pipeline's stage '{stage.__name__.strip('_')}' failed: {error!r}")
            wrapped.__cause__ = error
            self._stop(wrapped)

    def _sample(self) -> None:
        while True:
            with self._lock:
                turn = self._next_to_sample
                self._next_to_sample += 1
            if turn >= self._num_batches:
                return
            started = time.perf_counter()
            number = self._numbers[turn]
            seeds = self._seeds[number * self._batch_size :][: self._batch_size]
            sampled = self._sampler.sample(seeds, purpose=self._purpose, epoch=self._epoch, number=number)
            self._sampled.put(turn, (sampled, time.perf_counter() - started))

    def _look_ahead(self) -> None:
        assert self._maker is not None
        index = 0
        while not self._maker.is_done:
            self._superbatches.put(index, self._make_superbatch(self._maker))
            index += 1

    def _make_superbatch(self, maker: SuperbatchMaker) -> Superbatch:
        self._superbatch_gate.enter(1)
        try:
            return maker.make()
        except NoRoomError:
            # Once nothing else of ours is on the disk there may be room.
            self._superbatch_gate.leave(1)
            self._superbatch_gate.enter(SUPERBATCHES_ON_DISK + 1)
            maker.free_disk()
            superbatch = maker.make()
            self._superbatch_gate.leave(SUPERBATCHES_ON_DISK)
            return superbatch

    def _replayed(self) -> Generator[tuple[Sampled, bool]]:
        """Batches of superbatches, and whether each is the last one of its own."""
        while True:
            superbatch = self._superbatches.get()
            num_batches = len(superbatch)
            for index in range(num_batches - 1):
                yield superbatch.batch(index), False
            last = superbatch.batch(num_batches - 1)
            superbatch.remove()
            del superbatch  # with its descriptor, for which the disk would keep the file
            yield last, True

    def _as_sampled(self) -> Generator[tuple[Sampled, bool]]:
        while True:
            yield self._sampled.get(), False

    def _as_packed(self, replay: Callable[[], Iterator[Sampled]]) -> Generator[tuple[Sampled, bool]]:
        for sampled in replay():
            yield sampled, False

    def _source(self) -> Generator[tuple[Sampled, bool]]:
        """Batches in the order of their submission, and whether each is the last of a superbatch."""
        if self._replay is not None:
            return self._as_packed(self._replay)
        return self._as_sampled() if self._maker is None else self._replayed()

    def _submit(self) -> None:
        store = self._pipeline.store
        # Closed, since an error's traceback may keep it, and with it a trace's descriptor.
        with contextlib.closing(self._source()) as batches:
            for index in range(self._num_batches):
                (sampled, seconds), ends_superbatch = next(batches)
                self._extracting.enter(1)
                batch = InFlightBatch(index, sampled, seconds, ends_superbatch)
                with self._lock:
                    self._unreleased.add(batch)
                let_in = partial(self._let_in, batch)
                if store is None:
                    let_in(0)
                else:
                    batch.ticket = store.submit(sampled, let_in)
                self._submitted.put(index, batch)

    def _let_in(self, batch: InFlightBatch, store_bytes: int) -> None:
        num_bytes = self._pipeline.bytes_on_its_way(batch.sampled, store_bytes)
        self._on_their_way.enter(num_bytes)
        batch.bytes_on_its_way = num_bytes

    def _collect(self) -> None:
        assembles = self._pipeline.plan.bytes_assembled > 0
        while True:
            with self._lock:
                if self._next_to_collect == self._num_batches:
                    return
                self._next_to_collect += 1
            batch = self._submitted.get()
            if assembles:
                num_bytes = self._pipeline.bytes_assembled(batch.sampled)
                self._assembled.enter(num_bytes)
                batch.bytes_assembled = num_bytes
            self._pipeline.bring_rows(batch, self._with_in_degrees)
            if self._prepare is not None:
                assert batch.x is not None
                batch.prepared = self._prepare(batch.sampled, batch.x)
            if assembles:
                self._release_ticket(batch)
                self._on_their_way.leave(batch.bytes_on_its_way)
                batch.bytes_on_its_way = 0
            self._ready.put(batch.index, batch)

    def _release_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            # Where all was stopped, whoever waits for the next batch is told, and close() releases this one.
            with contextlib.suppress(ClosedError, DiskhopError):
                self._used.put(held.index, held)

    def _release_used(self) -> None:
        for _ in range(self._num_batches):
            self._release(self._used.get())

    def _release(self, batch: InFlightBatch) -> None:
        with self._lock:
            self._unreleased.discard(batch)
        self._release_ticket(batch)
        batch.x = batch.rows = batch.prepared = None
        self._leave(batch)

    def _release_ticket(self, batch: InFlightBatch) -> None:
        ticket, batch.ticket = batch.ticket, None
        if ticket is not None and self._pipeline.store is not None:
            self._pipeline.store.release(ticket)
            if batch.ends_superbatch:
                # Only now nothing of it is on the disk any more, neither its trace nor what the store made of it.
                self._superbatch_gate.leave(1)

    def _leave(self, batch: InFlightBatch) -> None:
        self._on_their_way.leave(batch.bytes_on_its_way)
        self._assembled.leave(batch.bytes_assembled)
        batch.bytes_on_its_way = batch.bytes_assembled = 0

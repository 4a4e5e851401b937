"""The stages of a pass: sample, look ahead, submit and collect.

A stage reads items from one channel and puts results in the next; stage_threads.py runs it on threads. A new stage is
one class and one entry in `stages_of`. For a store that looks ahead, the first two run ahead of the others (ahead.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, cast

from diskhop.pipeline.batch import SAMPLED_AHEAD, InFlightBatch, Pass, Prepare, Sampled
from diskhop.pipeline.in_flight import MOST_IN_FLIGHT, InFlightBatches
from diskhop.pipeline.parts import PipelineParts
from diskhop.pipeline.stage_threads import Stage
from diskhop.pipeline.superbatch import NoRoomError, Superbatch, SuperbatchMaker
from diskhop.policies.superbatches import SUPERBATCHES_ON_DISK
from diskhop.protocols import Sampler
from diskhop.runtime.channels import ByteGate, Channel, Phase, Turns
from diskhop.sampling.lists_in_turn import ListsInTurn
from diskhop.sampling.samplers import open_sampler
from diskhop.stores.resources import ReplayStore

# Batches in order of submission, with True for the last one of a superbatch.
Source = Generator[tuple[Sampled, bool]]
ReadSource = Callable[[Channel[Any]], Source]


class Sample:
    """Samples the batches of a pass, in the order of its numbers.

    phase: when the lists are in memory; None: all the time.
    """

    name = "sample"

    def __init__(
        self, sampler: Sampler, wanted: Pass, num_threads: int, capacity: int, phase: Phase | None = None
    ) -> None:
        self.num_threads = num_threads
        self.capacity = capacity
        self._phase = phase
        self._sampler = sampler
        self._wanted = wanted
        self._turns = Turns(len(wanted.numbers))

    def run(self, _incoming: Channel[Any], outgoing: Channel[Sampled]) -> None:
        """See Stage."""
        for turn in self._turns:
            with contextlib.nullcontext() if self._phase is None else self._phase.work():
                sampled = self._sample(turn)
            outgoing.put(turn, sampled)
            # The next turn must not keep it, once it is written to a superbatch.
            del sampled

    def close(self, error: BaseException | None) -> None:
        """See Stage."""
        if self._phase is not None:
            self._phase.close(error)

    def finish(self) -> None:
        """Free the sampler and the seeds, once all batches are sampled."""
        del self._sampler, self._wanted

    def _sample(self, turn: int) -> Sampled:
        started, wanted = time.perf_counter(), self._wanted
        number = wanted.numbers[turn]
        seeds = wanted.seeds_of(number)
        sampled = self._sampler.sample(
            seeds.rows, purpose=wanted.purpose, epoch=wanted.epoch, number=number, times=seeds.times
        )
        return sampled, time.perf_counter() - started


class LookAhead:
    """Writes sampled batches to disk as superbatches and lets the store plan for each of them.

    on_disk: gate of the number of superbatches on disk, one if `lists` are given.
    ended: called when all are made and handed over.
    lists: read before each superbatch is sampled. The store has their memory once it is made, until it has left the
        disk. None: lists have memory of their own.
    phase: when they are in memory.
    """

    name = "look_ahead"
    num_threads = 1
    capacity = SUPERBATCHES_ON_DISK

    def __init__(
        self,
        maker: SuperbatchMaker,
        on_disk: ByteGate,
        ended: Callable[[], None],
        lists: ListsInTurn | None = None,
        phase: Phase | None = None,
    ) -> None:
        self._maker = maker
        self._on_disk = on_disk
        self._ended = ended
        self._lists = lists
        self._phase = phase

    def run(self, incoming: Channel[Sampled], outgoing: Channel[Superbatch]) -> None:
        """See Stage."""
        index = 0
        while not self._maker.is_done:
            outgoing.put(index, self._make_superbatch(incoming))
            index += 1
        self._ended()

    def close(self, error: BaseException | None) -> None:
        """See Stage."""
        self._on_disk.close(error)

    def _make_superbatch(self, incoming: Channel[Sampled]) -> Superbatch:
        gate = self._on_disk
        gate.enter(1)
        if self._lists is None or self._phase is None:
            return self._make(incoming)
        self._lists.load()
        self._phase.begin()
        superbatch = self._make(incoming)
        self._phase.end()
        return superbatch

    def _make(self, incoming: Channel[Sampled]) -> Superbatch:
        gate = self._on_disk
        try:
            return self._maker.make(incoming)
        except NoRoomError:
            # There may be space once every other superbatch has left the disk.
            gate.leave(1)
            gate.enter(SUPERBATCHES_ON_DISK + 1)
            self._maker.free_disk()
            superbatch = self._maker.make(incoming)
            gate.leave(SUPERBATCHES_ON_DISK)
            return superbatch


class Submit:
    """Submits batches to the store in order, as the gates admit them."""

    name = "submit"
    num_threads = 1
    capacity = MOST_IN_FLIGHT

    def __init__(self, parts: PipelineParts, wanted: Pass, read_source: ReadSource, in_flight: InFlightBatches) -> None:
        self._parts = parts
        self._num_batches = len(wanted.numbers)
        self._first_row = wanted.first_row
        self._read_source = read_source
        self._in_flight = in_flight

    def run(self, incoming: Channel[Any], outgoing: Channel[InFlightBatch]) -> None:
        """See Stage."""
        store = self._parts.store
        # Close the source explicitly: an error's traceback may keep it alive, and with it a trace's descriptor.
        with contextlib.closing(self._read_source(incoming)) as batches:
            for index in range(self._num_batches):
                (sampled, seconds), ends_superbatch = next(batches)
                sampled_at = time.perf_counter()
                self._in_flight.extracting.enter(1)
                batch = InFlightBatch(index, sampled, seconds, ends_superbatch, self._first_row, sampled_at)
                self._in_flight.add(batch)
                admit = partial(self._admit, batch)
                if store is None:
                    admit(0)
                else:
                    batch.ticket = store.submit(sampled, admit)
                outgoing.put(index, batch)

    def close(self, error: BaseException | None) -> None:
        """See Stage."""
        self._in_flight.fetching.close(error)
        self._in_flight.extracting.close(error)

    def _admit(self, batch: InFlightBatch, store_bytes: int) -> None:
        num_bytes = self._parts.fetch_bytes(batch.sampled, store_bytes)
        self._in_flight.fetching.enter(num_bytes)
        batch.fetch_bytes = num_bytes


class Collect:
    """Waits for the rows of submitted batches, decodes them and prepares them for the consumer."""

    name = "collect"
    capacity = MOST_IN_FLIGHT

    def __init__(self, parts: PipelineParts, wanted: Pass, prepare: Prepare | None, in_flight: InFlightBatches) -> None:
        # In order, finishing a batch before the one that is delivered next gains nothing.
        self.num_threads = 1 if parts.plan.ordered else parts.plan.share.most_extracting
        self._parts = parts
        self._with_in_degrees = wanted.with_in_degrees
        self._prepare = prepare
        self._in_flight = in_flight
        self._turns = Turns(len(wanted.numbers))

    def run(self, incoming: Channel[InFlightBatch], outgoing: Channel[InFlightBatch]) -> None:
        """See Stage."""
        assembles = self._parts.plan.bytes_assembled > 0
        for _ in self._turns:
            batch = incoming.get()
            if assembles:
                num_bytes = self._parts.assembled_bytes(batch.sampled)
                self._in_flight.assembled.enter(num_bytes)
                batch.assembled_bytes = num_bytes
            self._parts.fetch_rows(batch, self._with_in_degrees)
            if self._prepare is not None:
                assert batch.x is not None
                x: Any = batch.x if batch.x_by_type is None else batch.x_by_type
                batch.prepared = self._prepare(batch.sampled, x)
            if assembles:
                self._in_flight.release_ticket(batch)
                self._in_flight.fetching.leave(batch.fetch_bytes)
                batch.fetch_bytes = 0
            batch.collected_at = time.perf_counter()
            outgoing.put(batch.index, batch)

    def close(self, error: BaseException | None) -> None:
        """See Stage."""
        self._in_flight.assembled.close(error)


def stages_of(parts: PipelineParts, wanted: Pass, prepare: Prepare | None, in_flight: InFlightBatches) -> list[Stage]:
    """The stages of a pass, in order. Every batch passes each of them. Superbatches, if there are any, come in."""
    num_threads = parts.plan.sampling_threads
    sampling: list[Stage] = []
    if in_flight.superbatches is not None:
        read_source: ReadSource = _read_superbatches
    elif parts.is_prepared(wanted):
        read_source = partial(_read_prepared, _replay(parts, wanted))
    else:
        read_source = _read_sampled
        sampler = open_sampler(parts.topology, wanted.sampler, wanted.seed, parts.pool)
        sampling = [Sample(sampler, wanted, num_threads, num_threads + SAMPLED_AHEAD)]
    submit = Submit(parts, wanted, read_source, in_flight)
    return [*sampling, submit, Collect(parts, wanted, prepare, in_flight)]


def _replay(parts: PipelineParts, wanted: Pass) -> Callable[[], Iterator[Sampled]]:
    """Read the wanted batches from those prepared before the run."""
    store = cast(ReplayStore[Any], parts.store)
    store.start_pass()
    return partial(store.replay, parts.find_prepared(wanted), wanted.numbers)


def _read_sampled(incoming: Channel[Sampled]) -> Source:
    while True:
        yield incoming.get(), False


def _read_superbatches(incoming: Channel[Superbatch]) -> Source:
    while True:
        superbatch = incoming.get()
        num_batches = len(superbatch)
        for index in range(num_batches - 1):
            yield superbatch.batch(index), False
        last = superbatch.batch(num_batches - 1)
        superbatch.remove()
        # Drop the descriptor too: as long as it is open, the disk keeps the file.
        del superbatch
        yield last, True


def _read_prepared(replay: Callable[[], Iterator[Sampled]], _incoming: Channel[Any]) -> Source:
    for sampled in replay():
        yield sampled, False

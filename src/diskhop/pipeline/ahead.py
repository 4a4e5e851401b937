"""A pass sampled ahead: its superbatches are made on threads of their own, while earlier ones are delivered.

A pass may announce the one that follows. Once all its superbatches are made, those of the following pass are begun, so
that the model does not wait for the first of them. Both passes share the disk's bound of superbatches.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any, cast

from diskhop.pipeline.batch import Pass
from diskhop.pipeline.parts import PipelineParts
from diskhop.pipeline.stage_threads import StageThreads
from diskhop.pipeline.stages import LookAhead, Sample
from diskhop.pipeline.superbatch import Superbatch, SuperbatchMaker
from diskhop.policies.superbatches import SUPERBATCHES_ON_DISK
from diskhop.protocols import LookAheadStore
from diskhop.runtime.channels import ArrivalChannel, ByteGate, Channel, Phase
from diskhop.sampling.samplers import open_sampler

# Makes the pass that follows another one, when it is begun: its seeds take memory.
MakePass = Callable[[], Pass]


class SampledAhead:
    """The superbatches of a pass. They are made from the start, or from the end of `before`, which announced the pass.

    superbatches: those that are made, in order.
    on_disk: gate of their number on the disk.
    """

    def __init__(self, parts: PipelineParts, wanted: Pass, before: SampledAhead | None = None) -> None:
        self._parts = parts
        self._numbers = wanted.numbers
        self._settings = wanted.trace_settings(parts.dataset.hash)
        self._lock = threading.RLock()
        self._announced: MakePass | None = None
        self._following: SampledAhead | None = None
        self._is_made = self._is_closed = False
        self._pid = os.getpid()
        if before is None:
            cast(LookAheadStore[Any], parts.store).start_pass()
        # Rows of one superbatch have the memory of the lists that the next one is sampled from.
        num_on_disk = SUPERBATCHES_ON_DISK if parts.lists is None else 1
        self.on_disk: ByteGate = ByteGate(num_on_disk) if before is None else before.on_disk
        maker_before = None if before is None else before._maker
        self._maker: SuperbatchMaker = SuperbatchMaker(parts, self._settings, self._numbers, maker_before)
        sampler = open_sampler(parts.topology, wanted.sampler, wanted.seed, parts.pool)
        num_threads = parts.plan.sampling_threads
        # Batches of a superbatch wait on disk, not in the channel.
        phase = None if parts.lists is None else Phase()
        self._sample = Sample(sampler, wanted, num_threads, num_threads, phase)
        look_ahead = LookAhead(self._maker, self.on_disk, self._end, parts.lists, phase)
        self._threads = StageThreads([self._sample, look_ahead], ArrivalChannel(0), ordered=True)
        self.superbatches: Channel[Superbatch] = self._threads.outgoing
        atexit.register(self.close)
        self._threads.start()

    def is_of(self, wanted: Pass) -> bool:
        """Whether these are the batches of a pass, in its order."""
        is_same = self._settings == wanted.trace_settings(self._parts.dataset.hash)
        return is_same and list(self._numbers) == list(wanted.numbers)

    def announce(self, following: MakePass | None) -> None:
        """Begin another pass once all superbatches of this one are made. following: None for no pass."""
        with self._lock:
            self._announced = following
            self._begin_following()

    def take_following(self) -> SampledAhead | None:
        """Return the following pass, if it is begun. The caller closes it."""
        with self._lock:
            following, self._following = self._following, None
            return following

    def finish(self) -> None:
        """End the threads of a pass whose batches are all delivered. The following pass goes on."""
        if os.getpid() == self._pid:
            self._threads.join()
            atexit.unregister(self.close)

    def close(self) -> None:
        """Stop everything, the following pass too, and delete the files. In a forked child there are no threads."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._is_closed, self._announced = True, None
            following = self.take_following()
        if following is not None:
            following.close()
        self._threads.stop(None)
        self._threads.join()
        self._maker.remove_files()
        atexit.unregister(self.close)

    def _end(self) -> None:
        # Memory for the sampler of the following pass.
        self._sample.finish()
        with self._lock:
            self._is_made = True
            self._begin_following()

    def _begin_following(self) -> None:
        """Begin the announced pass, if it is time. Needs the lock."""
        if self._announced is None or self._is_closed or not self._is_made:
            return
        wanted, self._announced = self._announced(), None
        if not self._parts.is_prepared(wanted):
            self._following = SampledAhead(self._parts, wanted, self)

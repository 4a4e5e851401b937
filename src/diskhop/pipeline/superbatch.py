"""Superbatches: spans of batches sampled ahead to the disk, so that a store knows what will be asked for (Ginex).

One superbatch is carried out while the next one is sampled and looked over. The first are short, so that training
starts soon, each longer than the one before as the store likes it, up to what the disk may take: every seam has its
price. A full disk makes them shorter.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskhop._native import BufferPool, Engine
from diskhop.batches.trace import TraceReader, TraceSettings, TraceWriter
from diskhop.errors import DestinationError
from diskhop.policies.superbatches import _FIRST_LENGTH, _next_length
from diskhop.protocols import LookAheadStore, SampledBatch

# A batch and the seconds that sampling it took.
Sampled = tuple[SampledBatch, float]


class NoRoomError(DestinationError):
    """The disk has no room for a single batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Superbatch:
    """Batches that the store has looked over. seconds: of sampling each, its part of the looking over included."""

    trace: TraceReader
    path: Path
    seconds: list[float]

    def __len__(self) -> int:
        return len(self.trace)

    def batch(self, index: int) -> Sampled:
        """Read a batch back. Raises FormatError or ReadError for a damaged trace."""
        started = time.perf_counter()
        batch = self.trace.batch(index)
        return batch, self.seconds[index] + time.perf_counter() - started

    def remove(self) -> None:
        """From the disk."""
        self.path.unlink(missing_ok=True)


class SuperbatchMaker:
    """Makes superbatches of what `sample()` gives, batch by batch, as long as `keep_on()` does not raise.

    numbers: of the batches, in the order in which they come. Not for several threads at once.
    """

    def __init__(
        self,
        sample: Callable[[], Sampled],
        keep_on: Callable[[], None],
        numbers: Sequence[int],
        most_batches: int,
        store: LookAheadStore[Any],
        settings: TraceSettings,
        num_nodes: int,
        folder: Path,
        engine: Engine,
        pool: BufferPool,
    ) -> None:
        self._sample = sample
        self._keep_on = keep_on
        self._numbers = numbers
        self._num_made = 0
        self._most_batches = most_batches
        self._length = min(_FIRST_LENGTH, most_batches)
        self._store = store
        self._settings = settings
        self._num_nodes = num_nodes
        self._folder = folder
        self._engine = engine
        self._pool = pool
        # Sampled, but the disk had no room for them.
        self._carried: deque[Sampled] = deque()
        # For how many batches of the next superbatch the store has room.
        self._num_with_room = 0

    @property
    def is_done(self) -> bool:
        """Whether all batches are in superbatches."""
        return self._num_made == len(self._numbers)

    def free_disk(self) -> None:
        """Of what may be done without; before make() is tried again."""
        self._store.free_disk()

    def make(self) -> Superbatch:
        """The next one. Raises NoRoomError, after which it may be tried again."""
        path = self._folder / f"trace-{self._num_made}.bin"
        numbers = self._numbers[self._num_made :][: self._length]
        seconds: list[float] = []
        # A record that fails to be written is known to have failed when the one after it is added.
        recent: deque[Sampled] = deque(maxlen=2)
        # As text: the error itself would keep this frame, and with it the trace's descriptor, for the collector.
        full = ""
        started = time.perf_counter()
        sampling_seconds = 0.0
        try:
            writer = TraceWriter(path, self._settings, self._num_nodes, self._engine, self._pool, numbers)
        except DestinationError as error:
            raise NoRoomError(str(error)) from error
        with writer:
            try:
                while len(seconds) < len(numbers):
                    asked = time.perf_counter()
                    recent.append(self._carried.popleft() if self._carried else self._sample())
                    sampling_seconds += time.perf_counter() - asked
                    batch, batch_seconds = recent[-1]
                    if len(seconds) == self._num_with_room:
                        self._store.make_room(batch)
                        self._num_with_room += 1
                    writer.append(batch)
                    seconds.append(batch_seconds)
            except DestinationError as error:
                full = str(error)
            try:
                writer.finish()
            except DestinationError as error:
                full = str(error)
            num_written = len(writer)
        self._carried.extendleft(sampled for sampled in reversed(recent) if sampled[0].number in numbers[num_written:])
        if num_written == 0:
            path.unlink(missing_ok=True)
            raise NoRoomError(full)
        self._num_made += num_written
        self._most_batches = num_written if full else self._most_batches
        self._length = _next_length(self._length, self._most_batches, self._store.growth)
        trace = TraceReader(path, self._settings, self._engine, self._pool, numbers)
        self._num_with_room = 0
        self._store.look_ahead(trace, self._keep_on)
        seconds_each = (time.perf_counter() - started - sampling_seconds) / num_written
        return Superbatch(trace, path, [each + seconds_each for each in seconds[:num_written]])

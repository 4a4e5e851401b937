"""Superbatches: spans of prefetched batches on disk, so that a store can plan with them (Ginex, section 3.1).

The store works on one superbatch while the next one is sampled and planned. The first one is short, so that training
starts soon. Each is longer than the one before, by the store's growth, up to the limit of the disk: every boundary
between superbatches costs time. Lengths go on growing in a pass that follows. A full disk makes superbatches shorter.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from diskhop.batches.trace import TraceReader, TraceSettings, TraceWriter
from diskhop.errors import DestinationError
from diskhop.pipeline.batch import Sampled
from diskhop.pipeline.parts import PipelineParts
from diskhop.policies.superbatches import next_length
from diskhop.protocols import LookAheadStore
from diskhop.runtime.channels import Channel


class NoRoomError(DestinationError):
    """The disk has no space for a single batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Superbatch:
    """Batches that the store has planned for.

    trace: the batches.
    path: its file.
    seconds: per batch, of sampling it and its share of the planning.
    """

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
        """Delete the file."""
        self.path.unlink(missing_ok=True)


class SuperbatchMaker:
    """Makes the superbatches of a pass of sampled batches, until the channel that they come from is closed.

    parts: with a store that looks ahead, and a scratch folder.
    settings: of the traces.
    numbers: of the batches, in order of arrival.
    before: of the pass before, if this one is prepared while that one is delivered.
    Use it from one thread at a time.
    """

    def __init__(
        self,
        parts: PipelineParts,
        settings: TraceSettings,
        numbers: Sequence[int],
        before: SuperbatchMaker | None = None,
    ) -> None:
        assert parts.scratch is not None
        self._parts = parts
        self._settings = settings
        self._numbers = numbers
        self._store = cast(LookAheadStore[Any], parts.store)
        self._folder = parts.scratch
        self._num_made = 0
        self._most_batches: int = parts.plan.share.superbatch if before is None else before._most_batches
        self._last_length: int = 0 if before is None else before._last_length
        # Both passes have files at the same time.
        self._next_file: int = 0 if before is None else before._next_file
        self._first_file = self._next_file
        # Sampled, but the disk had no space for them.
        self._carried: deque[Sampled] = deque()
        # Batches of the next superbatch that the store has reserved space for.
        self._num_with_room = 0

    @property
    def is_done(self) -> bool:
        """True if all batches are in superbatches."""
        return self._num_made == len(self._numbers)

    def free_disk(self) -> None:
        """Free the disk space that the store can do without, before another make()."""
        self._store.free_disk()

    def remove_files(self) -> None:
        """Delete the files that are left."""
        for number in range(self._first_file, self._next_file):
            self._path(number).unlink(missing_ok=True)

    def make(self, incoming: Channel[Sampled]) -> Superbatch:
        """Make the next superbatch of the batches that come in. Raises NoRoomError; a later call may then succeed."""
        path = self._path(self._next_file)
        self._next_file += 1
        num_left = len(self._numbers) - self._num_made
        first = self._parts.plan.share.first_superbatch
        length = next_length(self._last_length, num_left, self._most_batches, self._store.growth, first)
        numbers = self._numbers[self._num_made :][:length]
        started = time.perf_counter()
        try:
            writer = TraceWriter(
                path, self._settings, self._parts.topology.num_nodes, self._parts.engine, self._parts.pool, numbers
            )
        except DestinationError as error:
            raise NoRoomError(str(error)) from error
        seconds, sampling_seconds, full = self._write(writer, numbers, incoming)
        num_written = len(writer)
        if num_written == 0:
            path.unlink(missing_ok=True)
            raise NoRoomError(full)
        self._num_made += num_written
        self._most_batches = num_written if full else self._most_batches
        self._last_length = num_written
        trace = TraceReader(path, self._settings, self._parts.engine, self._parts.pool, numbers)
        self._num_with_room = 0
        self._store.look_ahead(trace, incoming.require_open)
        seconds_each = (time.perf_counter() - started - sampling_seconds) / num_written
        return Superbatch(trace, path, [each + seconds_each for each in seconds[:num_written]])

    def _write(
        self, writer: TraceWriter, numbers: Sequence[int], incoming: Channel[Sampled]
    ) -> tuple[list[float], float, str]:
        """Write batches until the trace or the disk is full.

        Returns seconds per batch, seconds of waiting for samples, and the text of the full disk's error, if any. The
        error itself would keep this frame alive, and with it the trace's descriptor.
        """
        seconds: list[float] = []
        sampling_seconds = 0.0
        # A failed write of a record is noticed when the next one is appended.
        recent: deque[Sampled] = deque(maxlen=2)
        full = ""
        with writer:
            try:
                while len(seconds) < len(numbers):
                    asked = time.perf_counter()
                    recent.append(self._carried.popleft() if self._carried else incoming.get())
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
        return seconds, sampling_seconds, full

    def _path(self, number: int) -> Path:
        return self._folder / f"trace-{number}.bin"

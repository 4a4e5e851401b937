"""A pass of NeighborLoader."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from diskhop.loaders.progress import Position
from diskhop.loaders.shares import PassNumbers
from diskhop.pipeline.batch import MiniBatch
from diskhop.pipeline.stream import BatchStream


class NeighborPass:
    """A pass that can be suspended; see PassTurns.

    position: what it has delivered, by places in `numbers`.
    numbers: of the batches of the whole pass.
    start: starts a stream of the batches with these numbers.
    """

    def __init__(self, position: Position, numbers: PassNumbers, start: Callable[[Sequence[int]], BatchStream]) -> None:
        self.position = position
        self._numbers = numbers
        self._start = start
        self._stream: BatchStream | None = None

    def next_batch(self) -> MiniBatch | None:
        """Wait for the next batch; None after the last one."""
        if self._stream is None:
            places = self.position.numbers_left(len(self._numbers))
            if not places:
                return None
            self._stream = self._start(self._numbers.at(places))
        batch = next(self._stream, None)
        if batch is None:
            self.suspend()
        else:
            self.position.add(self._numbers.place_of(batch.number))
        return batch

    def suspend(self) -> None:
        """See Suspendable."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

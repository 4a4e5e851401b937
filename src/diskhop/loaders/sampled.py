"""The common part of all loaders of sampled batches: passes, their state, single batches, and closing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import torch

from diskhop.budget import Budget
from diskhop.loaders.adjacency import Adjacencies
from diskhop.loaders.batches import Batch
from diskhop.loaders.opened import OpenGraph
from diskhop.loaders.passes import NeighborPass
from diskhop.loaders.progress import Progress
from diskhop.loaders.shares import LoaderShare, PassNumbers
from diskhop.loaders.transforms import transformed
from diskhop.loaders.turns import PassTurns
from diskhop.pipeline.batch import MiniBatch
from diskhop.pipeline.stream import BatchStream
from diskhop.plans import SampledPlan
from diskhop.runtime.process import OwnerProcess


class SampledLoader(ABC):
    """A loader of sampled batches. A subclass opens `_graph`, and says what a pass is.

    name: of the class, for messages.
    memory: of everything, as users give it; see budget_of().
    share: the batches of this process.
    transform: called with each batch; None: it is delivered as it is.
    pin_memory: whether batches are delivered in pinned memory, where there is a GPU.
    """

    _graph: OpenGraph

    def __init__(
        self,
        name: str,
        memory: Budget | int | str | None,
        share: LoaderShare,
        *,
        transform: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
    ) -> None:
        self._share = share
        self.budget = share.budget_of(memory)
        self._process = OwnerProcess(self, name)
        self._transform = transform
        self._pins = pin_memory and torch.cuda.is_available()
        self._adjacencies: Adjacencies | None = None
        self._turns = PassTurns()
        self._progress = Progress(name)

    @property
    def plan(self) -> SampledPlan:
        """Choices of the store, the engine and the division of memory, with their reasons."""
        return self._graph.plan

    def __len__(self) -> int:
        """Number of batches per epoch, of this process."""
        return len(self._numbers)

    @property
    def _numbers(self) -> PassNumbers:
        return PassNumbers.of(self._share.ranks, self._num_batches)

    @property
    @abstractmethod
    def _num_batches(self) -> int:
        """Number of batches per epoch, of all processes together."""

    @abstractmethod
    def _begin(self, epoch: int) -> Callable[[Sequence[int]], BatchStream]:
        """Begin a pass. Returns what starts a stream of the batches with some numbers; it may be called repeatedly."""

    @abstractmethod
    def _arguments(self) -> dict[str, Any]:
        """Return the arguments that determine the batches. Raises ConfigError if a pass cannot be resumed."""

    def __iter__(self) -> Iterator[Any]:
        self._process.require_here()
        position = self._progress.begin()
        passed = NeighborPass(position, self._numbers, self._begin(position.epoch))
        try:
            while (batch := self._next_of(passed)) is not None:
                data = self._delivered(batch)
                # A reference kept while the next batch is in flight would be one batch more than reserved.
                del batch
                yield data
                del data
        finally:
            if self._process.is_here:
                self._turns.end(passed)
                self._progress.end(position)

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position: load_state_dict() on another loader resumes with the batches that are left.

        Of several passes that are under way, it is the one that delivered the last batch. Where processes share out the
        batches, all have delivered equally many, so that the state of one serves all of them.
        """
        return self._progress.state(self._state_arguments(), len(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume the next pass from a state_dict() of a loader with the same arguments."""
        self._progress.load(state, self._state_arguments(), len(self))

    def _state_arguments(self) -> dict[str, Any]:
        return {**self._arguments(), "processes": self._share.ranks.count}

    def close(self) -> None:
        """Return memory and close files; leaving a `with` block does it too. Does nothing in a forked child."""
        if self._process.is_here:
            with self._turns.turn(None):
                self._graph.close()

    def __reduce__(self) -> Any:
        return self._process.refuse_pickling()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _single(self, start: Callable[[int], BatchStream], num_seeds: int, batch_size: int) -> Any:
        """Make one batch. start: called with the number of the call. num_seeds: of it; the plan is for batch_size."""
        self._process.require_here()
        num_more = -(-num_seeds // batch_size) - 1
        with self._turns.turn(None), self.budget.reserve("large batch", 2 * num_more * self.plan.batch_bytes):
            number = self._progress.num_calls
            self._progress.num_calls += 1
            with start(number) as batches:
                return self._delivered(next(batches))

    def _next_of(self, passed: NeighborPass) -> MiniBatch | None:
        self._process.require_here()
        with self._turns.turn(passed):
            self._graph.require_open()
            batch = passed.next_batch()
            self._progress.advance(passed.position)
        return batch

    def _delivered(self, batch: MiniBatch) -> Any:
        data = batch.prepared if self._adjacencies is None else self._adjacencies.put(batch.prepared)
        data = data if self._transform is None else transformed(data, self._transform)
        return data.pin_memory() if self._pins and isinstance(data, Batch) else data

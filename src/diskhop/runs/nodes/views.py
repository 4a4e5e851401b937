"""The batches of a stream as training sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Generic, TypeVar

from diskhop.counters import FetchCounts, WaitSeconds
from diskhop.pipeline.batch import MiniBatch
from diskhop.pipeline.stream import BatchStream

ViewT = TypeVar("ViewT")


class BatchView:
    """A mini-batch as training sees it; a subclass has its nodes, see feeds.Batch."""

    def __init__(self, mini: MiniBatch) -> None:
        self.mini = mini

    @property
    def number(self) -> int:
        """See feeds.Batch."""
        return self.mini.number

    @property
    def counts(self) -> FetchCounts:
        """See feeds.Batch."""
        return self.mini.counts

    @property
    def sample_seconds(self) -> float:
        """See feeds.Batch."""
        return self.mini.sample_seconds

    @property
    def waits(self) -> WaitSeconds:
        """See feeds.Batch."""
        return self.mini.waits


class BatchViews(AbstractContextManager["BatchViews[ViewT]"], Generic[ViewT]):
    """The batches of a stream, each as a view of it. view: makes one."""

    def __init__(self, stream: BatchStream, view: Callable[[MiniBatch], ViewT]) -> None:
        self._stream = stream
        self._view = view

    def __iter__(self) -> Iterator[ViewT]:
        # Not a generator, which would keep a batch while the next one is fetched.
        return map(self._view, self._stream)

    def __len__(self) -> int:
        return len(self._stream)

    def __enter__(self) -> BatchViews[ViewT]:
        self._stream.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.__exit__(kind, error, trace)

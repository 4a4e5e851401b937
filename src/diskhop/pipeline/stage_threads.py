"""Stages connected by channels, each run on threads of its own. An error in one stage stops all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from diskhop.errors import DiskhopError, PipelineError
from diskhop.runtime.channels import ArrivalChannel, Channel, ClosedError, OrderedChannel


class Stage(Protocol):
    """One step of a pass, run on num_threads threads.

    name: for thread names and error messages.
    num_threads: threads that call run() at once.
    capacity: results that may wait for the next stage.
    """

    name: str
    num_threads: int
    capacity: int

    def run(self, incoming: Channel[Any], outgoing: Channel[Any]) -> None:
        """Process items until none are left. A ClosedError also ends it. The first stage may ignore `incoming`."""

    def close(self, error: BaseException | None) -> None:
        """Close the gates of this stage, so that no thread waits there; a thread that does raises the error."""


def _do_nothing(_error: BaseException | None) -> None:
    pass


class StageThreads:
    """The threads of stages, and the channels between them.

    stages: in order.
    incoming: what the first stage reads.
    ordered: True for channels that keep the order of items.
    stopped: called with the reason once everything is closed.
    outgoing: results of the last stage.
    is_stopped: whether stop() was called.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        incoming: Channel[Any],
        *,
        ordered: bool,
        stopped: Callable[[BaseException | None], None] = _do_nothing,
    ) -> None:
        self._stages: Sequence[Stage] = stages
        self._stopped = stopped
        self.is_stopped = False
        self._lock = threading.Lock()
        make_channel = OrderedChannel[Any] if ordered else ArrivalChannel[Any]
        self._channels = [incoming, *(make_channel(stage.capacity) for stage in stages)]
        self.outgoing = self._channels[-1]
        self._threads: list[threading.Thread] = []
        for stage, source, results in zip(stages, self._channels[:-1], self._channels[1:], strict=True):
            for _ in range(stage.num_threads):
                self.add(stage.name, stage.run, source, results)

    def add(self, name: str, work: Callable[..., None], *channels: Channel[Any]) -> None:
        """Add a thread. name: of its work, for error messages."""
        # Daemon threads, closed at exit by their owner: an iterator that still exists then must not keep the process.
        self._threads.append(
            threading.Thread(target=self._guard, args=(name, work, *channels), name=f"diskhop_{name}", daemon=True)
        )

    def start(self) -> None:
        """Start all threads; if that fails, none are left."""
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:
            self.stop(None)
            self.join()
            raise

    def stop(self, error: BaseException | None) -> None:
        """Close all gates and channels. Only the first reason counts; later failures follow from it."""
        with self._lock:
            if self.is_stopped:
                return
            self.is_stopped = True
        for stage in self._stages:
            stage.close(error)
        for channel in self._channels:
            channel.close(error)
        self._stopped(error)

    def join(self) -> None:
        """Wait until all threads have ended, and drop the stages, which refer to the owner of this object."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._threads.clear()
        self._stages, self._stopped = (), _do_nothing

    def _guard(self, name: str, work: Callable[..., None], *channels: Channel[Any]) -> None:
        try:
            work(*channels)
        except ClosedError:
            pass
        except (DiskhopError, MemoryError) as error:
            self.stop(error)
        except BaseException as error:
            # The representation of an OSError lacks the file.
            reason = str(error) if isinstance(error, OSError) else repr(error)
            wrapped = PipelineError(f"the pipeline's stage '{name}' failed: {reason}")
            wrapped.__cause__ = error
            self.stop(wrapped)

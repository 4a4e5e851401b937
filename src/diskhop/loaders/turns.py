"""Several passes over one loader at once: one of them runs, the others are suspended.

Two passes that ran together would take twice the memory of the plan, and a store that looks ahead follows one sequence
of batches. A suspended pass keeps its position only. It later continues with the batches that are left, which are the
same, since draws depend on seed, epoch and batch number alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Suspendable(Protocol):
    """A pass that can stop and continue."""

    def suspend(self) -> None:
        """Stop the work on coming batches and return its memory; the next batch starts it again."""


class PassTurns:
    """Lets one pass run at a time. Any thread may call it."""

    def __init__(self) -> None:
        # Reentrant: garbage collection may end a pass while this thread starts another.
        self._lock = threading.RLock()
        self._running: Suspendable | None = None

    @contextmanager
    def turn(self, wanted: Suspendable | None) -> Iterator[None]:
        """Suspend the running pass unless it is the wanted one, which then runs; None: no pass runs."""
        with self._lock:
            if self._running is not wanted:
                self._suspend()
                self._running = wanted
            yield

    def end(self, ended: Suspendable) -> None:
        """Suspend a pass that will not continue.

        Garbage collection calls it in any thread, also in one that the holder of the lock waits for. It does not wait:
        a holder that gives another pass its turn suspends this one.
        """
        if self._running is ended and self._lock.acquire(blocking=False):
            try:
                if self._running is ended:
                    self._suspend()
            finally:
                self._lock.release()

    def _suspend(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.suspend()

"""Signals that end a run, put off until what it has computed is kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """The signal that arrived while it was put off. number: None as long as there is none."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._handlers: dict[int, Any] = {}

    def put_off(self) -> None:
        """Note the first signal from now on, and let a second one end the process as it would have."""
        for number in _ENDING:
            handler = signal.getsignal(number)
            # A signal that is ignored, as with nohup, stays so. None: a handler that is not Python's.
            if handler not in (signal.SIG_IGN, None):
                self._handlers[number] = signal.signal(number, self._note)

    def restore(self) -> None:
        """Handle signals as before."""
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def deliver(self) -> None:
        """Let the signal end the process as it would have; does nothing if none has arrived."""
        number, self.number = self.number, None
        if number is not None:
            self.restore()
            signal.raise_signal(number)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.number is not None:
            self.deliver()
        self.number = number


@contextmanager
def put_off_interruptions() -> Iterator[Interruption]:
    """Put signals off in this context; one that is not delivered by then is delivered at its end.

    Only the main thread can: in others, signals are handled as ever.
    """
    found = Interruption()
    if threading.current_thread() is threading.main_thread():
        found.put_off()
    try:
        yield found
    finally:
        found.restore()
    found.deliver()

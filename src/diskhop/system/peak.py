"""The peak of this process's resident memory over a short time."""

from __future__ import annotations

import threading
from types import TracebackType

from diskhop.system.memory import resident_bytes

_SECONDS_APART = 0.001


class PeakWatch:
    """Samples resident memory every millisecond while its context is active.

    The kernel's own peak is of the whole life of a process, and starting it again would lose that.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory peak", daemon=True)

    def __enter__(self) -> PeakWatch:
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._sample()

    def _watch(self) -> None:
        while not self._is_over.wait(_SECONDS_APART):
            self._sample()

    def _sample(self) -> None:
        self.peak_bytes = max(self.peak_bytes, resident_bytes("VmRSS"))

"""How much memory this process has resident in the course of a run: a sample now and then, by a thread of its own."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from diskhop.system.memory import resident_bytes

_SECONDS_APART = 0.1
# Of a record: what a picture can show of an epoch.
_MOST_SAMPLES = 20

# Seconds since the start, and bytes: a list, as JSON gives it back.
MemorySample = list[float]


class MemoryLog:
    """A context; samples are taken while it is entered."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._samples: list[MemorySample] = []
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory log", daemon=True)

    def __enter__(self) -> MemoryLog:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def take(self) -> list[MemorySample]:
        """Samples since the last time, at least one; of many the highest of each of as many stretches as are kept."""
        self._sample()
        with self._lock:
            samples, self._samples = self._samples, []
        step = -(-len(samples) // _MOST_SAMPLES)
        return [
            max(samples[start : start + step], key=lambda sample: sample[1]) for start in range(0, len(samples), step)
        ]

    def _watch(self) -> None:
        while not self._is_over.wait(_SECONDS_APART):
            self._sample()

    def _sample(self) -> None:
        sample = [round(time.perf_counter() - self._started, 3), resident_bytes("VmRSS")]
        with self._lock:
            self._samples.append(sample)
            if len(self._samples) > 100 * _MOST_SAMPLES:  # an epoch of hours: half as often
                self._samples = self._samples[::2]

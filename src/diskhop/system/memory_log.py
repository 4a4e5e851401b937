"""Resident memory of this process over time, sampled by a background thread."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from diskhop.system.memory import resident_bytes

_SECONDS_APART = 0.1
# Samples per record: as many as a chart of an epoch can show.
_MOST_SAMPLES = 20

# [seconds since the start, bytes]; a list, because JSON has no tuples.
MemorySample = list[float]


class MemoryLog:
    """Samples memory while its context is active."""

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
        """Return the samples since the last call, at least one; many are thinned out to the peak of each interval."""
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
            if len(self._samples) > 100 * _MOST_SAMPLES:  # an epoch of hours: keep every second sample
                self._samples = self._samples[::2]

"""Streams of reads and writes that are timed: what the probe and the benchmarks measure a device with.

A stream keeps more in the engine than its depth, so that the device is never short of requests; its time counts from
when it is in full flow to when the last read of the full flow is done.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine, File

SEQUENTIAL_BYTES = 1 << 20
SEQUENTIAL_DEPTH = 8
_SMALL_BYTES = 32 << 10

Offsets = NDArray[np.uint64]


def random_offsets(file_bytes: int, num_bytes: int, group: int, rng: np.random.Generator) -> Iterator[Offsets]:
    """Groups of offsets of reads, each a multiple of the read's size, anywhere in the file."""
    while True:
        yield rng.integers(0, file_bytes // num_bytes, group).astype(np.uint64) * np.uint64(num_bytes)


def sequential_offsets(file_bytes: int, num_bytes: int, group: int) -> Iterator[Offsets]:
    """Groups of offsets from the front of the file to its end, over and over."""
    for start in itertools.count(0, group):
        yield (
            np.arange(start, start + group, dtype=np.uint64) % np.uint64(file_bytes // num_bytes) * np.uint64(num_bytes)
        )


def group_of(depth: int, num_bytes: int) -> int:
    """Reads a ticket: of small ones so many that Python's part is small, of large ones a few."""
    return max(16, depth) if num_bytes <= _SMALL_BYTES else max(4, depth // 4)


def measure_read_seconds(
    engine: Engine, file: File, buffer: NDArray[np.uint8], num_bytes: int, seconds: float, offsets: Iterator[Offsets]
) -> float:
    """Seconds per read of num_bytes, in a stream of about `seconds` that keeps engine.depth of them at the device.

    The reads share the buffer, which must hold one; nobody looks at what they bring. They use no more of it than what
    is at the device needs: memory that is warm in the processor's caches takes reads faster.
    """
    group = group_of(engine.depth, num_bytes)
    sizes = np.full(group, num_bytes, np.uint64)
    num_slots = max(1, min(engine.depth, len(buffer) // num_bytes))
    places = itertools.cycle(
        (np.arange(start, start + group) % num_slots).astype(np.uint64) * np.uint64(num_bytes)
        for start in range(0, group * num_slots, group)
    )
    tickets: deque[int] = deque()

    def submit() -> None:
        tickets.append(engine.submit_read(file, next(offsets), sizes, buffer, next(places)))

    try:
        # As many again wait in the engine: devices complete in bursts of up to all that they have.
        for _ in range(2 * engine.depth // group + 2):
            submit()
        engine.wait(tickets.popleft())
        submit()
        begin = time.perf_counter()
        num_reads = 0
        # A stream much shorter than its own depth would time how it starts and ends.
        while (elapsed := time.perf_counter() - begin) < seconds or num_reads < 2 * engine.depth:
            engine.wait(tickets.popleft())
            num_reads += group
            submit()
    finally:
        for ticket in tickets:
            engine.wait(ticket)
    return elapsed / num_reads


def write_file(
    engine: Engine, file: File, buffer: NDArray[np.uint8], file_bytes: int, max_seconds: float
) -> tuple[int, float]:
    """Write the file from front to back in 1-MiB transfers until it is long enough or time is up, then sync it.

    Returns (bytes written, seconds without the sync). The buffer's bytes are written over and over; file_bytes and the
    buffer must be multiples of 1 MiB.
    """
    sizes = np.full(SEQUENTIAL_DEPTH, SEQUENTIAL_BYTES, np.uint64)
    offsets = np.arange(SEQUENTIAL_DEPTH, dtype=np.uint64) * np.uint64(SEQUENTIAL_BYTES)
    tickets: deque[int] = deque()
    group_bytes = SEQUENTIAL_DEPTH * SEQUENTIAL_BYTES
    begin = time.perf_counter()
    written_bytes = 0
    try:
        while written_bytes < file_bytes and time.perf_counter() - begin < max_seconds:
            places = (np.uint64(written_bytes) + offsets) % np.uint64(len(buffer))
            tickets.append(engine.submit_write(file, np.uint64(written_bytes) + offsets, sizes, buffer, places))
            written_bytes += group_bytes
            if len(tickets) > 2:
                engine.wait(tickets.popleft())
    finally:
        while tickets:
            engine.wait(tickets.popleft())
    seconds = time.perf_counter() - begin
    engine.wait(engine.submit_fsync(file))
    return written_bytes, seconds

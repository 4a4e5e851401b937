"""Timed streams of reads and writes, with which the probe and the benchmarks measure a disk.

A *stream* queues more requests than its depth, so that the disk never runs out of work. Timing starts once the first
requests have completed and ends with the last request counted, so that startup and drain are not measured.
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
    """Yield groups of random read offsets, each a multiple of the read size."""
    while True:
        yield rng.integers(0, file_bytes // num_bytes, group).astype(np.uint64) * np.uint64(num_bytes)


def sequential_offsets(file_bytes: int, num_bytes: int, group: int) -> Iterator[Offsets]:
    """Yield groups of consecutive offsets, from the front of the file to its end, repeatedly."""
    for start in itertools.count(0, group):
        yield (
            np.arange(start, start + group, dtype=np.uint64) % np.uint64(file_bytes // num_bytes) * np.uint64(num_bytes)
        )


def reads_per_ticket(depth: int, num_bytes: int) -> int:
    """Return how many reads to submit at once: many small ones, so that Python's overhead is small, few large ones."""
    return max(16, depth) if num_bytes <= _SMALL_BYTES else max(4, depth // 4)


def measure_read_seconds(
    engine: Engine, file: File, buffer: NDArray[np.uint8], num_bytes: int, seconds: float, offsets: Iterator[Offsets]
) -> float:
    """Measure seconds per read of num_bytes, in a stream of about `seconds` with engine.depth reads in flight.

    All reads share the buffer, which must fit one; their content is discarded. Only the part needed for the
    reads in flight is used, because a read into memory that is warm in the CPU caches completes sooner.
    """
    group = reads_per_ticket(engine.depth, num_bytes)
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
        # As many again wait in the engine: disks complete requests in bursts of up to their whole queue.
        for _ in range(2 * engine.depth // group + 2):
            submit()
        engine.wait(tickets.popleft())
        submit()
        begin = time.perf_counter()
        num_reads = 0
        # A stream much shorter than its depth would mostly time its startup and drain.
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

    Returns (bytes written, seconds without the sync). The buffer is written repeatedly; its length and file_bytes must
    be multiples of 1 MiB.
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

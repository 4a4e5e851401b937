"""Tools of benchmarks: turns (work in its own process, so that its memory and I/O can be counted), and disk rates."""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from diskhop._native import BufferPool, File
from diskhop.io.engine import open_engine
from diskhop.runtime.process import let_openmp_sleep
from diskhop.runtime.progress import Progress
from diskhop.system.transfers import transfers

_DISK_BLOCK_BYTES, _DISK_DEPTH = 1 << 20, 16


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Costs of one turn; bytes are those read from and written to the disk. stages: see stage_clock."""

    seconds: float
    peak_rss_bytes: int
    bytes_read: int
    bytes_written: int
    stages: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Disk:
    """Sequential rates of the disk alone, bytes per second."""

    read_rate: float
    write_rate: float

    def mean(self, other: Disk) -> Disk:
        """Return the rates at which the same bytes take the mean of both times."""
        rates = ((self.read_rate, other.read_rate), (self.write_rate, other.write_rate))
        read_rate, write_rate = (2 / (1 / one + 1 / another) for one, another in rates)
        return Disk(read_rate=read_rate, write_rate=write_rate)

    def seconds(self, turn: Turn) -> float:
        """Return the seconds to read and then write the bytes of a turn."""
        return turn.bytes_read / self.read_rate + turn.bytes_written / self.write_rate


def stage_clock(stages: dict[str, float]) -> Progress:
    """Return a progress function that records the seconds from now to each stage's last report."""
    begin = time.perf_counter()

    def progress(stage: str, done: int, total: int) -> None:
        stages[stage] = round(time.perf_counter() - begin, 3)

    return progress


def drop_from_page_cache(path: Path) -> None:
    """Evict a file from the page cache, after writing it to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure_disk(folder: Path, source: Path, *, rounds: int = 1) -> Disk:
    """Read up to 1 GiB of the source, and write the same number of bytes to the folder, past the page cache.

    rounds: repetitions. Requests are of 1 MiB. A rented disk is faster for the first GiB or two than it can sustain.
    """
    num_blocks = max(1, min(1 << 30, source.stat().st_size) // _DISK_BLOCK_BYTES)
    engine, pool = open_engine("auto").engine, BufferPool(0)
    buffer = pool.take(_DISK_DEPTH * _DISK_BLOCK_BYTES)
    buffer[:] = 1
    path = folder / "disk"
    rates = []
    for submit, file in (
        (engine.submit_read, File(str(source), "read")),
        (engine.submit_write, File(str(path), "write")),
    ):
        tickets: list[int] = []
        begin = time.perf_counter()
        for block in range(rounds * num_blocks):
            if len(tickets) == _DISK_DEPTH:
                engine.wait(tickets.pop(0))
            place = block % _DISK_DEPTH * _DISK_BLOCK_BYTES
            offset = block % num_blocks * _DISK_BLOCK_BYTES
            offsets, sizes, places = (np.array([value], np.uint64) for value in (offset, _DISK_BLOCK_BYTES, place))
            tickets.append(submit(file, offsets, sizes, buffer, places))
        for ticket in tickets:
            engine.wait(ticket)
        rates.append(rounds * num_blocks * _DISK_BLOCK_BYTES / (time.perf_counter() - begin))
    path.unlink()
    return Disk(read_rate=rates[0], write_rate=rates[1])


def back_memory(num_bytes: int) -> None:
    """Touch and release memory, so that the machine still has it when it is requested right after.

    A virtual machine may return free memory to its host within seconds, and then takes 2 s per GB to get it back: as
    much as some stores differ by, but not caused by them.
    """
    with mmap.mmap(-1, max(1, num_bytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for place in range(0, len(memory), mmap.PAGESIZE):
            memory[place] = 1


def take_turn(work: Callable[..., None], *arguments: Any) -> Turn:
    """Run work(*arguments, stages) in its own process, as the command line does; it may record stages."""
    let_openmp_sleep()
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_run_turn, args=(work, arguments, sender))
    child.start()
    sender.close()
    try:
        turn: Turn = receiver.recv()
    except EOFError:
        sys.exit("a turn failed; its output is above")
    child.join()
    return turn


def _run_turn(work: Callable[..., None], arguments: tuple[Any, ...], sender: Connection) -> None:
    stages: dict[str, float] = {}
    begin = time.perf_counter()
    work(*arguments, stages)
    seconds = time.perf_counter() - begin
    counts = transfers()
    sender.send(
        Turn(
            seconds=seconds,
            peak_rss_bytes=peak_rss_bytes(),
            bytes_read=counts.bytes_read,
            bytes_written=counts.bytes_written,
            stages=stages,
        )
    )


def peak_rss_bytes() -> int:
    """Return the peak resident memory of this program; getrusage would include its parent's before exec."""
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024

"""Turns that benchmarks share: a piece of work in a process of its own, whose memory and I/O are its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from diskhop.dataset.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn; bytes are those that went from and to the disk. stages: see stage_clock."""

    seconds: float
    peak_rss_bytes: int
    bytes_read: int
    bytes_written: int
    stages: dict[str, float]


def stage_clock(stages: dict[str, float]) -> Progress:
    """Progress that notes how many seconds from now each stage was heard of last."""
    begin = time.perf_counter()

    def progress(stage: str, done: int, total: int) -> None:
        stages[stage] = round(time.perf_counter() - begin, 3)

    return progress


def take_turn(work: Callable[..., None], *arguments: Any) -> Turn:
    """Run work(*arguments, stages), where it may note stages, in a process of its own."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_run_turn, args=(work, arguments, sender))
    child.start()
    sender.close()
    try:
        turn: Turn = receiver.recv()
    except EOFError:
        sys.exit("a turn failed; what it said is above")
    child.join()
    return turn


def _run_turn(work: Callable[..., None], arguments: tuple[Any, ...], sender: Connection) -> None:
    stages: dict[str, float] = {}
    begin = time.perf_counter()
    work(*arguments, stages)
    seconds = time.perf_counter() - begin
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    sender.send(
        Turn(
            seconds=seconds,
            peak_rss_bytes=peak_rss_bytes(),
            bytes_read=int(counts["read_bytes"]),
            bytes_written=int(counts["write_bytes"]),
            stages=stages,
        )
    )


def peak_rss_bytes() -> int:
    """The most that was resident, of this program alone: getrusage would count what its parent was before exec."""
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024

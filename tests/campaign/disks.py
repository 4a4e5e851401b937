"""Disks, clocks and other processes that behave badly while a command runs.

A disk that fills, one a hundred times slower, one that stalls, two writers, a folder that must not be written to, one
that is moved or removed, and a clock that jumps: each command ends with success or with one line, and what completes
it makes the same bytes.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from functools import partial

from tests.campaign.cases import Case, Tries
from tests.campaign.children import start_child, wait_for
from tests.campaign.jobs import JOBS
from tests.campaign.preloaded import PATIENCE_SECONDS, Server, job_named, last_line, run_preloaded, wrong_end

# A call on a file takes some 10 microseconds on a fast disk.
SLOW_NANOSECONDS = 1_000_000
STALL_SECONDS = 60.0
# A clock jumps by up to a day.
_MOST_JUMP = 86_400


def run(kind: str, job: str, tries: Tries) -> Generator[str]:
    return run_preloaded(__name__, tries, kind, job)


def tries_of(tries: Tries, kind: str, job: str) -> Generator[str]:
    """Make tries in this process, which has the library."""
    server = Server(job_named(job), tries.folder)
    if kind == "a disk that fills":
        yield from _with_small_disk(server, tries)
        return
    server.run_without_fault()
    for number in range(tries.first, tries.first + tries.count):
        yield TRIES[kind](server, tries.draws(job, number))


def _with_small_disk(server: Server, tries: Tries) -> Generator[str]:
    """Let the job work on disks that are too small for it, by a random share."""
    if os.geteuid() != 0:
        print("skipped: mounting a small disk needs root", flush=True)
        return
    server.run_without_fault()
    needed = sum(path.stat().st_size + 4096 for path in server.root.rglob("*"))
    for number in range(tries.first, tries.first + tries.count):
        size = max(8192, int(needed * tries.draws(server.job.name, number).uniform(0.02, 1.0)))
        server.begin()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(server.root)]
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            yield "mounting a small disk is not permitted here"
            continue
        try:
            ended = server.run(server.job.words)
            wrong = wrong_end(ended)
            subprocess.run(["mount", "-o", f"remount,size={needed * 20}", str(server.root)], check=True)
            yield wrong or server.complete(ended)
        finally:
            subprocess.run(["umount", "--lazy", str(server.root)], check=True)


def _slow_disk(server: Server, _: random.Random) -> str:
    arm = partial(server.library.faulty_calls_slow, bytes(server.folder), SLOW_NANOSECONDS)
    return _must_succeed(server, arm)


def _stall(server: Server, draws: random.Random) -> str:
    """Let one call of the job take a minute."""
    nth = draws.randint(1, 60)
    arm = partial(server.library.faulty_calls_stall, bytes(server.folder), nth, int(1e9 * STALL_SECONDS))
    return _must_succeed(server, arm, STALL_SECONDS)


def _clock(server: Server, draws: random.Random) -> str:
    """Let time.time() and the monotonic clock's reader see a clock that is set again and again."""

    def arm() -> None:
        plain, lock = time.time, threading.Lock()

        def jumping() -> float:
            with lock:
                return plain() + draws.uniform(-_MOST_JUMP, _MOST_JUMP)

        time.time = jumping

    return _must_succeed(server, arm)


def _must_succeed(server: Server, arm: Callable[[], object], seconds: float = 0.0) -> str:
    """Run the job, which may take some seconds more."""
    server.begin()
    ended = server.run(server.job.words, arm, PATIENCE_SECONDS + seconds)
    return wrong_end(ended) or (f"failed: {last_line(ended.told)}" if ended.code else server.difference())


def _two_writers(server: Server, draws: random.Random) -> str:
    """Start the same command twice at about the same time: one wins, the other one ends with a line, or both win."""
    server.begin()
    seconds = draws.uniform(0, 0.5)
    children = [
        server.start(server.job.words, lambda: time.sleep(seconds), "told-other"),
        server.start(server.job.words),
    ]
    ends = [server.end_of(children[0], told="told-other"), server.end_of(children[1])]
    if wrong := next((wrong for ended in ends if (wrong := wrong_end(ended))), ""):
        return wrong
    if all(ended.code for ended in ends):
        return f"none of two writers succeeds: {' | '.join(last_line(ended.told) for ended in ends)}"
    return server.difference()


def _read_only(server: Server, _: random.Random) -> str:
    """Have a file system refuse every change. Root may write to folders without permissions."""
    server.begin()
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(server.root)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        return "mounting a read-only disk is not permitted here"
    try:
        ended = server.run(server.job.words)
    finally:
        subprocess.run(["umount", str(server.root)], check=True)
    return wrong_end(ended) or ("succeeds without a place to write to" if not ended.code else server.complete(ended))


def _gone(server: Server, draws: random.Random) -> str:
    """Move or remove what the command reads while it runs."""
    server.begin()
    source = next(path for path in sorted(server.inputs.iterdir()) if path.name in ("source", "graph"))
    kept = server.folder / "kept"
    shutil.copytree(source, kept)
    moves, seconds = draws.random() < 0.5, draws.uniform(0, 0.5)

    def disturb() -> int:
        time.sleep(seconds)
        if moves:
            source.rename(server.folder / "moved")
        else:
            shutil.rmtree(source)
        return 0

    other = start_child(disturb, server.folder / "told-other")
    ended = server.run(server.job.words)
    wait_for(other, 10.0)
    shutil.rmtree(server.folder / "moved", ignore_errors=True)
    kept.rename(source)
    return wrong_end(ended) or server.complete(ended)


TRIES: dict[str, Callable[[Server, random.Random], str]] = {
    "a disk 100 times slower": _slow_disk,
    "a disk that stalls for 60 s": _stall,
    "a clock that jumps": _clock,
    "two writers": _two_writers,
    "a read-only folder": _read_only,
    "a folder moved or removed": _gone,
}
_COUNTS = {
    "a disk that fills": 20,
    "a disk 100 times slower": 2,
    "a disk that stalls for 60 s": 1,
    "a clock that jumps": 3,
    "two writers": 20,
    "a read-only folder": 1,
    "a folder moved or removed": 20,
}

CASES = tuple(
    Case(kind, job.name, count, partial(run, kind, job.name)) for kind, count in _COUNTS.items() for job in JOBS
)

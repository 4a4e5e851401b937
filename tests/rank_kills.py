"""Ranks under torchrun that are killed at random moments, and what they must not leave behind."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.ranks import free_port

# Until a rank that was started is expected to train.
MOST_SECONDS_ALIVE = 12
SECONDS_TO_END = 60


@contextlib.contextmanager
def torchrun(num_restarts: int, errors: Path, *words: str) -> Iterator[psutil.Process]:
    """Two ranks of a command. errors: file for what they print to stderr."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--max-restarts", str(num_restarts)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    command += ["-m", "diskhop", *words]
    with (
        errors.open("w") as stderr,
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr) as agent,
    ):
        try:
            yield psutil.Process(agent.pid)
        finally:
            agent.kill()


def ranks_of(agent: psutil.Process) -> list[psutil.Process]:
    try:
        return [each for each in agent.children() if each.is_running() and "diskhop" in each.cmdline()]
    except psutil.NoSuchProcess:
        return []


def kill_some(agent: psutil.Process, num_kills: int, draws: random.Random, seen: set[psutil.Process]) -> int:
    """Kill random ranks until there were enough kills, or the run has ended. Returns the number of kills."""
    killed = 0
    while killed < num_kills and agent.status() != psutil.STATUS_ZOMBIE:
        ranks = ranks_of(agent)
        seen |= set(ranks)
        if len(ranks) < 2:
            time.sleep(0.05)
            continue
        time.sleep(draws.uniform(0, MOST_SECONDS_ALIVE))
        with contextlib.suppress(psutil.NoSuchProcess):
            draws.choice(ranks).kill()
            killed += 1
        psutil.wait_procs(ranks, SECONDS_TO_END)
    return killed


def assert_nothing_left(seen: set[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(seen, SECONDS_TO_END)
    assert not alive, "every rank ends with its agent"
    left = [path.name for path in Path("/dev/shm").iterdir() if any(str(each.pid) in path.name for each in seen)]
    assert not left

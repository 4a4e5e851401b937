"""Runs in several ranks, without the seconds that a process takes to import torch: all are forks of one that has."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_TIMEOUT_SECONDS = 240


@dataclass(frozen=True)
class RanksJob:
    """A run of diskhop.train() or diskhop.embed() in some ranks.

    ranks: number of ranks.
    options: arguments of the command, as JSON has them.
    outs: RUN folder that each rank is given; a rank other than the first must not write it.
    datasets: the dataset that each rank is given; () for that of the options.
    command: train or embed.
    """

    ranks: int
    options: dict[str, Any]
    outs: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    command: str = "train"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def run_jobs(jobs: Sequence[RanksJob]) -> list[list[str]]:
    """Run jobs one after another, and return the errors of the ranks of each; '' for none."""
    given = json.dumps([{**asdict(job), "port": free_port()} for job in jobs])
    done = subprocess.run(
        [sys.executable, "-m", "tests.ranks"],
        input=given,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        cwd=Path(__file__).parents[1],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {(number, rank): text for number, rank, text in map(json.loads, done.stdout.splitlines())}
    return [[found[number, rank] for rank in range(job.ranks)] for number, job in enumerate(jobs)]


def folders_of(out: Path) -> tuple[str, ...]:
    """RUN folders of ranks, the first of which is the run's."""
    return (str(out), *(f"{out}-{rank}" for rank in range(1, 4)))


def _run(rank: int, jobs: list[dict[str, Any]]) -> None:
    from diskhop.errors import DiskhopError
    from diskhop.runs import start

    for number, job in enumerate(jobs):
        count = job["ranks"]
        if rank >= count:
            continue
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_PORT": str(job["port"])}
        os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(count)}
        options = dict(job["options"])
        options |= {name[:-1]: job[name][rank] for name in ("outs", "datasets") if job[name]}
        try:
            getattr(start, job["command"])(**options)
        except DiskhopError as error:
            text = str(error)
        else:
            text = ""
        os.write(1, (json.dumps([number, rank, text]) + "\n").encode())


def _main() -> None:
    import diskhop.runs.start  # noqa: F401  # before the forks

    jobs = json.load(sys.stdin)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    children = []
    for rank in range(max(job["ranks"] for job in jobs)):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _run(rank, jobs)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(map(abs, codes)))


if __name__ == "__main__":
    _main()

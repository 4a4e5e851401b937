"""Calls in several ranks, without the seconds that a process takes to import torch: all are forks of one that has."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from diskhop.errors import DiskhopError
from diskhop.runs import start
from tests.devices import deliver_on_the_cpu

_TIMEOUT_SECONDS = 240
# Less: a rank shows where it waits, and ends.
_TRACEBACK_SECONDS = 200


@dataclass(frozen=True)
class Call:
    """A call that every rank makes. function: of a module; its answers can be pickled, too."""

    ranks: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class RanksJob:
    """A run of diskhop.train() or diskhop.embed() in some ranks.

    ranks: number of ranks.
    options: arguments of the command.
    outs: RUN folder that each rank is given; a rank other than the first must not write it.
    datasets: the dataset that each rank is given; () for that of the options.
    command: train or embed.
    local: LOCAL_RANK and LOCAL_WORLD_SIZE of each rank; () where one launcher starts all.
    is_delivered: whether the CPU is the device of runs with device='cuda:7'; see deliver_on_the_cpu().
    """

    ranks: int
    options: dict[str, Any]
    outs: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    command: str = "train"
    local: tuple[tuple[int, int], ...] = ()
    is_delivered: bool = False


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def call_in_ranks(calls: Sequence[Call]) -> list[list[Any]]:
    """Make calls one after another, and return the answers of the ranks to each."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.ranks"],
        input=pickle.dumps(calls),
        capture_output=True,
        timeout=_TIMEOUT_SECONDS,
        cwd=Path(__file__).parents[1],
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    answers: list[list[Any]] = pickle.loads(done.stdout)
    return answers


def run_jobs(jobs: Sequence[RanksJob]) -> list[list[str]]:
    """Run jobs one after another, and return the errors of the ranks of each; '' for none."""
    return call_in_ranks([call_of(job) for job in jobs])


def call_of(job: RanksJob) -> Call:
    """The call of a job, which answers with its error; '' for none."""
    return Call(job.ranks, _run, (job,))


def call_in_group(num_processes: int, calls: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[list[Any]]:
    """Make calls in the processes of a group of torch.distributed. Returns answers or errors by call, then process."""
    by_process = call_in_ranks([Call(num_processes, _call_in_group, (calls,))])[0]
    return [list(answers) for answers in zip(*by_process, strict=True)]


def folders_of(out: Path) -> tuple[str, ...]:
    """RUN folders of ranks, the first of which is the run's."""
    return (str(out), *(f"{out}-{rank}" for rank in range(1, 4)))


def _run(job: RanksJob) -> str:
    rank = int(os.environ["RANK"])
    options = dict(job.options)
    options |= {"out": job.outs[rank]} if job.outs else {}
    options |= {"dataset": job.datasets[rank]} if job.datasets else {}
    if job.local:
        os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"] = map(str, job.local[rank])
    with pytest.MonkeyPatch.context() as patch:
        if job.is_delivered:
            deliver_on_the_cpu(patch)
        try:
            getattr(start, job.command)(**options)
        except DiskhopError as error:
            return str(error)
    return ""


def _call_in_group(calls: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    answers = []
    for function, arguments in calls:
        try:
            answers.append(function(*arguments))
        except DiskhopError as error:
            answers.append(f"{type(error).__name__}: {error}")
        dist.barrier()
    dist.destroy_process_group()
    return answers


def _answer(call: Call, rank: int, port: int, answers: Connection) -> None:
    faulthandler.dump_traceback_later(_TRACEBACK_SECONDS, exit=True)
    os.dup2(2, 1)  # stdout is for answers
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(call.ranks), "MASTER_PORT": str(port)}
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(call.ranks)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    answers.send(call.function(*call.arguments))


def _answers(call: Call) -> list[Any]:
    context = multiprocessing.get_context("fork")
    port = free_port()
    pipes = []
    for rank in range(call.ranks):
        receiving, sending = context.Pipe(duplex=False)
        context.Process(target=_answer, args=(call, rank, port, sending)).start()
        sending.close()
        pipes.append(receiving)
    return [pipe.recv() for pipe in pipes]


if __name__ == "__main__":
    calls = pickle.load(sys.stdin.buffer)
    # A rank's garbage collector would look at all that was imported, and copy its pages.
    gc.collect()
    gc.freeze()
    found = [_answers(call) for call in calls]
    sys.stdout.buffer.write(pickle.dumps(found))

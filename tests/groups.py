"""Functions called in the processes of a torch.distributed group, all of them forks of one that has torch."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

from diskhop.errors import DiskhopError

_PRELOADED = ["diskhop", "diskhop.loaders.neighbor", "torch.distributed", "tests.groups"]
_TIMEOUT_SECONDS = 240

# What each process returned from each call, or the text of its error.
Answers = list[list[Any]]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def call_in_group(num_processes: int, calls: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> Answers:
    """Make the same calls, one after another, in each process. Returns by call, then by process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    answers = context.Queue()
    port = free_port()
    processes = [
        context.Process(target=_answer, args=(rank, num_processes, port, calls, answers))
        for rank in range(num_processes)
    ]
    try:
        for process in processes:
            process.start()
        found = dict(answers.get(timeout=_TIMEOUT_SECONDS) for _ in processes)
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    return [[found[rank][number] for rank in range(num_processes)] for number in range(len(calls))]


def _answer(
    rank: int, num_processes: int, port: int, calls: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]], answers: Any
) -> None:
    import torch
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=num_processes)
    found = []
    for function, arguments in calls:
        try:
            found.append(function(*arguments))
        except DiskhopError as error:
            found.append(f"{type(error).__name__}: {error}")
        dist.barrier()
    answers.put((rank, found))
    dist.destroy_process_group()

"""Ranks under torchrun that are killed at any moment: torchrun starts them again, and they end in the same bits."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from diskhop.dataset.dataset import Dataset
from diskhop.runs.start import train
from tests.ranks import free_port
from tests.runs import assert_same_run, small_graph

NUM_KILLS = 50
# Until a rank that was started is expected to train.
MOST_SECONDS_ALIVE = 12
SECONDS_TO_END = 60
OPTIONS: dict[str, Any] = {
    "model": "sage",
    "hidden": 16,
    "fanout": (4, 4),
    "batch_size": 20,
    "epochs": 400,
    "patience": 0,
    "memory_bytes": 200_000_000,
    "engine": "threads",
    "matmul": "blas",
    "store": "belady",
}
WORDS = (
    "--model sage --hidden 16 --fanout 4,4 --batch-size 20 --epochs 400 --patience 0 --memory 200MB --engine threads "
    "--matmul blas --store belady --threads 2"
)


@contextlib.contextmanager
def torchrun(num_restarts: int, *words: str) -> Iterator[psutil.Process]:
    """Two ranks of a command."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--max-restarts", str(num_restarts)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    with subprocess.Popen([*command, "-m", "diskhop", *words], env=environment, stderr=subprocess.PIPE) as agent:
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


@pytest.fixture(scope="module")
def dataset(module_folder: Path) -> Dataset:
    dataset = small_graph(module_folder / "graph")
    train(dataset, out=module_folder / "whole", accumulate=2, threads=1, **OPTIONS)
    return dataset


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_ranks_start_again_and_end_in_the_same_bits(dataset: Dataset, module_folder: Path) -> None:
    draws, seen, num_kills, number = random.Random(0), set[psutil.Process](), 0, 0
    while num_kills < NUM_KILLS:
        out = module_folder / f"run {number}"
        number += 1
        with torchrun(NUM_KILLS, "train", str(dataset.path), "--out", str(out), *WORDS.split()) as agent:
            num_kills += kill_some(agent, NUM_KILLS - num_kills, draws, seen)
            assert agent.wait() == 0
        assert_same_run(module_folder / "whole", out)
        assert_nothing_left(seen)


@pytest.mark.slow
def test_ranks_end_with_their_agent(dataset: Dataset, module_folder: Path) -> None:
    """Also where they are in the middle of a batch, or wait for each other."""
    out = module_folder / "orphans"
    with torchrun(0, "train", str(dataset.path), "--out", str(out), *WORDS.split()) as agent:
        while not (out / "checkpoint.safetensors").exists():
            time.sleep(0.1)
        seen = set(ranks_of(agent))
        assert len(seen) == 2
        agent.kill()
    assert_nothing_left(seen)

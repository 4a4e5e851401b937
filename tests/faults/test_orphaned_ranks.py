"""Ranks whose torchrun is killed; tests/campaign kills the ranks themselves."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.rank_kills import SECONDS_TO_END, assert_nothing_left, ranks_of, torchrun
from tests.runs import small_graph

WORDS = (
    "--model sage --hidden 16 --fanout 4,4 --batch-size 20 --epochs 400 --patience 0 --memory 200MB --engine threads "
    "--matmul blas --store belady --accumulate 6 --threads 2 "
    "--checkpoint-every 6batches"
)


@pytest.mark.slow
def test_ranks_end_with_their_agent(tmp_path: Path) -> None:
    """Also where they are in the middle of a batch, or wait for each other."""
    dataset, out, errors = small_graph(tmp_path / "graph"), tmp_path / "run", tmp_path / "errors"
    with torchrun(0, errors, "train", str(dataset.path), "--out", str(out), *WORDS.split()) as agent:
        while not (out / "checkpoint.safetensors").exists():
            time.sleep(0.1)
        seen = set(ranks_of(agent))
        assert len(seen) == 2
        agent.kill()
    assert_nothing_left(seen)


@contextmanager
def start_rank(rank: int, port: int, folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Start one of two ranks, whose store is at a port of this machine; it is killed at the end."""
    dataset = small_graph(folder / "graph")
    ranks = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "diskhop", "train", str(dataset.path), "--out", str(folder / "run")]
    with subprocess.Popen(
        [*command, *WORDS.split()],
        env={**os.environ, **ranks, **address, **environment},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_rank_that_waits_for_the_others_ends_at_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    """The others' store takes its connection, and never answers: as that of a torchrun that was killed."""
    with socket.create_server(("127.0.0.1", 0)) as store, start_rank(1, store.getsockname()[1], tmp_path) as rank:
        store.settimeout(SECONDS_TO_END)
        store.accept()[0].close()  # which only looks whether the store is there
        connection, _ = store.accept()
        with connection:
            rank.send_signal(number)
            assert rank.wait(SECONDS_TO_END) == -number
    assert not (tmp_path / "run").exists()


def test_a_rank_whose_torchrun_has_ended_says_so(tmp_path: Path) -> None:
    """As one that torchrun started right before it was killed."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and never listens, so that nobody answers there
        with start_rank(0, held.getsockname()[1], tmp_path, TORCHELASTIC_USE_AGENT_STORE="True") as rank:
            _, told = rank.communicate(timeout=SECONDS_TO_END)
    assert rank.returncode == 2
    line = told.splitlines()[-1]
    assert line.startswith("diskhop: rank 0 of 2 does not reach the others at MASTER_ADDR:MASTER_PORT 127.0.0.1:")
    assert not (tmp_path / "run").exists()

"""Two machines train the bits of one: hosts in network namespaces, each with a dataset of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from diskhop.runs.start import train
from tests.embedding import OPTIONS, committed_bytes, small_triples
from tests.ranks import RanksJob, run_jobs
from tests.runs import assert_same_run, small_graph

TRAIN = (
    "train --model sage --hidden 16 --fanout 4,4 --batch-size 60 --epochs 3 --memory 200MB --engine threads "
    "--matmul blas --threads 1"
)
EMBED = (
    "embed --model complex --dim 8 --init-scale 0.3 --lr 0.1 --batch-size 64 --chunk-size 16 --negatives 12 --epochs 4 "
    "--partitions 8 --buffer 3 --repartitions 2 --memory 200MB --eval-edges 30 --eval-candidates 20 --engine threads "
    "--threads 1"
)
ADDRESS = "10.77.41.{}"


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two network namespaces that a cable joins."""
    names = [f"diskhop-{os.getpid()}-{number}" for number in range(2)]
    ends = [f"dh{os.getpid()}{letter}" for letter in "ab"]
    commands = [f"netns add {name}" for name in names]
    commands += [f"link add {ends[0]} netns {names[0]} type veth peer name {ends[1]} netns {names[1]}"]
    for number, (name, end) in enumerate(zip(names, ends, strict=True), start=1):
        commands += [f"-n {name} addr add {ADDRESS.format(number)}/24 dev {end}"]
        commands += [f"-n {name} link set {each} up" for each in (end, "lo")]
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need the command ip: apt-get install iproute2")
    try:
        for command in commands:
            done = subprocess.run(["ip", *command.split()], check=False, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"network namespaces need root: {done.stderr.strip()}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def start(hosts: list[str], number: int, dataset: Path, out: Path, words: str = TRAIN) -> subprocess.Popen[str]:
    """Start one rank on a host, as torchrun is started on several machines."""
    command = ["ip", "netns", "exec", hosts[number], sys.executable, "-m", "torch.distributed.run"]
    command += ["--nnodes", "2", "--node-rank", str(number), "--nproc-per-node", "1", "--local-addr"]
    command += [ADDRESS.format(number + 1), "--master-addr", ADDRESS.format(1), "--master-port", "29541"]
    command += ["-m", "diskhop", *words.split(), "--out", str(out), str(dataset)]
    end = f"dh{os.getpid()}{'ab'[number]}"
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": end}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_machines_train_the_bits_of_one_process(hosts: list[str], tmp_path: Path) -> None:
    dataset = small_graph(tmp_path / "graph")
    shutil.copytree(dataset.path, tmp_path / "copy")
    train(
        dataset,
        out=tmp_path / "alone",
        model="sage",
        hidden=16,
        fanout=(4, 4),
        batch_size=60,
        epochs=3,
        threads=1,
        memory="200MB",
        engine="threads",
        matmul="blas",
        accumulate=2,
    )
    outs = [tmp_path / "run", tmp_path / "other"]
    ranks = [start(hosts, number, tmp_path / name, outs[number]) for number, name in enumerate(("graph", "copy"))]
    ends = [rank.communicate(timeout=280) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], ends
    assert_same_run(tmp_path / "alone", tmp_path / "run")
    assert not outs[1].exists(), "rank 0 alone writes"


@pytest.mark.slow
def test_two_machines_train_the_embeddings_of_two_processes_on_one(hosts: list[str], tmp_path: Path) -> None:
    """RUN is on a file system that both share; the second is told where by the first."""
    dataset = small_triples(tmp_path)
    shutil.copytree(dataset.path, tmp_path / "copy")
    options = {**OPTIONS, "partitions": 8, "repartitions": 2, "epochs": 4, "threads": 2, "dataset": str(dataset.path)}
    alone = RanksJob(2, options, outs=(str(tmp_path / "alone"), str(tmp_path / "not written")), command="embed")
    assert run_jobs([alone]) == [["", ""]]
    outs = [tmp_path / "run", tmp_path / "other"]
    ranks = [
        start(hosts, number, each, outs[number], EMBED) for number, each in enumerate((dataset.path, tmp_path / "copy"))
    ]
    ends = [rank.communicate(timeout=280) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], ends
    assert committed_bytes(tmp_path / "run") == committed_bytes(tmp_path / "alone")
    assert not outs[1].exists(), "the folder is that of rank 0"
    assert not (tmp_path / "run" / "edges").exists()


@pytest.mark.slow
def test_machines_with_other_datasets_are_refused(hosts: list[str], tmp_path: Path) -> None:
    for seed, name in enumerate(("graph", "copy")):
        small_graph(tmp_path / name, seed=seed)
    outs = [tmp_path / "run", tmp_path / "other"]
    ranks = [start(hosts, number, tmp_path / name, outs[number]) for number, name in enumerate(("graph", "copy"))]
    ends = [rank.communicate(timeout=280)[1] for rank in ranks]
    assert all(rank.returncode for rank in ranks)
    assert "process 1 has another dataset there" in ends[0]
    assert not any("diskhop:" in line for line in ends[1].splitlines()), "rank 0 alone prints"
    assert not any(out.exists() for out in outs)

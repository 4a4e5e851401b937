"""Ranks under torchrun that are killed at any moment: torchrun starts them again, and they end in the same bits."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from diskhop.dataset.dataset import Dataset
from diskhop.runs.start import train
from tests.rank_kills import assert_nothing_left, kill_some, ranks_of, torchrun
from tests.runs import assert_same_run, small_graph

NUM_KILLS = 50
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
    # Three rounds per step: a rank may be killed while those of others wait to be added.
    "accumulate": 6,
}
WORDS = (
    "--model sage --hidden 16 --fanout 4,4 --batch-size 20 --epochs 400 --patience 0 --memory 200MB --engine threads "
    "--matmul blas --store belady --accumulate 6 --threads 2 "
    "--checkpoint-every 6batches"
)


NUM_HOP_KILLS = 5
# Each is committed to disk: most of what an epoch of so few nodes takes.
NUM_HOP_EPOCHS = 100
HOP_OPTIONS: dict[str, Any] = {
    "model": "sign",
    "hops": 2,
    "placement": "memory",
    "hidden": 16,
    "batch_size": 20,
    "epochs": NUM_HOP_EPOCHS,
    "patience": 0,
    "memory_bytes": 200_000_000,
    "engine": "threads",
    "matmul": "blas",
}
HOP_WORDS = (
    f"--model sign --hops 2 --placement memory --hidden 16 --batch-size 20 --epochs {NUM_HOP_EPOCHS} --patience 0 "
    "--memory 200MB --engine threads --matmul blas --threads 2 --checkpoint-every 4batches"
)


@pytest.fixture(scope="module")
def dataset(module_folder: Path) -> Dataset:
    dataset = small_graph(module_folder / "graph")
    train(dataset, out=module_folder / "whole", threads=1, **OPTIONS)
    return dataset


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_ranks_start_again_and_end_in_the_same_bits(dataset: Dataset, module_folder: Path) -> None:
    draws, seen, num_kills, number = random.Random(0), set[psutil.Process](), 0, 0
    while num_kills < NUM_KILLS:
        out = module_folder / f"run {number}"
        number += 1
        errors = module_folder / f"errors {number}"
        with torchrun(NUM_KILLS, errors, "train", str(dataset.path), "--out", str(out), *WORDS.split()) as agent:
            num_kills += kill_some(agent, NUM_KILLS - num_kills, draws, seen)
            assert agent.wait() == 0, errors.read_text()
        assert_same_run(module_folder / "whole", out)
        assert_nothing_left(seen)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_ranks_that_share_hop_tables_end_in_the_same_bits(dataset: Dataset, module_folder: Path) -> None:
    """Their tables lie in memory once, in a segment that each start makes again."""
    train(dataset, out=module_folder / "whole hops", accumulate=2, threads=1, **HOP_OPTIONS)
    draws, seen, num_kills, number = random.Random(1), set[psutil.Process](), 0, 0
    while num_kills < NUM_HOP_KILLS:
        out, errors = module_folder / f"hops {number}", module_folder / f"errors of hops {number}"
        number += 1
        command = ("train", str(dataset.path), "--out", str(out), *HOP_WORDS.split())
        with torchrun(NUM_HOP_KILLS, errors, *command) as agent:
            num_kills += kill_some(agent, NUM_HOP_KILLS - num_kills, draws, seen)
            assert agent.wait() == 0, errors.read_text()
        assert "hop tables" in json.loads((out / "plan.json").read_text())["plan"]["shared"]
        assert_same_run(module_folder / "whole hops", out)
        assert_nothing_left(seen)


@pytest.mark.slow
def test_ranks_end_with_their_agent(dataset: Dataset, module_folder: Path) -> None:
    """Also where they are in the middle of a batch, or wait for each other."""
    out = module_folder / "orphans"
    errors = module_folder / "errors"
    with torchrun(0, errors, "train", str(dataset.path), "--out", str(out), *WORDS.split()) as agent:
        while not (out / "checkpoint.safetensors").exists():
            time.sleep(0.1)
        seen = set(ranks_of(agent))
        assert len(seen) == 2
        agent.kill()
    assert_nothing_left(seen)

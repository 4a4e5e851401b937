"""Ranks that train embeddings under torchrun and are killed at any moment: they end in the bits of a whole run."""

from __future__ import annotations

import random
from pathlib import Path

import psutil
import pytest

from diskhop.dataset.dataset import Dataset
from tests.embedding import committed_bytes, small_triples
from tests.rank_kills import assert_nothing_left, kill_some, torchrun

NUM_KILLS = 20
# Two ranks of two groups of two partitions: states, rounds, repartitions and commits within passes.
WORDS = (
    "--model complex --dim 8 --batch-size 64 --chunk-size 16 --negatives 12 --epochs 60 --eval-every 20 "
    "--partitions 8 --buffer 3 --repartitions 2 --checkpoint-every 2states --memory 200MB --eval-edges 30 "
    "--eval-candidates 20 --engine threads --threads 2"
)


def words_of(dataset: Dataset, out: Path) -> list[str]:
    return ["embed", str(dataset.path), "--out", str(out), *WORDS.split()]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_ranks_of_embeddings_start_again_and_end_in_the_same_bits(module_folder: Path) -> None:
    dataset = small_triples(module_folder / "triples")
    errors = module_folder / "errors"
    with torchrun(0, errors, *words_of(dataset, module_folder / "whole")) as agent:
        assert agent.wait() == 0, errors.read_text()
    whole = committed_bytes(module_folder / "whole")
    draws, seen, num_kills, number = random.Random(0), set[psutil.Process](), 0, 0
    while num_kills < NUM_KILLS:
        out = module_folder / f"run {number}"
        number += 1
        with torchrun(NUM_KILLS, errors, *words_of(dataset, out)) as agent:
            num_kills += kill_some(agent, NUM_KILLS - num_kills, draws, seen)
            assert agent.wait() == 0, errors.read_text()
        assert committed_bytes(out) == whole
        assert not (out / "edges").exists()
        assert_nothing_left(seen)

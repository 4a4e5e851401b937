"""Ranks whose torchrun is killed; tests/campaign kills the ranks themselves."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.rank_kills import assert_nothing_left, ranks_of, torchrun
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

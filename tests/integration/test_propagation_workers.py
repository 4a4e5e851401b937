"""Propagation in several processes, each with a file of its own for the values of cold edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from diskhop.hops.make.propagate import propagate
from diskhop.hops.spec import PropagationSpec
from tests.graphs import folder_bytes, skewed_pairs
from tests.propagation import build

NUM_NODES, MEMORY_BYTES = 16_000, 520_000


def test_cold_edges_of_two_processes_give_the_bytes_of_one(tmp_path: Path) -> None:
    features = np.random.default_rng(0).normal(size=(NUM_NODES, 9)).astype(np.float32)
    dataset = build(tmp_path / "graph", skewed_pairs(NUM_NODES, 4 * NUM_NODES), features)
    spec = PropagationSpec(operators=("heat",), hops=1)
    alone, both = (
        propagate(
            dataset,
            spec,
            memory=count * MEMORY_BYTES,
            scratch=tmp_path / f"by {count}",
            threads=count,
            workers=count,
            engine="threads",
        )
        for count in (1, 2)
    )
    assert alone.plan is not None
    assert both.plan is not None
    assert both.plan.cold == alone.plan.cold is not None
    assert both.plan.work_bytes > alone.plan.work_bytes
    assert folder_bytes(both.tables.path) == folder_bytes(alone.tables.path)

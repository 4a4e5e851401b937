"""Networks over relations that crash at any write, fsync or rename resume with the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diskhop._native import Engine
from diskhop.errors import PredictionError
from diskhop.io.faults import CrashInjector, Lost
from tests.crashes import crashes_of
from tests.graphs import memory_folder
from tests.typed_passes import in_passes, make_relation_network, make_relations

COUNTS = {"a": 4200, "b": 300, "c": 5}  # two groups of rows of one type


@pytest.mark.parametrize(
    ("num_outputs", "memory_bytes", "lost", "step"),
    [
        (6, 1 << 26, "data", 151),
        (3, 470_000, "names", 307),
        pytest.param(6, 1 << 26, "names", 3, marks=pytest.mark.slow),
        pytest.param(3, 470_000, "data", 2, marks=pytest.mark.slow),
    ],
)
def test_a_crash_anywhere_resumes_with_the_same_bytes(
    tmp_path: Path, num_outputs: int, memory_bytes: int, lost: Lost, step: int
) -> None:
    """Every change to the disk, or every few of them."""
    with memory_folder(tmp_path) as folder:
        graph = make_relations(folder, COUNTS, num_edges=9000, hidden=6)
        network = make_relation_network(graph, "hetero-sage", num_outputs, 6)
        expected = in_passes(graph, network, folder / "whole", wanted=(1, 2))

        def run(root: Path, engine: Engine, injector: CrashInjector) -> None:
            options: dict[str, Any] = {"memory_bytes": memory_bytes, "engine": engine, "injector": injector}
            in_passes(graph, network, root / "work", wanted=(1, 2), **options)

        for crash in crashes_of(folder, step, lost, run):
            # The budget of the resumed call is another one.
            found = in_passes(graph, network, crash.after / "work", wanted=(1, 2), memory_bytes=1 << 25)
            for number, rows in expected.items():
                np.testing.assert_array_equal(found[number], rows)
        assert crash.number > 100


def test_values_that_are_not_finite_are_named_by_layer_and_node(tmp_path: Path) -> None:
    with memory_folder(tmp_path) as folder:
        graph = make_relations(folder, COUNTS, num_edges=9000, hidden=6)
        network = make_relation_network(graph, "rgcn", 6, 6)
        with torch.no_grad():
            network.get_parameter("convs.0.bias").fill_(float("nan"))
        with pytest.raises(PredictionError, match=r"layer 1 \(a\): its result for node 0 is not finite"):
            in_passes(graph, network, folder / "work")

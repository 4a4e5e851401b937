"""Streamed networks that crash at any write, fsync or rename resume with the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from diskhop._native import Engine, FaultInjector, FaultRule
from diskhop.dataset.dataset import Dataset
from diskhop.errors import DiskhopError, PredictionError
from diskhop.io.faults import CrashInjector, Lost
from diskhop.planning.predict import StreamedPlan
from tests.batched import build_graph
from tests.crashes import crashes_of
from tests.graphs import memory_folder
from tests.streamed_networks import build_network, sparse_graph, streamed

NUM_NODES = 4200  # two groups of rows


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with memory_folder(tmp_path) as folder:
        yield folder


def small_graph(folder: Path) -> Dataset:
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, NUM_NODES, (2, 9000))
    pairs[0, ::7] = pairs[1, ::7]
    return build_graph(folder / "graph", pairs, rng.normal(size=(NUM_NODES, 6)).astype(np.float32))


@pytest.mark.parametrize(
    ("model", "memory_bytes", "lost", "step"),
    [
        ("sage", 1 << 26, "data", 23),
        ("sage", 430_000, "names", 211),
        ("gat", 1 << 26, "names", 53),
        pytest.param("sage", 1 << 26, "names", 1, marks=pytest.mark.slow),
        pytest.param("sage", 430_000, "data", 1, marks=pytest.mark.slow),
        pytest.param("gcn", 430_000, "names", 1, marks=pytest.mark.slow),
        pytest.param("gat", 600_000, "data", 1, marks=pytest.mark.slow),
    ],
)
def test_a_crash_anywhere_resumes_with_the_same_bytes(
    folder: Path, model: str, memory_bytes: int, lost: Lost, step: int
) -> None:
    """Every change to the disk, or every few of them."""
    dataset = small_graph(folder)
    network = build_network(model, 6, 4, layers=2, hidden=6, heads=1)
    expected = streamed(dataset, network, folder / "whole", wanted=(1, 2))

    def run(root: Path, engine: Engine, injector: CrashInjector) -> None:
        options: dict[str, Any] = {"memory_bytes": memory_bytes, "engine": engine, "injector": injector}
        streamed(dataset, network, root / "work", wanted=(1, 2), **options)

    for crash in crashes_of(folder, step, lost, run):
        # The budget of the resumed call is another one.
        found = streamed(dataset, network, crash.after / "work", wanted=(1, 2), memory_bytes=1 << 25)
        for number, rows in expected.items():
            np.testing.assert_array_equal(found[number], rows)
    assert crash.number > 20


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.slow)])
def test_a_crash_resumes_without_the_first_block(folder: Path, step: int) -> None:
    """No table has it, and sums lack the rows without edges."""
    dataset, _, _ = sparse_graph(folder)
    network = build_network("sage", 16, 6, layers=2, hidden=16)
    expected, plans = streamed(dataset, network, folder / "whole", wanted=(1, 2)), list[StreamedPlan]()

    def run(root: Path, engine: Engine, injector: CrashInjector) -> None:
        options: dict[str, Any] = {"engine": engine, "injector": injector, "range_bytes": 1 << 20}
        streamed(dataset, network, root / "work", wanted=(1, 2), memory_bytes=5_000_000, threads=2, **options)

    for crash in crashes_of(folder, step, "data", run):
        options: dict[str, Any] = {"memory_bytes": 5_000_000, "plans": plans}
        found = streamed(dataset, network, crash.after / "work", wanted=(1, 2), threads=2, **options)
        for number, rows in expected.items():
            np.testing.assert_array_equal(found[number], rows)
    assert crash.number > 20
    assert not any(plan.stores_first_block for plan in plans)


@pytest.mark.parametrize("step", [19, pytest.param(1, marks=pytest.mark.slow)])
def test_a_write_that_fails_is_raised_and_gone_on_from(folder: Path, step: int) -> None:
    """The last writes of a band, too, which end while the next block is read."""
    dataset = small_graph(folder)
    network = build_network("sage", 6, 4, layers=2, hidden=6, heads=1)

    def run(work: Path, injector: FaultInjector) -> dict[int, NDArray[np.float32]]:
        engine = Engine("threads", 1, injector)
        return streamed(dataset, network, work, wanted=(1, 2), memory_bytes=430_000, engine=engine)

    counting = FaultInjector([])
    expected = run(folder / "whole", counting)
    for nth in range(1, counting.count("writes") + 1, step):
        with pytest.raises(DiskhopError):
            run(folder / f"{nth}", FaultInjector([FaultRule("io_error", "writes", nth)]))
        for number, rows in run(folder / f"{nth}", FaultInjector([])).items():
            np.testing.assert_array_equal(expected[number], rows)
    assert counting.count("writes") > 20


def test_values_that_are_not_finite_are_named_by_layer_and_node(folder: Path) -> None:
    dataset = small_graph(folder)
    network = build_network("sage", 6, 4)
    with torch.no_grad():
        network.get_parameter("convs.1.lin_r.weight").fill_(float("nan"))
    with pytest.raises(PredictionError, match=r"the output of layer 2 for nodes 0, 1, .* has NaN or infinite"):
        streamed(dataset, network, folder / "work")

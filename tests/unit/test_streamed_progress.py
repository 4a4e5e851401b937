"""Progress of predictions layer by layer: after each part of a pass, from all workers, one call at a time."""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from diskhop.planning.predict import StreamedPlan
from diskhop.runtime.progress import SharedProgress
from tests.batched import build_graph
from tests.graphs import memory_folder
from tests.streamed_networks import build_network, streamed

NUM_NODES = 9000


@pytest.mark.fast("sage")
@pytest.mark.parametrize(("model", "memory_bytes", "workers"), [("sage", 2_700_000, 2), ("gat", 2_000_000, 1)])
def test_every_part_is_reported(tmp_path: Path, model: str, memory_bytes: int, workers: int) -> None:
    rng = np.random.default_rng(0)
    network = build_network(model, 100, 4, hidden=40, heads=1)
    seen: dict[str, list[int]] = defaultdict(list)
    totals, plans = dict[str, int](), list[StreamedPlan]()

    def progress(stage: str, done: int, total: int) -> None:
        seen[stage].append(done)
        assert totals.setdefault(stage, total) == total

    with memory_folder(tmp_path) as folder:
        features = rng.normal(size=(NUM_NODES, 100)).astype(np.float32)
        graph = build_graph(folder / "graph", rng.integers(0, NUM_NODES, (2, 30_000)), features)
        streamed(
            graph,
            network,
            folder / "work",
            memory_bytes=memory_bytes,
            threads=2,
            range_bytes=1 << 30,
            plans=plans,
            progress=progress,
        )
    (plan,) = plans
    parts = -(-NUM_NODES // plan.part_rows)
    assert plan.workers == workers
    assert parts > 2 * workers
    for number, layer in enumerate(plan.layers, 1):
        assert len(seen[f"layer {number}"]) == parts
        summed = seen.get(f"layer {number}: first sums", [])
        assert len(summed) == (layer.num_blocks - 1) * -(-NUM_NODES // plan.summed_rows)
    assert max(layer.num_blocks for layer in plan.layers) > 1
    for stage in [f"layer {number}" for number in (1, 2, 3)] + ["reading features"]:
        assert seen[stage] == sorted(seen[stage])
        assert seen[stage][-1] == totals[stage] == NUM_NODES


def test_an_error_of_the_receiver_ends_the_work(tmp_path: Path) -> None:
    """Raised in a worker's thread, it comes out where the work was begun, and what is finished stays."""
    rng = np.random.default_rng(0)
    network = build_network("sage", 6, 4)

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "layer 2":
            raise ValueError("stop")

    with memory_folder(tmp_path) as folder:
        features = rng.normal(size=(NUM_NODES, 6)).astype(np.float32)
        graph = build_graph(folder / "graph", rng.integers(0, NUM_NODES, (2, 30_000)), features)
        with pytest.raises(ValueError, match="stop"):
            streamed(graph, network, folder / "work", threads=2, progress=progress)
        stages = list[str]()
        found = streamed(graph, network, folder / "work", progress=lambda stage, *_: stages.append(stage))
        assert "layer 1" not in stages
        np.testing.assert_array_equal(found[3], streamed(graph, network, folder / "other")[3])


def test_reports_of_threads_add_up_and_never_overlap() -> None:
    seen, inside = list[int](), threading.Lock()

    def progress(stage: str, done: int, total: int) -> None:
        assert inside.acquire(blocking=False)
        seen.append(done)
        inside.release()

    shared = SharedProgress(progress, "stage", 5, 10_000)

    def report() -> None:
        for _ in range(500):
            shared.add(1)

    threads = [threading.Thread(target=report) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == list(range(6, 2006))

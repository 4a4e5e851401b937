"""Derived files that two runs need at once: one makes them, the other waits and uses the same."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import diskhop
from diskhop.budget import Budget
from diskhop.config.sampled import SampledConfig
from diskhop.dataset.dataset import Dataset
from diskhop.derived.make import make_once
from diskhop.errors import DestinationError
from diskhop.runs.nodes.clusters import with_clusters
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import WorkFolder
from diskhop.sampling.edge_split.split import open_split, plan_split
from tests.propagation import propagate_small
from tests.runs import small_graph

BUDGET_BYTES = 10**9


def split(dataset: Dataset, progress: Progress) -> Path:
    budget = Budget(BUDGET_BYTES)
    return open_split(dataset, plan_split(dataset, "0.8,0.1,0.1", 0, budget), None, budget, progress=progress).path


def clusters(dataset: Dataset, progress: Progress) -> Path:
    config = resolve_config(dataset, {"sampler": "cluster", "clusters": 5, "memory_bytes": 10**8}).config
    assert isinstance(config, SampledConfig)
    found, _ = with_clusters(dataset, config, Budget(BUDGET_BYTES), progress)
    assert found.clusters is not None
    return found.clusters.nodes_path.parent


@pytest.mark.parametrize("use", [split, clusters])
def test_the_second_run_waits_for_what_the_first_makes(
    tmp_path: Path, use: Callable[[Dataset, Progress], Path]
) -> None:
    dataset = small_graph(tmp_path / "graph")
    begun, waiting = threading.Event(), threading.Event()
    makers = []

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "waiting for another process":
            waiting.set()
            return
        if not begun.is_set():
            makers.append(stage)
        begun.set()
        assert waiting.wait(60), "the second neither waited nor failed"

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(use, dataset, progress)
        assert begun.wait(60)
        second = threads.submit(use, dataset, progress)
        assert first.result(60) == second.result(60)
    assert len(makers) == 1
    assert {path.name.startswith(".") for path in first.result().parent.iterdir()} == {False}


def test_other_errors_are_not_waited_for(tmp_path: Path) -> None:
    def fail() -> None:
        raise DestinationError("the disk is full")

    with pytest.raises(DestinationError, match="full"):
        make_once(tmp_path / "made", fail)
    (tmp_path / "made").mkdir()
    assert not make_once(tmp_path / "made", fail)
    assert make_once(tmp_path / "other", (tmp_path / "other").mkdir)


def test_what_an_ended_process_left_next_to_its_result_is_removed_by_the_next_one(tmp_path: Path) -> None:
    made = tmp_path / "made"
    left = tmp_path / ".made.work" / "files" / "kept"
    for folder in (made, left.parent):
        folder.mkdir(parents=True)
    left.touch()
    with WorkFolder(made) as other:
        other.lock()
        assert not make_once(made, made.mkdir)
        assert left.exists(), "another process works there"
    assert not make_once(made, made.mkdir)
    assert list(tmp_path.iterdir()) == [made]


def test_hop_tables_and_packed_batches_leave_nothing_of_a_process_that_ended(tmp_path: Path) -> None:
    dataset = small_graph(tmp_path / "graph")

    def make() -> list[Path]:
        scratch = tmp_path / "scratch"
        diskhop.pack(
            dataset, hidden=8, fanout=(2, 2), batch_size=40, epochs=1, memory="100MB", cache="1KB", scratch=scratch
        )
        propagate_small(dataset, scratch, hops=1)
        return sorted(scratch.iterdir())

    made = make()
    assert [path.name.split("-")[0] for path in made] == ["packed", "propagated"]
    for path in made:
        (path.with_name(f".{path.name}.work") / "done").mkdir(parents=True)
    assert make() == made

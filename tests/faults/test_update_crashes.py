"""A crash before any write, fsync or rename of an update leaves the old generation or the new one, whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from diskhop._native import Engine, FaultInjector, FaultRule
from diskhop.budget import Budget
from diskhop.dataset.dataset import open_dataset
from diskhop.dataset.verify import verify
from diskhop.errors import DiskhopError
from diskhop.importing.options import ImportOptions
from diskhop.io.atomic import Injector
from diskhop.io.faults import CrashInjector, Lost
from diskhop.updating.compact import compact_dataset
from diskhop.updating.run import update_dataset
from tests.crashes import crashes_of
from tests.graphs import folder_bytes, memory_folder, threads_engine
from tests.updates import MEMORY_BYTES, Change, draw_edges, draw_nodes, draw_tables, import_tables

# Dozens of updates each.
pytestmark = pytest.mark.slow
IDS = np.array([7, 3, 90, 12, 55, 41, 6, 28])
OPTIONS = ImportOptions(weight="amount", undirected=False)


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory, where fsync is quick."""
    with memory_folder(tmp_path_factory.mktemp("crash")) as folder:
        yield folder


def prepare(folder: Path) -> tuple[Path, Path]:
    """A dataset that was updated once, and a delta that adds nodes and edges, changes a node and removes edges."""
    generator = np.random.default_rng(0)
    tables = draw_tables(generator, IDS, 40)
    graph = import_tables(tables.write(folder / "source"), folder / "graph", ImportOptions(weight="amount")).path
    ends = tables.edges["source"], tables.edges["target"]
    pairs = [(int(ends[0][place]), int(ends[1][place])) for place in (0, 7)]
    none = {key: values[:0] for key, values in tables.nodes.items()}
    first = Change(draw_edges(generator, IDS, 3), [], none).write(folder / "first")
    update(graph, first)
    new = np.array([4, 55])
    added = draw_edges(generator, np.append(IDS, 4), 6)
    delta = Change(added, list(dict.fromkeys(pairs)), draw_nodes(generator, new[:1])).write(folder / "delta")
    return graph, delta


def update(graph: Path, delta: Path, engine: Engine | None = None, injector: Injector | None = None) -> None:
    engine, budget = engine or threads_engine(), Budget(MEMORY_BYTES)
    update_dataset(graph, delta, options=OPTIONS, engine=engine, budget=budget, threads=1, injector=injector)


def compact(graph: Path, engine: Engine | None = None, injector: Injector | None = None) -> None:
    compact_dataset(graph, engine=engine or threads_engine(), budget=Budget(MEMORY_BYTES), threads=1, injector=injector)


def content_of(graph: Path) -> dict[str, bytes]:
    """The bytes of the dataset's generation; rows that an unfinished update appended are no part of it."""
    dataset = open_dataset(graph)
    return {
        path: (dataset.content / path).read_bytes()[: entry.num_bytes] for path, entry in dataset.manifest.files.items()
    }


def failure_of(graph: Path, delta: Path, injector: FaultInjector) -> str | None:
    """The error of an update in which a change fails; None if it ends all the same."""
    try:
        update(graph, delta, threads_engine(injector), injector)
    except DiskhopError as error:
        return str(error)
    return None


@pytest.mark.parametrize("lost", ["names", "data"])
@pytest.mark.parametrize("step", [29, 1])
def test_after_any_crash_an_update_ends_the_same(tmp_path: Path, lost: Lost, step: int) -> None:
    graph, delta = prepare(tmp_path)
    whole = Path(shutil.copytree(graph, tmp_path / "whole"))
    update(whole, delta)
    states = [content_of(graph), content_of(whole)]
    seen = set()

    def run(root: Path, engine: Engine, injector: CrashInjector) -> None:
        update(root / "graph", delta, engine, injector)

    work = tmp_path / "crashes"
    work.mkdir()
    for crash in crashes_of(work, step, lost, run, lambda root: shutil.copytree(graph, root / "graph")):
        found = crash.after / "graph"
        assert verify(found) == []
        seen.add(states.index(content_of(found)))
        if open_dataset(found).manifest.generation == 2:
            update(found, delta)
        assert content_of(found) == states[1]
        if not crash.finished:
            compact(found)
            assert {path.name for path in found.iterdir()} == {"checksums.bin", "edges", "manifest.json", "nodes"}
    assert 0 in seen


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["names", "data"])
def test_after_any_crash_a_compaction_ends_the_same(tmp_path: Path, lost: Lost) -> None:
    graph, delta = prepare(tmp_path)
    update(graph, delta)
    whole = Path(shutil.copytree(graph, tmp_path / "whole"))
    compact(whole)
    work = tmp_path / "crashes"
    work.mkdir()
    for crash in crashes_of(
        work,
        1,
        lost,
        lambda root, engine, injector: compact(root / "graph", engine, injector),
        lambda root: shutil.copytree(graph, root / "graph"),
    ):
        found = crash.after / "graph"
        assert verify(found) == []
        compact(found)
        assert folder_bytes(found) == folder_bytes(whole)
        # The old dataset, which was exchanged with the new one, is gone.
        assert {path.name for path in crash.after.iterdir()} <= {"graph", ".graph.work"}


@pytest.mark.parametrize(
    ("kind", "counted"),
    [
        ("no_space", "writes"),
        *(pytest.param("io_error", each, marks=pytest.mark.slow) for each in ("writes", "fsyncs", "renames")),
    ],
)
def test_every_change_that_fails_is_one_line_and_leaves_the_old_generation(
    tmp_path: Path, kind: str, counted: str
) -> None:
    graph, delta = prepare(tmp_path)
    counting = FaultInjector([])
    update(Path(shutil.copytree(graph, tmp_path / "whole")), delta, threads_engine(counting), counting)
    before, kept = folder_bytes(graph), Path(shutil.copytree(graph, tmp_path / "kept"))
    number, committed = counting.count(counted), False
    for nth in range(1, number + 1, 5 if kind == "no_space" else 1):
        injector = FaultInjector([FaultRule(kind, counted, nth)])
        message = failure_of(graph, delta, injector)
        if open_dataset(graph).manifest.generation == 3:
            # What cannot be removed after the new generation has come is removed by the next update.
            assert message is None or "the update is applied" in message
            assert verify(graph) == []
            shutil.rmtree(graph)
            shutil.copytree(kept, graph)
            committed = True
            continue
        assert message is not None
        assert "\n" not in message
        assert folder_bytes(graph) == before
    # Of writes, those fail without harm that only help to resume.
    assert committed or counted == "writes"
    update(graph, delta)
    assert verify(graph) == []

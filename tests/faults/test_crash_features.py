"""An import of large features that stopped anywhere goes on after the last finished range, and gives the same bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from diskhop._native import Engine
from diskhop.dataset.build import feature_ranges
from diskhop.dataset.build.feature_ranges import STAGE
from diskhop.errors import DestinationError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.importing.tools import ImportLimits
from diskhop.io.faults import CrashInjector, Lost
from diskhop.runtime.progress import Progress
from tests.crashes import EVERY, Crashes
from tests.graphs import folder_bytes, memory_folder, threads_engine

MIB = 1 << 20
DIM = 300
NUM_NODES = 3 * MIB // (4 * DIM)
NUM_RANGES = 3
BIG_NODES, BIG_RANGES = 40_000, 46


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with memory_folder(tmp_path_factory.mktemp("crash")) as folder:
        yield folder


@pytest.fixture
def ranges_written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of ranges that were written, of 1 MiB each."""
    names: list[str] = []
    write = feature_ranges._RangeTask.write

    def counted(task: Any, *arguments: Any) -> None:
        write(task, *arguments)
        names.append(task.name)

    monkeypatch.setattr(feature_ranges._RangeTask, "write", counted)
    return names


def save_source(folder: Path, style: str, num_nodes: int) -> Path:
    folder.mkdir()
    nodes = np.arange(num_nodes)
    x = np.random.default_rng(0).standard_normal((num_nodes, DIM))
    arrays = {"edge_index": np.stack([nodes[:50], nodes[50:100]]), "x": x, "y": nodes % 3}
    if style == "npz":
        np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
    else:
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
    return folder


def import_features(
    source: Path, graph: Path, injector: CrashInjector | None = None, progress: Progress | None = None
) -> None:
    import_graph(
        source,
        graph,
        engine=threads_engine() if injector is None else Engine("threads", 1, injector.native),
        threads=1,
        injector=injector,
        options=ImportOptions(dtype="float32"),
        limits=ImportLimits(range_bytes=MIB),
        progress=progress,
    )


@pytest.mark.fast(2)
@pytest.mark.parametrize("lost", ["names", "data"])
@pytest.mark.parametrize("style", ["npy", "npz"])
@EVERY
def test_after_any_crash_finished_ranges_are_kept_and_the_bytes_are_the_same(
    tmp_path: Path, ranges_written: list[str], style: str, lost: Lost, every: int
) -> None:
    source = save_source(tmp_path / "source", style, NUM_NODES)
    crashes = Crashes(tmp_path, lambda graph, injector: import_features(source, graph, injector))
    kept_counts = set()
    for graph in crashes.each(every, lost):
        if graph.exists():
            continue
        kept = {path.name for path in (graph.parent / ".graph.work" / f"{STAGE}node").glob("range-*")}
        ranges_written.clear()
        import_features(source, graph)
        assert sorted([*kept, *ranges_written]) == [f"range-{number:05}" for number in range(NUM_RANGES)]
        kept_counts.add(len(kept))
    assert kept_counts == {0, 1, 2, 3} if every == 1 else len(kept_counts) > 2


def stop_after_two(stage: str, done: int, total: int) -> None:
    if (stage, done) == ("features", 2):
        raise KeyboardInterrupt


def test_a_name_that_a_killed_import_gave_the_table_does_no_harm(tmp_path: Path, ranges_written: list[str]) -> None:
    source = save_source(tmp_path / "source", "npy", NUM_NODES)
    with pytest.raises(KeyboardInterrupt):
        import_features(source, tmp_path / "graph", progress=stop_after_two)
    (tmp_path / ".graph.partial").mkdir()
    os.link(tmp_path / ".graph.work" / f"{STAGE}node" / ".table", tmp_path / ".graph.partial" / "features.bin")
    import_features(source, tmp_path / "graph")
    assert ranges_written == ["range-00000", "range-00001", "range-00002"]


def test_room_that_the_table_has_already_is_not_asked_for_again(
    tmp_path: Path, ranges_written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = save_source(tmp_path / "source", "npy", NUM_NODES)
    with pytest.raises(KeyboardInterrupt):
        import_features(source, tmp_path / "graph", progress=stop_after_two)
    stored_bytes = sum(path.stat().st_size for path in source.iterdir())
    free_bytes = stored_bytes - 3 * MIB + 20_000
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=free_bytes))
    with pytest.raises(DestinationError, match="are free; free some space"):
        import_features(source, tmp_path / "other")
    import_features(source, tmp_path / "graph")
    assert ranges_written == ["range-00000", "range-00001", "range-00002"]


_IMPORT = """
import sys
from pathlib import Path
from tests.faults.test_crash_features import import_features
import_features(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_after_kill_9_the_same_import_goes_on(tmp_path: Path, ranges_written: list[str]) -> None:
    source = save_source(tmp_path / "source", "npy", BIG_NODES)
    import_features(source, tmp_path / "whole")
    graph, stage = tmp_path / "graph", tmp_path / ".graph.work" / f"{STAGE}node"
    command = [sys.executable, "-c", _IMPORT, str(source), str(graph)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    deadline = time.monotonic() + 60
    while not (stage / "range-00003").exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    num_kept = len(list(stage.glob("range-*")))
    assert 4 <= num_kept < BIG_RANGES
    ranges_written.clear()
    import_features(source, graph)
    assert len(ranges_written) == BIG_RANGES - num_kept
    assert folder_bytes(graph) == folder_bytes(tmp_path / "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"source", "whole", "graph"}

"""Commands make the same bytes wherever their tasks run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from diskhop.cli import run
from diskhop.runtime.array_driver import ArrayDriver
from diskhop.runtime.executors import EXECUTORS
from diskhop.runtime.ray_tasks import RayTasks
from diskhop.runtime.workers import Workers
from tests.executing import ACTIONS, SPREAD, recorded, result_bytes
from tests.graphs import memory_folder

OPENS = {"processes": Workers, "ray": RayTasks, "array": ArrayDriver}


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with memory_folder(tmp_path_factory.mktemp("executors")) as folder:
        yield folder


def test_every_executor_is_tested() -> None:
    assert set(EXECUTORS) == {"threads", *OPENS}


# Each process loads PyTorch.
SLOW = [*(("processes", action) for action in ("pack", "predict", "embed")), *(("ray", action) for action in ACTIONS)]


@pytest.mark.fast("processes-propagate", "array-embed", "array-import")
@pytest.mark.parametrize(
    ("name", "action"),
    [
        pytest.param(name, action, marks=pytest.mark.slow if (name, action) in SLOW else ())
        for name in OPENS
        for action in ACTIONS
    ],
)
def test_any_executor_makes_the_same_bytes(
    spread_sources: Path,
    spread_expected: dict[str, dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    action: str,
) -> None:
    opened = recorded(OPENS[name], monkeypatch)
    executor = f"array:{tmp_path}/tasks" if name == "array" else name
    found = result_bytes(ACTIONS[action](spread_sources, tmp_path, executor))
    assert found == spread_expected[action]
    assert {kind for kind, lanes in opened if lanes > 0} >= SPREAD[action], opened
    assert all(process.name() != "python" for process in psutil.Process().children() if name == "processes")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--executor", "spark"], "--executor 'spark' is unknown; use threads, processes, ray, ray:HOST:PORT or"),
        (["--executor", "threads:4"], "--executor 'threads:4' is unknown"),
        (["--executor", "array"], "--executor array needs a folder that all machines share; for example array:tasks"),
        (["--executor", "array:tasks", "--workers", "1"], "--workers 1 must be at least 2 with --executor array"),
        (["--executor", "threads", "--workers", "2"], "--workers 2 has no effect with --executor threads; use"),
        (["--executor", "ray:7", "--workers", "2"], "--executor ray:7: an address is HOST:PORT; for example"),
        (["--executor", "ray:127.0.0.1:1"], "--executor ray:127.0.0.1:1: no Ray cluster answers (Connection refused)"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    spread_sources: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str], line: str
) -> None:
    pytest.importorskip("ray")
    code = run(["import", str(spread_sources / "text"), str(tmp_path / "graph"), "--memory", "512MB", *options])
    assert code == 2
    assert capfd.readouterr().err.startswith(f"diskhop: {line}")
    assert list(tmp_path.iterdir()) == []

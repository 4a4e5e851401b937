"""--executor and --workers that cannot be used: one line, before anything is read or written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from diskhop.cli import run
from diskhop.errors import ConfigError
from diskhop.runs.distributed import Group
from diskhop.runs.embedding.run import sorting_executor
from diskhop.runs.rank_tasks import TaskPlace
from diskhop.runs.start import train
from diskhop.runtime.ranks import Ranks
from tests.graphs import threads_engine
from tests.runs import small_graph

COMMANDS = {
    "predict": ["predict", "run", "--out", "out"],
    "evaluate": ["evaluate", "run"],
    "embed": ["embed", "graph", "--out", "out"],
}
OF_TWO = Group(Ranks(0, 2, 0, 2))


@pytest.fixture(scope="module")
def folder(module_folder: Path) -> Path:
    graph = small_graph(module_folder / "graph", num_nodes=60, num_edges=200)
    options: dict[str, Any] = {"epochs": 1, "memory": "100MB", "threads": 1, "engine": "threads", "evaluate": False}
    train(graph, out=module_folder / "run", model="sgc", hops=1, **options)
    return module_folder


def line_of(words: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """The line of a command that is refused and leaves nothing."""
    assert run(words) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert not Path("out").exists()
    assert not list(Path().glob(".*"))
    return line.removeprefix("diskhop: ")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--executor spark", "--executor 'spark' is unknown; use threads, processes, ray, ray:HOST:PORT or array:DIR"),
        ("--executor processes:2", "--executor 'processes:2' is unknown; use "),
        ("--workers 0", "--workers 0 must be from 1 to 64; 1 works in this process"),
        ("--workers 65", "--workers 65 must be from 1 to 64; "),
        ("--executor threads --workers 0", "--workers 0 must be at least 1; remove it, or use --executor processes"),
        ("--executor threads --workers 2", "--workers 2 has no effect with --executor threads; use "),
        ("--executor ray --workers 1", "--workers 1 must be from 2 to 1024 with --executor ray"),
        ("--executor array:tasks --workers 1", "--workers 1 must be at least 2 with --executor array: "),
        ("--executor array", "--executor array needs a folder that all machines share; for example array:tasks"),
        ("--executor ray", "--executor ray needs Ray: pip install 'diskhop[ray]'"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    command: str,
    options: str,
    told: str,
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    assert line_of([*COMMANDS[command], *options.split()], capfd).startswith(told)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("train graph --out out --executor processes", "No such option: --executor"),
        ("train graph --out out --tune 1 --workers 2", "No such option: --workers"),
        (
            "embed graph --out out --search 2 --workers 2",
            "--search sorts the edges of its runs in one process: remove --executor and --workers",
        ),
        (
            "embed graph --out out --search 2 --executor ray",
            "--search sorts the edges of its runs in one process: remove --executor and --workers",
        ),
    ],
)
def test_commands_whose_work_is_not_shared_out_refuse_both(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], command: str, told: str
) -> None:
    monkeypatch.chdir(folder)
    assert line_of(command.split(), capfd).startswith(told)


@pytest.mark.parametrize(
    ("executor", "workers", "flag"),
    [("processes", None, "--executor processes"), ("ray", 2, "--executor ray"), ("", 2, "--workers 2")],
)
def test_ranks_are_the_processes_of_a_command(executor: str, workers: int | None, flag: str) -> None:
    place = TaskPlace(OF_TWO, [OF_TWO.ranks] * 2, executor, workers)
    with pytest.raises(ConfigError, match=f"^tasks run in the 2 processes of this command: remove {flag}$"):
        place.open(2, 1 << 30, threads_engine())
    with pytest.raises(ConfigError, match=f"^{flag}: 2 processes train together, and one of them sorts the edges: "):
        sorting_executor(OF_TWO, executor, workers, threads=2, memory_bytes=1 << 30, engine=threads_engine())

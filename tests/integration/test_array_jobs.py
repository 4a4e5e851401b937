"""Array jobs: indices run parts of a command's tasks, with the same bytes however they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from diskhop._native import Engine
from diskhop.cli import run
from diskhop.errors import BusyError, ConfigError, WorkerError
from diskhop.importing.source_file import SourceFile
from diskhop.importing.text.tasks import Unpack
from diskhop.runtime import array_index, heartbeats
from diskhop.runtime.array_driver import ArrayDriver
from diskhop.runtime.array_folder import JobFolder
from diskhop.runtime.array_index import run_index
from diskhop.runtime.executors import EXECUTORS, open_executor
from diskhop.runtime.heartbeats import Heartbeats, HeartbeatWatch
from diskhop.runtime.jobs import Executor, ExecutorKind, Job
from diskhop.runtime.plain import decode_job
from diskhop.runtime.tasks import Stage, TaskTools, WorkFolder
from tests.executing import ACTIONS, SPREAD, indices, no_driver_work, recorded, result_bytes
from tests.graphs import memory_folder, threads_engine


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with memory_folder(tmp_path_factory.mktemp("executors")) as folder:
        yield folder


@pytest.mark.fast("predict", "pack", "propagate", "embed")
@pytest.mark.parametrize("action", ACTIONS)
def test_indices_do_the_tasks_of_an_array_job_in_any_order_and_twice(
    spread_sources: Path,
    spread_expected: dict[str, dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
) -> None:
    opened = recorded(ArrayDriver, monkeypatch)
    no_driver_work(monkeypatch)
    with indices(tmp_path / "tasks", [2, 0, 3, 1, 2], 4) as done:
        found = result_bytes(ACTIONS[action](spread_sources, tmp_path, f"array:{tmp_path}/tasks"))
    assert found == spread_expected[action]
    assert len(done) == 5
    parts = len(list((tmp_path / "tasks").glob("*/done-*")))
    assert sum(each.parts for each in done) == parts > 0
    assert {kind for kind, lanes in opened if lanes > 0} >= SPREAD[action], opened


def test_a_part_that_somebody_has_just_finished_is_not_claimed(tmp_path: Path) -> None:
    """It looked open, and its claim is gone: the mark of it was there first."""
    beats = Heartbeats()
    try:
        stage = unpacking(tmp_path, tmp_path)
        first, second = (JobFolder(tmp_path, stage, beats, 60.0, name) for name in ("first", "second"))
        (tmp_path / "done-0").touch()
        assert not second.claim(0)
        assert not (tmp_path / "claim-0").exists()
        assert second.claim(1)
        assert not first.claim(1)
    finally:
        beats.stop()


@pytest.mark.slow
def test_the_command_runs_as_an_array_job(spread_sources: Path, tmp_path: Path) -> None:
    """Processes of their own, in another folder than the driver's, whose paths are relative."""
    command = [sys.executable, "-m", "diskhop"]
    (tmp_path / "elsewhere").mkdir()
    tasks = tmp_path / "tasks"
    started = [
        subprocess.Popen(
            [*command, "task", str(tasks), "--index", str(index), "--of", "4", "--json"],
            cwd=tmp_path / "elsewhere",
            stdout=subprocess.PIPE,
        )
        for index in (1, 3, 0, 1, 2)
    ]
    text = os.path.relpath(spread_sources / "text", tmp_path)
    options = ["--memory", "512MB", "--threads", "2", "--executor", f"array:{tasks}"]
    subprocess.run([*command, "import", text, "graph", *options], cwd=tmp_path, check=True, capture_output=True)
    subprocess.run([*command, "import", text, "one", *options[:-2]], cwd=tmp_path, check=True, capture_output=True)
    done = [json.loads(each.communicate(timeout=60)[0]) for each in started]
    assert [each.returncode for each in started] == 5 * [0]
    assert [each["index"] for each in done] == [1, 3, 0, 1, 2]
    # The dataset is called as its folder.
    found, one = (result_bytes(tmp_path / name) for name in ("graph", "one"))
    assert {**found, "manifest.json": b""} == {**one, "manifest.json": b""}


# An index that claims a task, says so, and sleeps.
SLEEPER = """
import signal, sys, time
from pathlib import Path
from diskhop.runtime.array_folder import JobFolder
from diskhop.runtime.array_index import run_index

signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
JobFolder.run = lambda self, number: time.sleep(600)
run_index(Path(sys.argv[1]), 0, 1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_tasks_of_an_index_that_died_are_done_by_others(
    spread_sources: Path,
    spread_expected: dict[str, dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    """So are those of one that only seems to have died."""
    kind = ExecutorKind(partial(ArrayDriver, lost_seconds=3.0), takes_place=True)
    monkeypatch.setitem(EXECUTORS, "array", kind)
    index = subprocess.Popen([sys.executable, "-c", SLEEPER, str(tmp_path / "tasks")])
    whole, stopped = JobFolder.claim, threading.Event()

    def claim(self: JobFolder, part: int) -> bool:
        """Claim nothing before the index has a claim, and then stop it."""
        end = time.monotonic() + 120
        while not stopped.is_set() and time.monotonic() < end:
            if any("index" in path.read_text() for path in self.path.glob("claim-*")):
                index.send_signal(number)
                stopped.set()
            time.sleep(0.05)
        return whole(self, part)

    monkeypatch.setattr(JobFolder, "claim", claim)
    try:
        assert (
            result_bytes(ACTIONS["import"](spread_sources, tmp_path, f"array:{tmp_path}/tasks"))
            == spread_expected["import"]
        )
        assert stopped.is_set()
    finally:
        index.kill()
        index.wait()


def test_a_task_that_fails_in_an_index_is_done_by_the_driver(
    spread_sources: Path, spread_expected: dict[str, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, failed = JobFolder.run, list[int]()

    def fail(self: JobFolder, number: int) -> None:
        if "index" in self.name:
            failed.append(number)
            self._job.run = None  # type: ignore[method-assign, assignment]
        whole(self, number)

    monkeypatch.setattr(JobFolder, "run", fail)
    caught: list[BaseException] = []

    def work() -> None:
        try:
            run_index(tmp_path / "tasks", 0, 1)
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait = JobFolder.claim
    monkeypatch.setattr(
        JobFolder, "claim", lambda self, number: ("index" in self.name or bool(caught)) and wait(self, number)
    )
    assert (
        result_bytes(ACTIONS["import"](spread_sources, tmp_path, f"array:{tmp_path}/tasks"))
        == spread_expected["import"]
    )
    thread.join()
    assert failed
    assert isinstance(caught[0], TypeError)


def test_an_index_ends_soon_without_a_driver_and_with_one_of_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WorkerError, match="no command has been working here for 0 s; run it with --executor array:"):
        run_index(tmp_path / "tasks", 0, 1, lost_seconds=0.2)
    folder = tmp_path / "tasks" / "0000-x"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text("{}")
    (tmp_path / "tasks" / "driver.json").write_text('{"diskhop": "0.0.1", "folder": "/"}')
    with pytest.raises(ConfigError, match=r"the command runs diskhop 0\.0\.1, this is .*; install the same version"):
        run_index(tmp_path / "tasks", 0, 1)
    (tmp_path / "tasks" / "finished").write_text('{"failed": true}')
    with pytest.raises(WorkerError, match="the command failed; run it again, then this"):
        run_index(tmp_path / "tasks", 0, 1)


def test_a_folder_with_other_files_is_not_removed(spread_sources: Path, tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="has other files; name a new folder"):
        ACTIONS["import"](spread_sources, tmp_path, f"array:{tmp_path}/tasks")
    assert (tmp_path / "tasks" / "thesis.tex").exists()


def unpacking(folder: Path, stage: Path) -> Stage:
    """Two tasks that are diskhop's own; what they read is missing."""
    tasks = [Unpack(str(number), SourceFile(folder / "none", 0, 0), "gzip") for number in range(2)]
    return Stage(tasks, stage, TaskTools(threads_engine()), 0)


def array_driver(tasks: Path) -> Executor:
    return open_executor(f"array:{tasks}", 2, threads=2, memory_bytes=1 << 20, engine=threads_engine())


def test_a_folder_is_one_command_s_at_a_time(tmp_path: Path) -> None:
    with array_driver(tmp_path / "tasks"):
        with pytest.raises(BusyError, match=r"tasks: process \d+ is writing to it"):
            array_driver(tmp_path / "tasks").__enter__()
        assert not (tmp_path / "tasks" / "finished").exists()
    with array_driver(tmp_path / "tasks"):
        assert not (tmp_path / "tasks" / "finished").exists()


def test_an_index_that_opens_a_job_as_it_ends_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the job are gone then."""
    tasks, opened = tmp_path / "tasks", threading.Event()

    def decode(text: str, engine: Engine) -> Job:
        opened.set()
        (folder,) = tasks.glob("0000-*")
        while not (folder / "closed").exists():
            time.sleep(0.01)
        monkeypatch.setattr(array_index, "decode_job", decode_job)
        raise FileNotFoundError(folder / ".shared-0")

    monkeypatch.setattr(array_index, "decode_job", decode)
    with (
        indices(tasks, [0], 1) as done,
        array_driver(tasks) as driver,
        driver.open(unpacking(tmp_path, tmp_path), tmp_path, 2),
    ):
        assert opened.wait(30)
    assert [each.jobs for each in done] == [0]


def test_an_interrupted_command_waits_for_no_index(tmp_path: Path) -> None:
    driver = array_driver(tmp_path / "tasks")
    caught: list[BaseException] = []
    with (
        driver,
        WorkFolder(tmp_path / "out") as work,
        driver.open(unpacking(tmp_path, work.stage("unpack", "")), tmp_path, 2) as lanes,
    ):
        for number in range(2):
            (next((tmp_path / "tasks").glob("0*")) / f"claim-{number}").touch()

        def wait() -> None:
            try:
                lanes[0].run(0, lambda _: None)
            except WorkerError as error:
                caught.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        driver.kill()
        waiting.join(30)
    assert "run the same command again to resume" in str(caught[0])


@pytest.mark.slow
def test_an_index_that_is_ended_gives_up_its_tasks(tmp_path: Path) -> None:
    """The others need not wait until it is taken for lost."""
    tasks = tmp_path / "tasks"
    index = subprocess.Popen([sys.executable, "-c", SLEEPER, str(tasks)], stderr=subprocess.DEVNULL)
    try:
        with array_driver(tasks) as driver, driver.open(unpacking(tmp_path, tmp_path), tmp_path, 2):
            end = time.monotonic() + 120
            while not list(tasks.glob("0*/claim-0")):
                assert time.monotonic() < end
                time.sleep(0.05)
            index.terminate()
            assert index.wait(30) != 0
            assert not list(tasks.glob("0*/claim-0"))
    finally:
        index.kill()
        index.wait()


@pytest.mark.parametrize("index", [-1, 4])
def test_an_index_is_one_of_all(tmp_path: Path, capfd: pytest.CaptureFixture[str], index: int) -> None:
    assert run(["task", str(tmp_path), f"--index={index}", "--of", "4"]) == 2
    assert capfd.readouterr().err.startswith(f"diskhop: --index {index} --of 4: an index is from 0 to --of - 1; ")


def test_files_are_taken_for_lost_only_once_no_process_touches_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [100.0]
    monkeypatch.setattr(heartbeats, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    watch = HeartbeatWatch(60)
    path = tmp_path / "claim"
    path.touch()
    assert not watch.is_lost(path)
    seconds[0] += 61
    os.utime(path, (1, 1))  # a clock that is wrong
    assert not watch.is_lost(path)
    seconds[0] += 60
    assert not watch.is_lost(path)
    seconds[0] += 1
    assert watch.is_lost(path)

"""Commands make the same bytes wherever their tasks run, and however what runs them ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from diskhop.cli import run
from diskhop.errors import ConfigError, WorkerError
from diskhop.importing.source_file import SourceFile
from diskhop.importing.text.tasks import Unpack
from diskhop.runtime import array_job, ray_tasks
from diskhop.runtime.array_job import ArrayDriver, OpenJob, _Beats, run_index
from diskhop.runtime.executors import EXECUTORS, open_executor
from diskhop.runtime.jobs import ExecutorKind, Share
from diskhop.runtime.plain import LOADERS, _find, decode_job, encode_job
from diskhop.runtime.tasks import TaskTools, WorkFolder, _Stage, run_tasks
from diskhop.runtime.workers import Workers
from tests.executing import ACTIONS, indices, make_sources, no_driver_work, recorded, result_bytes
from tests.graphs import memory_folder, threads_engine
from tests.working import Sleeps

# What runs elsewhere.
SPREAD = {
    "import": {"ParsePairs", "SpillTask"},
    "propagate": {"HopJob"},
    "pack": {"PackJob"},
    "predict": {"FileTask"},
}
OPENS = {"processes": Workers, "ray": ray_tasks.RayTasks, "array": ArrayDriver}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with memory_folder(tmp_path_factory.mktemp("sources")) as folder:
        make_sources(folder)
        yield folder


@pytest.fixture(scope="module")
def expected(sources: Path) -> dict[str, dict[str, bytes]]:
    """The bytes of every action on threads."""
    found = {}
    for name, action in ACTIONS.items():
        out = sources / f"out-{name}"
        out.mkdir()
        found[name] = result_bytes(action(sources, out, "threads"))
    return found


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with memory_folder(tmp_path_factory.mktemp("executors")) as folder:
        yield folder


def test_every_executor_is_tested() -> None:
    assert set(EXECUTORS) == {"threads", *OPENS}


# Each process loads PyTorch.
SLOW = [("processes", "pack"), ("processes", "predict"), *(("ray", action) for action in ACTIONS)]


@pytest.mark.parametrize(
    ("name", "action"),
    [
        pytest.param(name, action, marks=pytest.mark.slow if (name, action) in SLOW else ())
        for name in OPENS
        for action in ACTIONS
    ],
)
def test_any_executor_makes_the_same_bytes(
    sources: Path,
    expected: dict[str, dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    action: str,
) -> None:
    opened = recorded(OPENS[name], monkeypatch)
    executor = f"array:{tmp_path}/tasks" if name == "array" else name
    found = result_bytes(ACTIONS[action](sources, tmp_path, executor))
    assert found == expected[action]
    assert {kind for kind, lanes in opened if lanes > 0} >= SPREAD[action], opened
    assert all(process.name() != "python" for process in psutil.Process().children() if name == "processes")


@pytest.mark.parametrize("action", ACTIONS)
def test_indices_do_the_tasks_of_an_array_job_in_any_order_and_twice(
    sources: Path, expected: dict[str, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    opened = recorded(ArrayDriver, monkeypatch)
    no_driver_work(monkeypatch)
    with indices(tmp_path / "tasks", [2, 0, 3, 1, 2], 4) as done:
        found = result_bytes(ACTIONS[action](sources, tmp_path, f"array:{tmp_path}/tasks"))
    assert found == expected[action]
    assert len(done) == 5
    parts = len(list((tmp_path / "tasks").glob("*/done-*")))
    assert sum(each.parts for each in done) == parts > 0
    assert {kind for kind, lanes in opened if lanes > 0} >= SPREAD[action], opened


def test_a_part_that_somebody_has_just_finished_is_not_claimed(tmp_path: Path) -> None:
    """It looked open, and its claim is gone: the mark of it was there first."""
    beats = _Beats()
    try:
        stage = _Stage(unpacks(tmp_path), tmp_path, TaskTools(threads_engine()), 0)
        first, second = (OpenJob(tmp_path, stage, 2, beats, 60.0, name) for name in ("first", "second"))
        first._write("done", 0, {"by": "first", "counted": 0})
        assert not second.claim(0)
        assert not (tmp_path / "claim-0").exists()
        assert second.claim(1)
        assert not first.claim(1)
    finally:
        beats.end()


@pytest.mark.slow
def test_the_command_runs_as_an_array_job(sources: Path, tmp_path: Path) -> None:
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
    text = os.path.relpath(sources / "text", tmp_path)
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
from diskhop.runtime.array_job import OpenJob, run_index

signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
OpenJob.run = lambda self, number: time.sleep(600)
run_index(Path(sys.argv[1]), 0, 1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_tasks_of_an_index_that_died_are_done_by_others(
    sources: Path,
    expected: dict[str, dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    """So are those of one that only seems to have died."""
    kind = ExecutorKind(partial(ArrayDriver, lost_seconds=3.0), takes_place=True)
    monkeypatch.setitem(EXECUTORS, "array", kind)
    index = subprocess.Popen([sys.executable, "-c", SLEEPER, str(tmp_path / "tasks")])
    whole, stopped = OpenJob.claim, threading.Event()

    def claim(self: OpenJob, part: int) -> bool:
        """Claim nothing before the index has a claim, and then stop it."""
        end = time.monotonic() + 120
        while not stopped.is_set() and time.monotonic() < end:
            if any("index" in path.read_text() for path in self.path.glob("claim-*")):
                index.send_signal(number)
                stopped.set()
            time.sleep(0.05)
        return whole(self, part)

    monkeypatch.setattr(OpenJob, "claim", claim)
    try:
        assert result_bytes(ACTIONS["import"](sources, tmp_path, f"array:{tmp_path}/tasks")) == expected["import"]
        assert stopped.is_set()
    finally:
        index.kill()
        index.wait()


def test_a_task_that_fails_in_an_index_is_done_by_the_driver(
    sources: Path, expected: dict[str, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, failed = OpenJob.run, list[int]()

    def fail(self: OpenJob, number: int) -> None:
        if "index" in self.name:
            failed.append(number)
            self._job.run = None  # type: ignore[method-assign, assignment]
        whole(self, number)

    monkeypatch.setattr(OpenJob, "run", fail)
    caught: list[BaseException] = []

    def work() -> None:
        try:
            run_index(tmp_path / "tasks", 0, 1)
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait = OpenJob.claim
    monkeypatch.setattr(
        OpenJob, "claim", lambda self, number: ("index" in self.name or bool(caught)) and wait(self, number)
    )
    assert result_bytes(ACTIONS["import"](sources, tmp_path, f"array:{tmp_path}/tasks")) == expected["import"]
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
    sources: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str], line: str
) -> None:
    pytest.importorskip("ray")
    code = run(["import", str(sources / "text"), str(tmp_path / "graph"), "--memory", "512MB", *options])
    assert code == 2
    assert capfd.readouterr().err.startswith(f"diskhop: {line}")
    assert list(tmp_path.iterdir()) == []


def test_without_ray_its_extra_is_named(
    sources: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run(["import", str(sources / "text"), str(tmp_path / "graph"), "--executor", "ray"]) == 2
    assert capfd.readouterr().err == "diskhop: --executor ray needs Ray: pip install 'diskhop[ray]'\n"


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_what_does_not_answer_as_ray_does_is_refused_soon(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(ray_tasks, "_SECONDS_TO_ANSWER", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(answer)
                time.sleep(1)

        thread = threading.Thread(target=serve)
        thread.start()
        executor = open_executor(
            f"ray:127.0.0.1:{server.getsockname()[1]}", 2, threads=2, memory_bytes=1 << 20, engine=threads_engine()
        )
        with pytest.raises(ConfigError, match="no Ray cluster answers"):
            executor.__enter__()
        thread.join()


def test_a_folder_with_other_files_is_not_removed(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="has other files; name a new folder"):
        ACTIONS["import"](sources, tmp_path, f"array:{tmp_path}/tasks")
    assert (tmp_path / "tasks" / "thesis.tex").exists()


def unpacks(folder: Path) -> list[Unpack]:
    return [Unpack(str(number), SourceFile(folder / "none", 0, 0), "gzip") for number in range(2)]


def test_an_interrupted_command_waits_for_no_index(tmp_path: Path) -> None:
    use = {"threads": 2, "memory_bytes": 1 << 20, "engine": threads_engine()}
    driver = open_executor(f"array:{tmp_path}/tasks", 2, **use)  # type: ignore[arg-type]
    caught: list[BaseException] = []
    with driver, WorkFolder(tmp_path / "out") as work:
        stage = _Stage(unpacks(tmp_path), work.stage("unpack", ""), TaskTools(threads_engine()), 0)
        with driver.open(stage, tmp_path, 2) as lanes:
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
    use = {"threads": 2, "memory_bytes": 1 << 20, "engine": threads_engine()}
    driver = open_executor(f"array:{tasks}", 2, **use)  # type: ignore[arg-type]
    try:
        with driver:
            stage = _Stage(unpacks(tmp_path), tmp_path, TaskTools(threads_engine()), 0)
            with driver.open(stage, tmp_path, 2):
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


@pytest.mark.slow
def test_a_ray_task_whose_worker_was_killed_is_done_again(tmp_path: Path) -> None:
    engine = threads_engine()
    with open_executor("ray", 2, threads=2, memory_bytes=1 << 30, engine=engine) as executor:

        def kill() -> None:
            end = time.monotonic() + 120
            while time.monotonic() < end:
                for process in psutil.Process().children(recursive=True):
                    if list(tmp_path.glob(".*.partial")) and "_run_part" in " ".join(process.cmdline()):
                        process.kill()
                        return
                time.sleep(0.05)

        killer = threading.Thread(target=kill)
        killer.start()
        tasks = [Sleeps(f"{number}", 2) for number in range(4)]
        run_tasks(tasks, tmp_path, TaskTools(engine, executor=executor), threads=2)
        killer.join()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "3"]


@pytest.mark.slow
def test_a_ray_task_that_dies_again_and_again_is_one_line(tmp_path: Path) -> None:
    engine = threads_engine()
    tasks = [Sleeps("0"), Sleeps("1", dies=True)]
    with (
        open_executor("ray", 2, threads=2, memory_bytes=1 << 30, engine=engine) as executor,
        pytest.raises(WorkerError, match="a Ray task ended 4 times before its work was done"),
    ):
        run_tasks(tasks, tmp_path, TaskTools(engine, executor=executor), threads=2)


@pytest.mark.slow
def test_a_ray_cluster_of_two_machines_makes_the_same_bytes(
    sources: Path, expected: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    """A machine that cannot be found in the cluster for a task is refused."""
    from ray.cluster_utils import Cluster

    resources: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**resources, "include_dashboard": False})
    try:
        cluster.add_node(**resources)
        for name, action in ACTIONS.items():
            (tmp_path / name).mkdir()
            assert result_bytes(action(sources, tmp_path / name, f"ray:{cluster.address}")) == expected[name]
        address = f"ray:{cluster.address}"
        executor = open_executor(address, 2, threads=8, memory_bytes=1 << 30, engine=threads_engine())
        with pytest.raises(ConfigError, match=r"a task needs 4 CPUs and .*, and no machine of the cluster has more"):
            executor.__enter__()
    finally:
        cluster.shutdown()


def test_every_loader_exists() -> None:
    for name in LOADERS:
        assert callable(_find(name)), name


@pytest.mark.parametrize(
    "content",
    [
        '{"is": "call", "call": {"function": "diskhop.io.atomic:remove_tree", "args": [], "kwargs": {}}}',
        '{"is": "partial", "function": "os:system", "args": ["true"], "kwargs": {}}',
        '{"is": "object", "class": "subprocess:Popen", "args": [], "state": null}',
        '{"is": "object", "class": "diskhop.runtime.workers:subprocess.Popen", "args": [], "state": null}',
        '{"is": "object", "class": "diskhop.io.atomic:remove_tree", "args": [], "state": null}',
        '{"is": "enum", "class": "diskhop.budget:Budget", "value": 1}',
        '{"is": "unknown"}',
        "[",
    ],
)
def test_a_list_of_tasks_makes_nothing_but_diskhop_s_own_objects(content: str) -> None:
    with pytest.raises(ConfigError, match="a list of tasks cannot be read"):
        decode_job(content, threads_engine())


def test_a_job_of_others_objects_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="stays in its process"):
        encode_job(Sleeps("0"), Share(2, tmp_path))  # type: ignore[arg-type]


def test_files_are_taken_for_lost_only_once_nobody_touches_them(tmp_path: Path) -> None:
    watched = array_job._Watched(0.2)
    path = tmp_path / "claim"
    path.touch()
    assert not watched.is_lost(path)
    time.sleep(0.3)
    os.utime(path, (1, 1))  # a clock that is wrong
    assert not watched.is_lost(path)
    time.sleep(0.3)
    assert watched.is_lost(path)

"""Ray as an executor: clusters that cannot be used, workers that die, and two machines."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from diskhop.cli import run
from diskhop.errors import ConfigError, WorkerError
from diskhop.io.atomic import sync_file
from diskhop.runtime import ray_tasks, tasks
from diskhop.runtime.executors import open_executor
from diskhop.runtime.tasks import TaskTools, run_tasks
from tests.executing import ACTIONS, result_bytes
from tests.graphs import memory_folder, threads_engine
from tests.working import Sleeps


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with memory_folder(tmp_path_factory.mktemp("executors")) as folder:
        yield folder


def test_without_ray_its_extra_is_named(
    spread_sources: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run(["import", str(spread_sources / "text"), str(tmp_path / "graph"), "--executor", "ray"]) == 2
    assert capfd.readouterr().err == "diskhop: --executor ray needs Ray: pip install 'diskhop[ray]'\n"


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_what_does_not_answer_as_ray_does_is_refused_soon(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(ray_tasks, "_SECONDS_TO_ANSWER", 0.5)
    refused = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(answer)
                refused.wait(30)

        thread = threading.Thread(target=serve)
        thread.start()
        executor = open_executor(
            f"ray:127.0.0.1:{server.getsockname()[1]}", 2, threads=2, memory_bytes=1 << 20, engine=threads_engine()
        )
        with pytest.raises(ConfigError, match="no Ray cluster answers"):
            executor.__enter__()
        refused.set()
        thread.join()


@pytest.mark.slow
def test_an_import_whose_ray_worker_was_killed_makes_the_same_bytes(
    spread_sources: Path,
    spread_expected: dict[str, dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, killed = ray_tasks._run_part, tmp_path / "killed"

    def die_once(where: list[Any], key: str, number: int) -> Any:
        """Kill the process as it is about to sync the file of its first task, unless one was killed before."""

        def die(path: Path, injector: Any) -> None:
            try:
                killed.touch(exist_ok=False)
            except FileExistsError:
                sync_file(path, injector)
            else:
                os.kill(os.getpid(), signal.SIGKILL)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tasks, "sync_file", die)
            return whole(where, key, number)

    monkeypatch.setattr(ray_tasks, "_run_part", die_once)
    (tmp_path / "out").mkdir()
    assert result_bytes(ACTIONS["import"](spread_sources, tmp_path / "out", "ray")) == spread_expected["import"]
    assert killed.exists()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["graph"]


@pytest.mark.slow
def test_a_ray_task_that_cannot_run_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies again and again, or its machine has not the command's folder, or not diskhop."""
    engine = threads_engine()

    def fail(_where: list[Any], _key: str, _number: int) -> None:
        raise ModuleNotFoundError("No module named 'diskhop'")

    with open_executor("ray", 2, threads=2, memory_bytes=1 << 30, engine=engine) as executor:
        tools = TaskTools(engine, executor=executor)
        with pytest.raises(WorkerError, match="a Ray task ended 4 times before its work was done"):
            run_tasks([Sleeps("0"), Sleeps("1", dies=True)], tmp_path, tools, threads=2)
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(ray_tasks, "Path", SimpleNamespace(cwd=lambda: tmp_path / "gone"))
            with pytest.raises(ConfigError, match="gone: No such file or directory; the command runs there: run it"):
                run_tasks([Sleeps("2"), Sleeps("3")], tmp_path, tools, threads=2)
        monkeypatch.setattr(ray_tasks, "_run_part", fail)
        with pytest.raises(
            WorkerError, match=r"cannot run \(ModuleNotFoundError: No module named 'diskhop'\); install"
        ):
            run_tasks([Sleeps("2"), Sleeps("3")], tmp_path, tools, threads=2)


@pytest.mark.slow
def test_a_ray_cluster_of_two_machines_makes_the_same_bytes(
    spread_sources: Path, spread_expected: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    """A machine that cannot be found in the cluster for a task is refused."""
    from ray.cluster_utils import Cluster

    resources: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**resources, "include_dashboard": False})
    try:
        cluster.add_node(**resources)
        for name, action in ACTIONS.items():
            (tmp_path / name).mkdir()
            assert (
                result_bytes(action(spread_sources, tmp_path / name, f"ray:{cluster.address}")) == spread_expected[name]
            )
        address = f"ray:{cluster.address}"
        executor = open_executor(address, 2, threads=8, memory_bytes=1 << 30, engine=threads_engine())
        with pytest.raises(ConfigError, match=r"a task needs 4 CPUs and .*, and no machine of the cluster has more"):
            executor.__enter__()
    finally:
        cluster.shutdown()

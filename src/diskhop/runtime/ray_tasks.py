"""Ray as an executor: one remote task per part, with its CPUs and memory declared, so that Ray finds a machine for it.

Tasks write to a folder that all machines share. Ray's object store has only the copy of the job, once. Ray repeats a
task whose worker died; a part may run twice.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from diskhop.budget import format_bytes
from diskhop.errors import ConfigError, WorkerError
from diskhop.io.engine import kind_of_engine, open_engine
from diskhop.runtime.jobs import (
    InWorkerError,
    Job,
    Resources,
    copied,
    pickle_job,
    portable_error,
    run_counted,
    unpickle_job,
)
from diskhop.runtime.process import work_in

MOST_TASKS = 1024
# Attempts after the first where a worker or a machine dies.
_RETRIES = 3
_SECONDS_TO_ANSWER = 10
# What a client of HTTP/2, and so of Ray, begins with; the answer is a frame of type 4 (RFC 9113, section 3.4).
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_ANSWER_TYPE = 4
# Ray keeps at least this for objects; jobs are smaller.
_OBJECT_STORE_BYTES = 80 << 20
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}


class RayTasks:
    """Tasks on a Ray cluster, each with an equal part of memory and threads.

    use.place: HOST:PORT of a cluster, "auto" for the one of this machine, or "" to start Ray here until the context
        ends. use.count: tasks at a time.
    """

    def __init__(self, use: Resources) -> None:
        # Wherever Ray places it, a task declares an equal part of the memory and the threads.
        self.count = use.several(MOST_TASKS)
        self.machines = (self.count,)
        if not 2 <= self.count <= MOST_TASKS:
            raise ConfigError(f"--workers {self.count} must be from 2 to {MOST_TASKS} with --executor ray")
        self._address = use.place
        self._cpus = max(1, use.threads // self.count)
        self._task_bytes = use.memory_bytes // self.count
        self._engine = use.engine
        self._copied_array_bytes = use.copied_array_bytes
        self._ray: Any = None
        self._running: set[Any] = set()

    @contextlib.contextmanager
    def open(self, job: Job, folder: Path, threads: int) -> Iterator[Sequence[RayLane]]:
        """See Executor. One lane per process."""
        with copied(job, folder, min(self.count, threads), self._copied_array_bytes, pickle_job) as copy:
            if copy is None:
                yield ()
                return
            processes, content = copy
            where = self._ray.put(_Copy(content, kind_of_engine(self._engine), str(Path.cwd())))
            remote = self._ray.remote(_run_part).options(
                num_cpus=self._cpus, memory=self._task_bytes, max_retries=_RETRIES
            )

            def submit(number: int) -> Any:
                # A reference in a list is passed as it is, so that each worker fetches a job once, not with each part.
                return remote.remote([where], where.hex(), number)

            yield [RayLane(self._ray, submit, self._running) for _ in range(processes)]

    def kill(self) -> None:
        """See Executor."""
        for reference in list(self._running):
            with contextlib.suppress(Exception):
                self._ray.cancel(reference, force=True)

    def __enter__(self) -> RayTasks:
        try:
            for name, value in _SETTINGS.items():
                os.environ.setdefault(name, value)
            self._ray = importlib.import_module("ray")
        except ImportError:
            raise ConfigError("--executor ray needs Ray: pip install 'diskhop[ray]'") from None
        handler = signal.getsignal(signal.SIGTERM)
        try:
            self._connect()
            self._require_room()
        except BaseException:
            self._ray.shutdown()
            raise
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)  # Ray's own would end this process without its notes
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ray.shutdown()

    def _connect(self) -> None:
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        if not self._address:
            try:
                self._ray.init(
                    "local",
                    num_cpus=self._cpus * self.count,
                    object_store_memory=_OBJECT_STORE_BYTES,
                    include_dashboard=False,
                    **quiet,
                )
            except Exception as error:  # Ray raises plain ones
                raise WorkerError(
                    f"Ray cannot be started here ({str(error).splitlines()[0]}); free some memory and cores, or use "
                    "--executor processes"
                ) from error
            return
        if self._address != "auto":
            _require_answer(self._address)
        try:
            self._ray.init(self._address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _connection_error(self._address, str(error).splitlines()[0]) from error

    def _require_room(self) -> None:
        """Raise ConfigError if no machine of the cluster can ever run a task, which Ray would wait for forever."""
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        if any(each.get("CPU", 0) >= self._cpus and each.get("memory", 0) >= self._task_bytes for each in machines):
            return
        cpus = max((each.get("CPU", 0) for each in machines), default=0)
        num_bytes = max((each.get("memory", 0) for each in machines), default=0)
        raise ConfigError(
            f"--executor ray: a task needs {self._cpus} CPUs and {format_bytes(self._task_bytes)}, and no machine of "
            f"the cluster has more than {cpus:.0f} and {format_bytes(int(num_bytes))}; use more --workers, fewer "
            "--threads or less --memory, which the workers share"
        )


class RayLane:
    """Runs one remote task at a time. running: references of all running tasks, updated."""

    def __init__(self, ray: Any, submit: Callable[[int], Any], running: set[Any]) -> None:
        self._ray = ray
        self._submit = submit
        self._running = running

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """See Lane; counts once the part is done."""
        reference = self._submit(number)
        self._running.add(reference)
        try:
            done = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            reason = str(error).strip().splitlines()[-1]
            raise WorkerError(
                f"a Ray task cannot run ({reason}); install the same diskhop and Python on all machines of the cluster"
            ) from error
        except self._ray.exceptions.RayError as error:
            raise WorkerError(
                f"a Ray task ended {_RETRIES + 1} times before its work was done "
                f"({type(error).__name__}), probably because memory ran out; use fewer --workers or less --memory"
            ) from error
        finally:
            self._running.discard(reference)
        if done.error is not None:
            raise done.error from InWorkerError(done.trace)
        count(done.counted)


def _require_answer(address: str) -> None:
    """Raise ConfigError, within a bounded time, unless something that speaks Ray's protocol answers at an address."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) >= 1 << 16:
        raise ConfigError(f"--executor ray:{address}: an address is HOST:PORT; for example ray:10.0.0.1:6379")
    try:
        with socket.create_connection((host, int(port)), _SECONDS_TO_ANSWER) as connection:
            connection.sendall(_GREETING)
            answer = connection.recv(9)
    except OSError as error:
        raise _connection_error(address, error.strerror or str(error)) from error
    if len(answer) < 4 or answer[3] != _ANSWER_TYPE:
        raise _connection_error(address, "what answers is not Ray")


def _connection_error(address: str, why: str) -> ConfigError:
    return ConfigError(
        f"--executor ray:{address}: no Ray cluster answers ({why}); start Ray there, or use "
        "--executor ray to start Ray on this machine"
    )


# -- in Ray's workers --


class _Copy(NamedTuple):
    """A job as it travels: its pickle, the kind of engine to open, and the driver's working directory."""

    content: bytes
    engine: tuple[str, int]
    folder: str


class _Done(NamedTuple):
    """Result of a part. counted: as Job counts. error, trace: None and "" unless it failed."""

    counted: int = 0
    error: BaseException | None = None
    trace: str = ""


# The job that this process worked on last, by its reference.
_opened: dict[str, Job] = {}


def _run_part(where: list[Any], key: str, number: int) -> _Done:
    try:
        if key not in _opened:
            import ray

            copy = ray.get(where[0])
            work_in(copy.folder)
            _opened.clear()
            _opened[key] = unpickle_job(copy.content, open_engine(*copy.engine).engine)
        return _Done(run_counted(_opened[key], number))
    except Exception as error:
        return _Done(error=portable_error(error), trace=traceback.format_exc())

"""Worker processes that share the work of this one: started on first use, controlled over pipes, ended with it.

A lane (jobs.py) is a thread of a worker, with its own pipe.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any

from diskhop._native import Engine
from diskhop.errors import ConfigError, WorkerError
from diskhop.io.engine import kind_of_engine, open_engine
from diskhop.runtime.jobs import (
    COPIED_ARRAY_BYTES,
    InWorkerError,
    Job,
    Resources,
    copied,
    pickle_job,
    portable_error,
    unpickle_job,
)
from diskhop.runtime.process import end_with_parent

MOST_WORKERS = 64
_SECONDS_TO_END = 5
# Not multiprocessing, which would run the user's script again in every worker.
_START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); sys.path[:] = {path!r}; "
    "from diskhop.runtime.workers import serve; serve({parent}, {pipes}, {engine!r}, {depth})"
)


class Workers:
    """Up to `count` worker processes, which end with the context.

    threads: number of lanes in all workers, at least one per worker. copied_array_bytes: see Share. Raises ConfigError
    for an invalid count.
    """

    def __init__(self, count: int, threads: int, engine: Engine, copied_array_bytes: int = COPIED_ARRAY_BYTES) -> None:
        if not 1 <= count <= MOST_WORKERS:
            raise ConfigError(f"--workers {count} must be from 1 to {MOST_WORKERS}; 1 works in this process")
        self.count, self.machines = count, (count,)
        self._num_lanes = max(1, threads // count)
        self._engine = engine
        self._copied_array_bytes = copied_array_bytes
        self._workers: list[_Worker] = []

    @contextlib.contextmanager
    def open(self, job: Job, folder: Path, threads: int) -> Iterator[list[PipeLane]]:
        """Copy a job to workers and yield up to `threads` lanes, evenly distributed; none if the job must stay.

        Uses the most processes that the job can be divided among. Raises WorkerError, DestinationError.
        """
        most = min(self.count, threads)
        with copied(job, folder, most, self._copied_array_bytes, pickle_job) as copy:
            if copy is None:
                yield []
                return
            processes, content = copy
            while len(self._workers) < processes:
                self._workers.append(_Worker(self._num_lanes, self._engine))
            taking = [worker.lanes[: max(1, threads // processes)] for worker in self._workers[:processes]]
            for first, *_ in taking:
                first.send("open", content)
            for first, *_ in taking:
                first.wait()
            yield [lane for lanes in zip(*taking, strict=True) for lane in lanes]
            for first, *_ in taking:
                first.send("close", None)
                first.wait()

    def kill(self) -> None:
        """Kill the processes immediately."""
        for worker in self._workers:
            worker.kill()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.hang_up()
        for worker in workers:
            worker.end()


def open_workers(use: Resources) -> Workers:
    """Return the executor of --executor processes."""
    return Workers(use.several(MOST_WORKERS), use.threads, use.engine, use.copied_array_bytes)


class PipeLane:
    """This process's end of a pipe to a worker; used by one thread at a time."""

    def __init__(self, connection: Connection[Any, Any], process: subprocess.Popen[bytes]) -> None:
        self.connection = connection
        self._process = process

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """Run a part of the job. Raises the error of the worker, or WorkerError if the worker ended."""
        self.send("run", number)
        self.wait(count)

    def send(self, what: str, about: Any) -> None:
        """Send a request; wait() receives the answer."""
        with self._worker_errors():
            self.connection.send((what, about))

    def wait(self, count: Callable[[int], None] = lambda _: None) -> None:
        """Wait until the request is done."""
        while True:
            with self._worker_errors():
                what, about = self.connection.recv()
            if what == "counted":
                count(about)
            elif what == "done":
                return
            else:
                error, trace = about
                raise error from InWorkerError(trace)

    @contextlib.contextmanager
    def _worker_errors(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):
            code = _wait_for_end(self._process)
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            raise WorkerError(
                f"worker process {self._process.pid} {how} before its work was done, probably because memory ran out; "
                "use fewer --workers or free some memory"
            ) from None


class _Worker:
    """A worker process, as seen by its parent."""

    def __init__(self, num_lanes: int, engine: Engine) -> None:
        pipes = [Pipe() for _ in range(num_lanes)]
        kind, depth = kind_of_engine(engine)
        command = _START.format(
            path=sys.path,
            parent=os.getpid(),
            pipes=[theirs.fileno() for _, theirs in pipes],
            engine=kind,
            depth=depth,
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno() for _, theirs in pipes],
                process_group=0,  # Ctrl-C goes to this process only, which finishes running tasks
            )
        except OSError as error:
            raise WorkerError(f"a worker process cannot be started: {error.strerror}; use fewer --workers") from error
        finally:
            for _, theirs in pipes:
                theirs.close()
        self.lanes = [PipeLane(ours, self._process) for ours, _ in pipes]

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()

    def hang_up(self) -> None:
        """Close the pipes, which ends an idle worker."""
        for lane in self.lanes:
            lane.connection.close()

    def end(self) -> None:
        """Wait until the process has ended."""
        _wait_for_end(self._process)


def _wait_for_end(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process that should end soon; kill it if it does not."""
    try:
        return process.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


# -- in the worker --


def serve(parent: int, pipes: list[int], engine: str, depth: int) -> None:
    """Run a worker until the pipes are closed or the parent ends."""
    # The parent is the thread that started this process, which waits for it to end.
    end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before that
        return
    service = _Service(open_engine(engine, depth).engine)
    lanes = [Thread(target=service.serve_lane, args=(Connection(pipe),)) for pipe in pipes]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()


class _Service:
    """The shared state of the lanes of a worker: the engine, and the current job."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._job: Job | None = None

    def serve_lane(self, connection: Connection[Any, Any]) -> None:
        """Answer requests until the other end is closed."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                what, about = connection.recv()
                try:
                    self._answer(what, about, lambda done: connection.send(("counted", done)))
                    answer: tuple[str, Any] = ("done", None)
                except BaseException as error:
                    answer = ("failed", (portable_error(error), traceback.format_exc()))
                connection.send(answer)

    def _answer(self, what: str, about: Any, count: Callable[[int], None]) -> None:
        if what == "open":
            self._job = unpickle_job(about, self._engine)
        elif what == "close":
            self._job = None
        else:
            assert self._job is not None
            self._job.run(about, count)

"""Worker processes that share the work of this one: started on first use, controlled over pipes, ended with it.

A *job* is an object with numbered parts to run; every worker gets a copy. A *lane* runs one part at a time: it is a
thread of a worker, with its own pipe. Copies are pickled by this process for its own workers only, and never contain
data that a user supplied. Objects with more than plain data define `for_workers`. Objects that must stay in this
process, and large arrays, raise TypeError, as pickle does.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine
from diskhop.errors import ConfigError, WorkerError
from diskhop.io.atomic import destination_errors
from diskhop.io.engine import open_engine
from diskhop.runtime.process import end_with_parent

MOST_WORKERS = 64
_SECONDS_TO_END = 5
# Largest array that is copied to workers; a larger one goes through a file (SharedArray).
COPIED_ARRAY_BYTES = 1 << 20
# Not multiprocessing, which would run the user's script again in every worker.
_START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); sys.path[:] = {path!r}; "
    "from diskhop.runtime.workers import serve; serve({parent}, {pipes}, {engine!r}, {depth})"
)


class Job(Protocol):
    """Work with numbered parts, see the module."""

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """Run a part; count receives how much is done, in a unit of the job."""


@dataclass(slots=True)
class Share:
    """The files and limits that the copies of a job share; closing it removes its files.

    processes: number of copies.
    folder: where files that all copies map are written.
    copied_array_bytes: largest array that is copied; a job with a larger one must stay.
    """

    processes: int
    folder: Path
    copied_array_bytes: int = COPIED_ARRAY_BYTES
    _files: list[Path] = field(default_factory=list)

    def new_file(self) -> Path:
        """Return the path of a new file to write; its name starts with a dot, unlike task outputs."""
        self._files.append(self.folder / f".shared-{len(self._files)}")
        return self._files[-1]

    def close(self) -> None:
        """Remove the files; existing mappings stay valid."""
        for path in self._files:
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, eq=False)
class SharedArray:
    """An array that workers map from a file, so that all of them share one copy in memory."""

    array: NDArray[Any]

    def for_workers(self, share: Share) -> partial[SharedArray]:
        """Write the array to a file for the workers (see Workers)."""
        path = share.new_file()
        with destination_errors(path), path.open("wb") as file:
            file.write(np.ascontiguousarray(self.array).data)
        return partial(_map_array, path, self.array.dtype, self.array.shape)


class Workers:
    """Up to `count` worker processes, which end with the context.

    threads: number of lanes in all workers, at least one per worker. copied_array_bytes: see Share. To copy an object
    of a job with `for_workers(share)`, the worker calls the function that this returns. Raises ConfigError for an
    invalid count.
    """

    def __init__(self, count: int, threads: int, engine: Engine, copied_array_bytes: int = COPIED_ARRAY_BYTES) -> None:
        if not 1 <= count <= MOST_WORKERS:
            raise ConfigError(f"--workers {count} must be from 1 to {MOST_WORKERS}; 1 works in this process")
        self.count = count
        self._num_lanes = max(1, threads // count)
        self._engine = engine
        self._copied_array_bytes = copied_array_bytes
        self._workers: list[_Worker] = []

    @contextlib.contextmanager
    def open(self, job: Job, folder: Path, threads: int) -> Iterator[list[Lane]]:
        """Copy a job to workers and yield up to `threads` lanes, evenly distributed; none if the job must stay.

        Uses the most processes that the job can be divided among. Raises WorkerError, DestinationError.
        """
        with ExitStack() as shares:
            for processes in range(min(self.count, threads), 1, -1):
                share = Share(processes, folder, self._copied_array_bytes)
                shares.callback(share.close)
                with contextlib.suppress(TypeError, AttributeError, pickle.PicklingError):
                    content = _pickled(job, share)
                    break
            else:
                yield []
                return
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


class Lane:
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
                raise error from _InWorkerError(trace)

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


class _InWorkerError(Exception):
    """The cause of an error in a worker: its traceback there, as text."""


class _Worker:
    """A worker process, as seen by its parent."""

    def __init__(self, num_lanes: int, engine: Engine) -> None:
        pipes = [Pipe() for _ in range(num_lanes)]
        command = _START.format(
            path=sys.path,
            parent=os.getpid(),
            pipes=[theirs.fileno() for _, theirs in pipes],
            engine="auto" if engine.name == "uring" else engine.name,
            depth=engine.depth,
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
        self.lanes = [Lane(ours, self._process) for ours, _ in pipes]

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


class _Pickler(pickle.Pickler):
    """Pickles objects by their for_workers, and the engine as a reference to that of the worker."""

    def __init__(self, file: io.BytesIO, share: Share) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._share = share

    def persistent_id(self, obj: Any) -> str | None:
        return "engine" if isinstance(obj, Engine) else None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, np.ndarray) and obj.nbytes > self._share.copied_array_bytes:
            raise TypeError(f"an array of {obj.nbytes} bytes stays in its process")
        for_workers = getattr(type(obj), "for_workers", None)
        return NotImplemented if for_workers is None else (for_workers(obj, self._share), ())


class _Unpickler(pickle.Unpickler):
    """See _Pickler."""

    def __init__(self, content: bytes, engine: Engine) -> None:
        super().__init__(io.BytesIO(content))
        self._engine = engine

    def persistent_load(self, pid: Any) -> Engine:
        return self._engine


def _wait_for_end(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process that should end soon; kill it if it does not."""
    try:
        return process.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _pickled(job: Job, share: Share) -> bytes:
    file = io.BytesIO()
    _Pickler(file, share).dump(job)
    return file.getvalue()


def _map_array(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> SharedArray:
    return SharedArray(np.asarray(np.memmap(path, dtype, "r", shape=shape)))


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
                    answer = ("failed", (_portable(error), traceback.format_exc()))
                connection.send(answer)

    def _answer(self, what: str, about: Any, count: Callable[[int], None]) -> None:
        if what == "open":
            self._job = _Unpickler(about, self._engine).load()
        elif what == "close":
            self._job = None
        else:
            assert self._job is not None
            self._job.run(about, count)


def _portable(error: BaseException) -> BaseException:
    """Return the error if it can be pickled, else its text as a RuntimeError."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error

"""Processes beside this one that share its work: started when first needed, fed over pipes, gone when it is.

A *job* is an object with numbered parts to run, of which every process that takes part gets a copy. A *lane* runs one
part at a time; it is a thread of a worker, with a pipe of its own. What a copy is made of is pickled: by this process,
for its own workers, and never anything that a user gave. What holds more than plain data has `for_workers`; what must
stay, and every large array, is refused as pickle refuses, by TypeError.
"""

from __future__ import annotations

import contextlib
import ctypes
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

MOST_WORKERS = 64
_SECONDS_TO_END = 5
# Largest array that is copied to workers; a larger one goes through a file (SharedArray).
COPIED_ARRAY_BYTES = 1 << 20
_PR_SET_PDEATHSIG = 1
# Not by multiprocessing, which would run the user's script once more in every worker.
_START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); sys.path[:] = {path!r}; "
    "from diskhop.runtime.workers import serve; serve({parent}, {pipes}, {engine!r}, {depth})"
)


class Job(Protocol):
    """See the module."""

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """Run a part; count hears how much of it is done, in a unit of its own."""


@dataclass(slots=True)
class Share:
    """Describes what the copies of a job share; closing it removes its files.

    processes: number of copies.
    folder: where files that all copies map are written.
    copied_array_bytes: largest array that is copied; a job with a larger one must stay.
    """

    processes: int
    folder: Path
    copied_array_bytes: int = COPIED_ARRAY_BYTES
    _files: list[Path] = field(default_factory=list)

    def new_file(self) -> Path:
        """The path of another file to write; no task made it, so that its name starts with a dot."""
        self._files.append(self.folder / f".shared-{len(self._files)}")
        return self._files[-1]

    def close(self) -> None:
        """Remove the files. Who has one mapped keeps it."""
        for path in self._files:
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, eq=False)
class SharedArray:
    """An array that workers map from a file: memory holds it once for all of them."""

    array: NDArray[Any]

    def for_workers(self, share: Share) -> partial[SharedArray]:
        """See Workers."""
        path = share.new_file()
        with destination_errors(path), path.open("wb") as file:
            file.write(np.ascontiguousarray(self.array).data)
        return partial(_map_array, path, self.array.dtype, self.array.shape)


class Workers:
    """A context that ends the processes. count: most of them; threads: lanes of all together, at least one each.

    An object of a job that has `for_workers(share)` is copied by calling what that returns, in the worker. Raises
    ConfigError for a count that cannot be.
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
        """Lanes with a copy of the job, at most so many, as many in each process: none where the job must stay.

        Of processes there are as many as it can be divided among. Raises WorkerError, DestinationError.
        """
        with ExitStack() as held:
            for processes in range(min(self.count, threads), 1, -1):
                share = Share(processes, folder, self._copied_array_bytes)
                held.callback(share.close)
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
        """End the processes at once, with what they run."""
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
    """One end of a pipe to a worker; one thread at a time may ask."""

    def __init__(self, connection: Connection[Any, Any], process: subprocess.Popen[bytes]) -> None:
        self.connection = connection
        self._process = process

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """Run a part of the job. Raises what it raised there; WorkerError if the worker ended."""
        self.send("run", number)
        self.wait(count)

    def send(self, what: str, about: Any) -> None:
        """Ask for something; wait() has the answer."""
        with self._death_told():
            self.connection.send((what, about))

    def wait(self, count: Callable[[int], None] = lambda _: None) -> None:
        """Wait until it is done."""
        while True:
            with self._death_told():
                what, about = self.connection.recv()
            if what == "counted":
                count(about)
            elif what == "done":
                return
            else:
                error, told = about
                raise error from _InWorkerError(told)

    @contextlib.contextmanager
    def _death_told(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):
            code = _wait_for_end(self._process)
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            raise WorkerError(
                f"worker process {self._process.pid} must last as long as there is work, and {how}, as happens where "
                "memory runs out; take fewer --workers or give this machine more memory"
            ) from None


class _InWorkerError(Exception):
    """The cause of an error that comes from a worker: its traceback there, as text."""


class _Worker:
    """A process, as the one that started it sees it."""

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
                process_group=0,  # Ctrl-C is for this process, which finishes what runs
            )
        except OSError as error:
            raise WorkerError(f"a worker process cannot be started: {error.strerror}; take fewer --workers") from error
        finally:
            for _, theirs in pipes:
                theirs.close()
        self.lanes = [Lane(ours, self._process) for ours, _ in pipes]

    def kill(self) -> None:
        """End it now."""
        self._process.kill()

    def hang_up(self) -> None:
        """Close the pipes, upon which an idle worker ends."""
        for lane in self.lanes:
            lane.connection.close()

    def end(self) -> None:
        """Wait until it has ended."""
        _wait_for_end(self._process)


class _Pickler(pickle.Pickler):
    """Asks objects that have for_workers, and leaves the engine to the worker, which has its own."""

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
    """The exit code of a process that is about to end; it is killed if it does not."""
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
    """Be a worker, until the pipes are closed or the parent ends, however that is."""
    # The kernel means the thread that started this process, which waits for it to end.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that was said
        return
    service = _Service(open_engine(engine, depth).engine)
    lanes = [Thread(target=service.serve_lane, args=(Connection(pipe),)) for pipe in pipes]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()


class _Service:
    """What the lanes of a worker have in common: an engine, and the job while there is one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._job: Job | None = None

    def serve_lane(self, connection: Connection[Any, Any]) -> None:
        """Answer until the other end is closed."""
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
    """The error, if a copy of it can be made."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error

"""Jobs: work with numbered parts that can be copied to other processes, and the executors that run the parts.

An *executor* is a place where parts run: worker processes of this machine (workers.py), Ray (ray_tasks.py), or the
indices of an array job (array_driver.py). A *lane* runs one part at a time. Copies are pickled for processes that this
one controls, and never contain data that a user supplied; plain.py writes them where others may read them. Objects with
more than plain data define `for_workers(share)`, which returns a function that makes the copy elsewhere. Objects that
must stay in this process, and large arrays, raise TypeError, as pickle does.
"""

from __future__ import annotations

import contextlib
import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine
from diskhop.errors import ConfigError
from diskhop.io.atomic import destination_errors

# Largest array that is copied to workers; a larger one goes through a file (SharedArray).
COPIED_ARRAY_BYTES = 1 << 20

Content = TypeVar("Content")


class Job(Protocol):
    """Work with numbered parts, see the module. A part may run twice, also at the same time."""

    @property
    def num_parts(self) -> int:
        """Number of parts."""

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """Run a part; count receives how much is done, in a unit of the job, from one thread at a time."""


def run_counted(job: Job, number: int) -> int:
    """Run a part of a job; return what it counted."""
    counted = 0

    def count(done: int) -> None:
        nonlocal counted
        counted += done

    job.run(number, count)
    return counted


class Lane(Protocol):
    """Runs the parts of the open job elsewhere; used by one thread at a time."""

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """Run a part and wait for it. Raises the part's error, or WorkerError if what ran it ended."""


class Executor(AbstractContextManager["Executor"], Protocol):
    """A place where the parts of jobs run; its processes end with the context.

    Raises ConfigError for a place that cannot be used, when it is entered or a job is opened.
    """

    @property
    def count(self) -> int:
        """Number of processes; 1 for this process only."""

    @property
    def machines(self) -> Sequence[int]:
        """Numbers of processes that share the memory and threads of a machine, for each machine."""

    def open(self, job: Job, folder: Path, threads: int) -> AbstractContextManager[Sequence[Lane]]:
        """Copy a job to where it runs and yield lanes; none if the job must stay.

        folder: for files that all copies map. threads: parts that may run at the same time. Raises WorkerError,
        DestinationError.
        """

    def kill(self) -> None:
        """End running parts immediately."""


@dataclass(slots=True)
class Share:
    """The files and limits that the copies of a job share; closing it removes its files.

    processes: number of processes that share the memory.
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

    def require_copied(self, array: NDArray[Any]) -> None:
        """Raise TypeError for an array that is too large to be copied."""
        if array.nbytes > self.copied_array_bytes:
            raise TypeError(f"an array of {array.nbytes} bytes stays in its process")

    def close(self) -> None:
        """Remove the files; existing mappings stay valid."""
        for path in self._files:
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, eq=False)
class SharedArray:
    """An array that workers map from a file, so that all of them share one copy in memory."""

    array: NDArray[Any]

    def for_workers(self, share: Share) -> partial[SharedArray]:
        """Write the array to a file that all copies map (see the module)."""
        path = share.new_file()
        with destination_errors(path), path.open("wb") as file:
            file.write(np.ascontiguousarray(self.array).data)
        return partial(map_array, path, self.array.dtype, self.array.shape)


def map_array(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> SharedArray:
    """Map the file of a SharedArray."""
    return SharedArray(np.asarray(np.memmap(path, dtype, "r", shape=shape)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Place, processes, threads and memory for an executor.

    place: text after the colon of --executor, "" for none.
    count: number of processes; None: the executor chooses.
    threads: threads of all processes together.
    memory_bytes: memory of all processes together.
    engine: I/O engine of this process; others open one of the same kind.
    copied_array_bytes: see Share.
    """

    place: str
    count: int | None
    threads: int
    memory_bytes: int
    engine: Engine
    copied_array_bytes: int

    def several(self, most: int) -> int:
        """Return the number of processes, by default one per thread, at least two."""
        return min(most, max(2, self.threads)) if self.count is None else self.count


@dataclass(frozen=True, slots=True)
class ExecutorKind:
    """A kind of executor. open: makes one; takes_place: whether --executor may name a place after a colon."""

    open: Callable[[Resources], Executor]
    takes_place: bool = False


class Threads:
    """The threads of this process: every job stays."""

    count, machines = 1, (1,)

    def __init__(self, use: Resources) -> None:
        if use.count is not None and use.count < 1:
            raise ConfigError(f"--workers {use.count} must be at least 1; remove it, or use --executor processes")
        if use.count not in (None, 1):
            raise ConfigError(f"--workers {use.count} has no effect with --executor threads; use --executor processes")

    @contextlib.contextmanager
    def open(self, job: Job, folder: Path, threads: int) -> Iterator[Sequence[Lane]]:
        """See Executor."""
        yield ()

    def kill(self) -> None:
        """See Executor."""

    def __enter__(self) -> Threads:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


@contextlib.contextmanager
def copied(
    job: Job,
    folder: Path,
    most_processes: int,
    copied_array_bytes: int,
    encode: Callable[[Job, Share], Content],
) -> Iterator[tuple[int, Content] | None]:
    """Encode a job for the most processes that it can be divided among, from two; yield None if it must stay."""
    with ExitStack() as shares:
        for processes in range(most_processes, 1, -1):
            share = Share(processes, folder, copied_array_bytes)
            shares.callback(share.close)
            with contextlib.suppress(TypeError, AttributeError, pickle.PicklingError):
                content = encode(job, share)
                break
        else:
            yield None
            return
        yield processes, content


def pickle_job(job: Job, share: Share) -> bytes:
    """Copy a job for a process that this one controls. Raises TypeError for one that must stay."""
    file = io.BytesIO()
    _Pickler(file, share).dump(job)
    return file.getvalue()


def unpickle_job(content: bytes, engine: Engine) -> Job:
    """Return the copy of a job, with an engine of this process."""
    job: Job = _Unpickler(content, engine).load()
    return job


class InWorkerError(Exception):
    """The cause of an error elsewhere: its traceback there, as text."""


def portable_error(error: BaseException) -> BaseException:
    """Return the error if it can be pickled, else its text as a RuntimeError."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever the error's own class raises: it is called with arguments that it may not take
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class _Pickler(pickle.Pickler):
    """Pickles objects by their for_workers, and the engine as a reference to that of the worker."""

    def __init__(self, file: io.BytesIO, share: Share) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._share = share

    def persistent_id(self, obj: Any) -> str | None:
        return "engine" if isinstance(obj, Engine) else None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, np.ndarray):
            self._share.require_copied(obj)
        for_workers = getattr(type(obj), "for_workers", None)
        return NotImplemented if for_workers is None else (for_workers(obj, self._share), ())


class _Unpickler(pickle.Unpickler):
    """See _Pickler."""

    def __init__(self, content: bytes, engine: Engine) -> None:
        super().__init__(io.BytesIO(content))
        self._engine = engine

    def persistent_load(self, pid: Any) -> Engine:
        return self._engine

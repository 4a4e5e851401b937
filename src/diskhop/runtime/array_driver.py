"""The executor of --executor array:DIR: the command itself, which shares tasks through a folder (array_folder.py)."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from types import TracebackType

from diskhop.errors import ConfigError, WorkerError
from diskhop.io.atomic import destination_errors
from diskhop.io.engine import kind_of_engine
from diskhop.io.locks import lock_directory
from diskhop.runtime.array_folder import (
    BEAT_FILE,
    CLOSED_FILE,
    DRIVER_FILE,
    FINISHED_FILE,
    JOB_FILE,
    LOST_SECONDS,
    POLL_SECONDS,
    JobFolder,
    name_of,
    write_whole,
)
from diskhop.runtime.heartbeats import Heartbeats
from diskhop.runtime.jobs import Job, Lane, Resources, copied
from diskhop.runtime.plain import encode_job


class ArrayDriver:
    """The executor of the driver. use.place: the folder. use.count: processes that share the memory; default: two.

    Each process takes an equal part of memory and threads: two are the driver and one index on its machine.
    """

    def __init__(self, use: Resources, lost_seconds: float = LOST_SECONDS) -> None:
        if not use.place:
            raise ConfigError("--executor array needs a folder that all machines share; for example array:tasks")
        self.count = 2 if use.count is None else use.count
        self.machines = (self.count,)
        if self.count < 2:
            raise ConfigError(
                f"--workers {self.count} must be at least 2 with --executor array: driver and indices share --memory"
            )
        self._path = Path(use.place)
        self._engine = use.engine
        self._copied_array_bytes = use.copied_array_bytes
        self._lost_seconds = lost_seconds
        self._num_jobs = 0
        self._beats: Heartbeats | None = None
        self._killed = threading.Event()
        self._held = ExitStack()

    @contextlib.contextmanager
    def open(self, job: Job, folder: Path, threads: int) -> Iterator[Sequence[Lane]]:
        """See Executor."""
        assert self._beats is not None, "it is entered"
        with copied(job, folder.absolute(), min(self.count, threads), self._copied_array_bytes, encode_job) as copy:
            if copy is None:
                yield ()
                return
            processes, content = copy
            lanes = max(1, threads // processes)
            # A driver that begins again removes the folder: names never return, so no index confuses two jobs.
            path = self._path / f"{self._num_jobs:04}-{uuid.uuid4().hex[:8]}"
            self._num_jobs += 1
            with destination_errors(path):
                path.mkdir()
                write_whole(path / JOB_FILE, {"lanes": lanes, "engine": kind_of_engine(self._engine), "job": content})
            opened = JobFolder(path, job, self._beats, self._lost_seconds, name_of("driver"))
            try:
                yield [_DriverLane(opened, self._killed) for _ in range(lanes)]
            finally:
                with destination_errors(path):
                    (path / CLOSED_FILE).touch()

    def kill(self) -> None:
        """See Executor: lanes wait no longer; indices finish their parts."""
        self._killed.set()

    def __enter__(self) -> ArrayDriver:
        with self._held, destination_errors(self._path):
            self._begin()
            (self._path / BEAT_FILE).touch()
            write_whole(self._path / DRIVER_FILE, {"diskhop": version("diskhop"), "folder": str(Path.cwd())})
            self._held = self._held.pop_all()
        self._beats = Heartbeats()
        self._beats.add(self._path / BEAT_FILE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._beats is not None, "it is entered"
        self._beats.stop()
        with self._held, destination_errors(self._path):
            write_whole(self._path / FINISHED_FILE, {"failed": error is not None})

    def _begin(self) -> None:
        """Make a new folder in the place of an earlier command's, and lock it. Raises BusyError while that runs."""
        if self._path.exists():
            with self._locked():
                if any(self._path.iterdir()) and not (self._path / DRIVER_FILE).exists():
                    raise ConfigError(f"--executor array:{self._path}: has other files; name a new folder")
                # Indices of an interrupted command may still write there.
                earlier = self._path.with_name(f".{self._path.name}-{uuid.uuid4().hex}")
                self._path.rename(earlier)
            shutil.rmtree(earlier, ignore_errors=True)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.mkdir()
        self._held.enter_context(self._locked())

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = lock_directory(self._path, self._path)
        try:
            yield
        finally:
            os.close(lock)


class _DriverLane:
    """Runs parts in the driver, or waits for indices; runs other open parts meanwhile."""

    def __init__(self, job: JobFolder, killed: threading.Event) -> None:
        self._job = job
        self._killed = killed

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """See Lane; counts once the part is done."""
        while not self._job.is_done(number):
            if self._job.claim(number):
                self._job.run(number)
            elif self._killed.is_set():
                raise WorkerError("interrupted while a task was waited for; run the same command again to resume")
            elif not self._help():
                time.sleep(POLL_SECONDS)
        count(self._job.counted(number))

    def _help(self) -> bool:
        """Run a part that no process has. One that fails is run again by the lane that must report the error."""
        for number in sorted(self._job.pending()):
            if self._job.claim(number):
                with contextlib.suppress(Exception):
                    self._job.run(number)
                return True
        return False

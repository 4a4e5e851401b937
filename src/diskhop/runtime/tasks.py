"""Heavy preparation as a list of tasks that resumes after a crash: finished tasks are not repeated.

A *task* creates one file, and creates the same file whenever it is repeated. It is plain data, so that any process can
run it, unless it refers to objects that must stay in this process. A *stage* is a folder of task outputs with a *key*,
a text that all of them depend on. The *work folder* contains the stages of one destination until that is complete; it
is named `.NAME.work` and lies next to NAME.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Protocol

from diskhop._native import BufferPool, Engine
from diskhop.errors import ConfigError, PredictionError, RequirementError, SourceError
from diskhop.io.atomic import (
    Injector,
    announce,
    destination_errors,
    make_directories,
    remove_tree,
    rename,
    resolve_destination,
    sync_directory,
    sync_file,
    write_file,
)
from diskhop.io.locks import lock_made_directory
from diskhop.runtime.jobs import Executor, Job, Lane, Share
from diskhop.runtime.process import process_name

# Names that start with a dot are not task outputs: other files of a stage, and folders next to the stages.
_KEY_NAME = ".key"


@dataclass(frozen=True, slots=True)
class TaskTools:
    """Resources that a process provides to its tasks.

    engine: the I/O engine.
    injector: fault injector for changes that are made without the engine; None for no faults.
    pool: memory for the engine's buffers.
    count: receives how much a task has done, in a unit of the stage.
    executor: where tasks may run; None for this process only.
    writer: part of the names of unfinished files; "" where no other process makes the same.
    """

    engine: Engine
    injector: Injector | None = None
    pool: BufferPool = field(default_factory=lambda: BufferPool(0))
    count: Callable[[int], None] = lambda _: None
    executor: Executor | None = None
    writer: str = ""

    @property
    def processes(self) -> int:
        """Number of processes: 1 with an injector, which counts the changes of this process."""
        return 1 if self.executor is None or self.injector is not None else self.executor.count

    @property
    def processes_per_machine(self) -> int:
        """Number of processes that share the memory and threads of one machine, at most."""
        return max(self._machines)

    def processes_of(self, most_per_machine: int) -> int:
        """Return the number of processes if each machine uses at most this many of its own."""
        return sum(min(each, most_per_machine) for each in self._machines)

    @property
    def _machines(self) -> Sequence[int]:
        return (1,) if self.executor is None or self.injector is not None else self.executor.machines


class Task(Protocol):
    """One file to create. The fields are plain data, or objects that can be copied to a worker."""

    @property
    def name(self) -> str:
        """Name of the file in the folder of the stage; it does not start with a dot."""

    def write(self, path: Path, tools: TaskTools) -> None:
        """Create the file at `path`, which does not exist; run_tasks syncs and renames it."""


class WorkFolder:
    """The stages of one destination; they stay for the next run unless remove() is called.

    The folder is created with the first stage, and locked until this process ends. An exception that leaves the context
    gets a note that names the folder, if there are finished tasks in it.
    """

    def __init__(self, destination: Path, injector: Injector | None = None) -> None:
        self._shown = destination
        resolved = resolve_destination(destination)
        self.path = resolved.with_name(f".{resolved.name}.work")
        self._injector = injector
        self._lock: int | None = None

    def stage(self, name: str, key: str) -> Path:
        """Open the folder of a stage: with the outputs of an earlier run with the same key, else empty."""
        self.lock()
        folder = self.path / name
        content = key.encode(errors="surrogateescape")  # names of files in the key may be any bytes
        with destination_errors(self._shown):
            key_path = folder / _KEY_NAME
            if not key_path.exists() or key_path.read_bytes() != content:
                remove_tree(folder, self._injector)
                make_directories(folder, self._injector)
                write_file(key_path, content, self._injector)
            _remove_partial(folder)  # left by a killed run
        return folder

    def kept_bytes(self, stages: str = "*") -> int:
        """Return the disk space of earlier stages (name pattern), which is reused, or freed before it is needed."""
        statuses = []
        for path in self.path.glob(f"{stages}/*"):
            with contextlib.suppress(FileNotFoundError):  # another process still has the folder
                statuses.append(path.stat())
        # Removing a file that a dataset links to as well frees nothing.
        return sum(512 * status.st_blocks for status in statuses if status.st_nlink == 1)

    def publish(self, finished: Path) -> None:
        """Rename a finished folder in it to the destination, durably, and remove the rest."""
        with destination_errors(self._shown):
            rename(finished, self._shown, self._injector)
            sync_directory(self._shown.parent, self._injector)
        self.remove()

    def remove(self) -> None:
        """Remove the folder, with stages of earlier runs. Raises BusyError if another process works in it."""
        if self.path.is_dir():
            self.lock()
            remove_tree(self.path, self._injector)
            self._unlock()

    def remove_left(self) -> None:
        """Remove the folder of a process that ended once its destination was there, unless another process uses it."""
        with contextlib.suppress(OSError):  # no later work needs it gone, and `diskhop clean` lists it
            self.remove()

    def lock(self) -> None:
        """Create the folder, if it is missing, and lock it. Raises BusyError if another process works in it."""
        if self._lock is None:
            with destination_errors(self._shown):
                make = partial(make_directories, self.path, self._injector)
                self._lock = lock_made_directory(self.path, self._shown, make)
                for left in self.path.glob(".*/"):  # spilled by queries of a killed run
                    remove_tree(left, self._injector)

    def __enter__(self) -> WorkFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None and self._lock is not None:
                if any(self.path.glob("[!.]*/[!.]*")):
                    # The same command would fail again where the source, the model or an option must be corrected.
                    next_step = (
                        "it is reused after the correction"
                        if isinstance(error, (SourceError, ConfigError, PredictionError, RequirementError))
                        else "run the same command again to resume"
                    )
                    error.add_note(f"finished work is kept in {self.path}: {next_step}")
                else:
                    remove_tree(self.path, self._injector)
        finally:
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class OpenedWorkFolder(WorkFolder):
    """The work folder of another process, whose stages are complete where this one reads them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path

    def stage(self, name: str, key: str) -> Path:
        """Return the folder of a stage."""
        return self.path / name


def run_tasks(
    tasks: Sequence[Task],
    folder: Path,
    tools: TaskTools,
    *,
    threads: int,
    here: int | None = None,
    pool_bytes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    count: Callable[[int], None] | None = None,
) -> None:
    """Create the outputs that are missing, `threads` at a time across all processes; they are then durable.

    Runs in this process if only one task can run at a time, or if the tasks must stay, `here` at a time (default:
        threads). pool_bytes: memory kept for later tasks, of all processes; None for the pool of the tools. progress:
        receives (tasks done, all tasks). count: receives what tasks count.

    After an error no further task starts, and running ones finish, unless a signal ends this process and its workers.
    The error of the first failed task in the list is raised, whatever the threads. Finished outputs stay.
    """
    missing = [task for task in tasks if not (folder / task.name).exists()]
    if pool_bytes is not None:
        tools = replace(tools, pool=BufferPool(pool_bytes))
    if count is not None:
        tools = replace(tools, count=count)
    if progress is not None:
        progress(len(tasks) - len(missing), len(tasks))
    stage = Stage(missing, folder, tools, pool_bytes or 0)
    at_once = min(threads, len(missing))
    here = at_once if here is None else min(here, len(missing))
    run_job(stage, folder, tools, threads=at_once, here=here, progress=progress, num_done=len(tasks) - len(missing))


def run_job(
    job: Job,
    folder: Path,
    tools: TaskTools,
    *,
    threads: int,
    here: int,
    progress: Callable[[int, int], None] | None = None,
    num_done: int = 0,
) -> None:
    """Run the parts of a job: `threads` at a time across all processes, or `here` at a time if it must stay.

    folder: for files that all copies of the job map. progress, errors: see run_tasks(). num_done: parts that were done
    before, and are reported too.
    """
    with _opened(job, folder, tools, threads, here) as (run_one, at_once):
        _Run(run_one, num_done + job.num_parts, job.num_parts, progress).run(at_once, tools.executor)


class _Run:
    """Runs the missing tasks of a stage by their numbers, and reports progress."""

    def __init__(
        self,
        run_one: Callable[[int], None],
        num_tasks: int,
        num_missing: int,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._run_one = run_one
        self._num_tasks = num_tasks
        self._num_missing = num_missing
        self._num_done = num_tasks - num_missing
        self._progress = progress
        self._failed: list[int] = []

    def run(self, at_once: int, executor: Executor | None) -> None:
        """Run all tasks, at_once at a time; the executor is killed if a signal interrupts this thread."""
        if at_once <= 1:
            for number in range(self._num_missing):
                self._run(number)
                self._report()
            return
        with ThreadPoolExecutor(at_once, thread_name_prefix="task") as pool:
            futures = [pool.submit(self._run, number) for number in range(self._num_missing)]
            running = set(futures)
            try:
                while running and not self._failed:
                    _, running = wait(running, return_when=FIRST_EXCEPTION, timeout=0.2)
                    self._report()
            except BaseException:
                self._failed.append(-1)
                if executor is not None:
                    executor.kill()
                raise
        for future in futures:
            future.result()

    def _run(self, number: int) -> None:
        # Tasks before a failed one still run: one of them may raise the first error of the list.
        if self._failed and min(self._failed) < number:
            return
        try:
            self._run_one(number)
        except BaseException:
            self._failed.append(number)
            raise
        self._num_done += 1

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(self._num_done, self._num_tasks)


@contextlib.contextmanager
def _opened(
    job: Job, folder: Path, tools: TaskTools, threads: int, here: int
) -> Iterator[tuple[Callable[[int], None], int]]:
    """Yield a function that runs a part by number, here or elsewhere, and how many may run concurrently."""
    if tools.executor is None or min(tools.processes, threads) <= 1:
        yield partial(job.run, count=tools.count), here
        return
    with tools.executor.open(job, folder, threads) as lanes:
        free = SimpleQueue[Lane]()
        for lane in lanes:
            free.put(lane)

        def run_there(number: int) -> None:
            lane = free.get()
            try:
                lane.run(number, tools.count)
            finally:
                free.put(lane)

        if lanes:
            yield run_there, len(lanes)
            _remove_partial(folder)  # left by a task that another process repeated
        else:
            yield partial(job.run, count=tools.count), here


class Stage:
    """The tasks of a stage, run by number (see Job)."""

    def __init__(self, tasks: Sequence[Task], folder: Path, tools: TaskTools, pool_bytes: int) -> None:
        self._tasks = tasks
        self._folder = folder
        self._tools = tools
        self._pool_bytes = pool_bytes

    @property
    def num_parts(self) -> int:
        """See Job."""
        return len(self._tasks)

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """Run one task (see Job)."""
        _run(self._tasks[number], self._folder, replace(self._tools, count=count))

    def for_workers(self, share: Share) -> partial[Stage]:
        """Copy the tasks to another process, with its part of the pool (see jobs.py)."""
        return partial(
            _stage_in_worker, self._tasks, self._folder, self._tools.engine, self._pool_bytes // share.processes
        )


def _stage_in_worker(tasks: Sequence[Task], folder: Path, engine: Engine, pool_bytes: int) -> Stage:
    tools = TaskTools(engine, pool=BufferPool(pool_bytes), writer=writer_name())
    return Stage(tasks, folder, tools, pool_bytes)


def writer_name() -> str:
    """Return TaskTools.writer for this thread: a process that is taken for dead may write while another repeats a part.

    Threads differ too, as indices of an array job may share a process.
    """
    return f"{process_name()}-{threading.get_ident()}."


def _run(task: Task, folder: Path, tools: TaskTools) -> None:
    path = folder / task.name
    partial = folder / f".{task.name}.{tools.writer}partial"
    with destination_errors(path):
        partial.unlink(missing_ok=True)  # left by a killed run
        try:
            announce(tools.injector, "write", partial)
            task.write(partial, tools)
            sync_file(partial, tools.injector)
            rename(partial, path, tools.injector)
        except BaseException:
            with contextlib.suppress(OSError):
                announce(tools.injector, "rename", partial)
                partial.unlink()
            raise
        sync_directory(folder, tools.injector)


def _remove_partial(folder: Path) -> None:
    for path in folder.glob(".*.partial"):
        path.unlink(missing_ok=True)

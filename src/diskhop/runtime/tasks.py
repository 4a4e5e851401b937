"""Heavy preparation as a list of tasks, kept across crashes: what is done stays done.

A *task* makes one file and may be done again at any time with the same result; it is plain data, so that any process
can do it, unless it holds what must stay in this one. A *stage* is a folder of tasks' outputs with a *key*: text that
everything in it depends on. The *work folder* holds a destination's stages until it is complete: `.NAME.work` beside
NAME.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Protocol

from diskhop._native import BufferPool, Engine
from diskhop.io.atomic import (
    Injector,
    announce,
    destination_errors,
    lock_directory,
    make_directories,
    remove_tree,
    rename,
    resolve_destination,
    sync_directory,
    sync_file,
    write_file,
)
from diskhop.runtime.workers import Lane, Share, Workers

# What no task made, files of a stage and folders beside the stages, has a name that starts with a dot.
_KEY_NAME = ".key"


@dataclass(frozen=True, slots=True)
class TaskTools:
    """What a process lends its tasks: an engine, memory, and who hears of changes made without the engine.

    count: hears how much a task has done, in a unit of the stage. workers: processes that tasks may be done in.
    """

    engine: Engine
    injector: Injector | None = None
    pool: BufferPool = field(default_factory=lambda: BufferPool(0))
    count: Callable[[int], None] = lambda _: None
    workers: Workers | None = None

    @property
    def processes(self) -> int:
        """How many may work at once; changes that someone injects faults into are all made in this one."""
        return 1 if self.workers is None or self.injector is not None else self.workers.count


class Task(Protocol):
    """One file to make, from what the task's own fields name: plain data, or what can be copied to a worker."""

    @property
    def name(self) -> str:
        """The file's name within the stage's folder; it does not start with a dot."""

    def write(self, path: Path, tools: TaskTools) -> None:
        """Make the file at the path given, which does not exist; run_tasks syncs and renames it."""


class WorkFolder:
    """The stages of one destination; a context that leaves them to the next run unless remove() was called.

    The folder is made when the first stage is. It belongs to this process while it lives (the kernel lets go however it
    ends). Whatever ends the context early carries a note that names the folder, where there is finished work in it.
    """

    def __init__(self, destination: Path, injector: Injector | None = None) -> None:
        self._shown = destination
        resolved = resolve_destination(destination)
        self.path = resolved.with_name(f".{resolved.name}.work")
        self._injector = injector
        self._lock: int | None = None

    def stage(self, name: str, key: str) -> Path:
        """The folder of a stage, with the outputs that an earlier run finished under the same key, else empty."""
        self._acquire()
        folder = self.path / name
        content = key.encode(errors="surrogateescape")  # names of files in it may be any bytes
        with destination_errors(self._shown):
            key_path = folder / _KEY_NAME
            if not key_path.exists() or key_path.read_bytes() != content:
                remove_tree(folder, self._injector)
                make_directories(folder, self._injector)
                write_file(key_path, content, self._injector)
        return folder

    def kept_bytes(self, stages: str = "*") -> int:
        """What earlier runs left in stages (names, as a pattern): it is used again, or goes before its like is made."""
        statuses = [path.stat() for path in self.path.glob(f"{stages}/*")]
        # What a dataset has, too, frees nothing.
        return sum(512 * status.st_blocks for status in statuses if status.st_nlink == 1)

    def remove(self) -> None:
        """Remove everything, also what earlier runs left."""
        if self.path.is_dir():
            self._acquire()
            remove_tree(self.path, self._injector)

    def __enter__(self) -> WorkFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None and self._lock is not None:
                if any(self.path.glob("[!.]*/[!.]*")):
                    error.add_note(f"what is done is kept in {self.path}: run the same command again to go on")
                else:
                    remove_tree(self.path, self._injector)
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _acquire(self) -> None:
        if self._lock is None:
            with destination_errors(self._shown):
                make_directories(self.path, self._injector)
                self._lock = lock_directory(self.path, self._shown)
                for left in self.path.glob(".*/"):  # what queries of a run that was killed spilled
                    remove_tree(left, self._injector)


def run_tasks(
    tasks: Sequence[Task],
    folder: Path,
    tools: TaskTools,
    *,
    threads: int,
    pool_bytes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    count: Callable[[int], None] | None = None,
) -> None:
    """Make the outputs that are missing, `threads` at a time in all processes together; they are then on the disk.

    Where there is one at a time, or what tasks hold must stay, they are done by threads of this process. pool_bytes:
    memory that may be kept for tasks to come, of all processes; None: what the tools have. progress hears how many of
    how many are done, and count what tasks count. An error stops the rest (those that run are finished first, unless a
    signal ends this process and what workers do with it); that of the first task in the list that fails is raised,
    whatever the threads. Outputs finished until then stay.
    """
    missing = [task for task in tasks if not (folder / task.name).exists()]
    num_done = len(tasks) - len(missing)
    failed: list[int] = []
    if pool_bytes is not None:
        tools = replace(tools, pool=BufferPool(pool_bytes))
    if count is not None:
        tools = replace(tools, count=count)

    def report() -> None:
        if progress is not None:
            progress(num_done, len(tasks))

    report()
    with _opened(missing, folder, tools, min(threads, len(missing)), pool_bytes or 0) as (run_one, at_once):

        def run(number: int) -> None:
            nonlocal num_done
            # Those before one that failed are run: theirs may be the first error.
            if failed and min(failed) < number:
                return
            try:
                run_one(number)
            except BaseException:
                failed.append(number)
                raise
            num_done += 1

        if at_once <= 1:
            for number in range(len(missing)):
                run(number)
                report()
            return
        with ThreadPoolExecutor(at_once, thread_name_prefix="task") as pool:
            futures = [pool.submit(run, number) for number in range(len(missing))]
            running = set(futures)
            try:
                while running and not failed:
                    _, running = wait(running, return_when=FIRST_EXCEPTION, timeout=0.2)
                    report()
            except BaseException:
                failed.append(-1)
                if tools.workers is not None:
                    tools.workers.kill()
                raise
        for future in futures:
            future.result()


@contextlib.contextmanager
def _opened(
    tasks: Sequence[Task], folder: Path, tools: TaskTools, threads: int, pool_bytes: int
) -> Iterator[tuple[Callable[[int], None], int]]:
    """What makes the output of a task by its number, here or in a worker, and how many may be asked for at once."""
    stage = _Stage(tasks, folder, tools, pool_bytes)
    if tools.workers is None or min(tools.processes, threads) <= 1:
        yield partial(stage.run, count=tools.count), threads
        return
    with tools.workers.open(stage, folder, threads) as lanes:
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
        else:
            yield partial(stage.run, count=tools.count), threads


class _Stage:
    """See Job: the tasks of a stage by their numbers."""

    def __init__(self, tasks: Sequence[Task], folder: Path, tools: TaskTools, pool_bytes: int) -> None:
        self._tasks = tasks
        self._folder = folder
        self._tools = tools
        self._pool_bytes = pool_bytes

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """See Job."""
        _run(self._tasks[number], self._folder, replace(self._tools, count=count))

    def for_workers(self, share: Share) -> partial[_Stage]:
        """See Workers."""
        return partial(
            _stage_in_worker, self._tasks, self._folder, self._tools.engine, self._pool_bytes // share.processes
        )


def _stage_in_worker(tasks: Sequence[Task], folder: Path, engine: Engine, pool_bytes: int) -> _Stage:
    return _Stage(tasks, folder, TaskTools(engine, pool=BufferPool(pool_bytes)), pool_bytes)


def _run(task: Task, folder: Path, tools: TaskTools) -> None:
    path = folder / task.name
    partial = folder / f".{task.name}.partial"
    with destination_errors(path):
        partial.unlink(missing_ok=True)  # of a run that was killed
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

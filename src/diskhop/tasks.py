"""Heavy preparation as a list of tasks, kept across crashes: what is done stays done.

A *task* makes one file and may be done again at any time with the same result; it is plain data, so that any process
could do it. A *stage* is a folder of tasks' outputs with a *key*: text that everything in it depends on. The *work
folder* holds a destination's stages until it is complete: `.NAME.work` beside NAME.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
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

# What no task made, files of a stage and folders beside the stages, has a name that starts with a dot.
_KEY_NAME = ".key"


@dataclass(frozen=True, slots=True)
class Tools:
    """What a process lends its tasks: an engine, memory, and who hears of changes made without the engine."""

    engine: Engine
    injector: Injector | None = None
    pool: BufferPool = field(default_factory=lambda: BufferPool(0))


class Task(Protocol):
    """One file to make, from what the task's own fields name."""

    @property
    def name(self) -> str:
        """The file's name within the stage's folder; it does not start with a dot."""

    def write(self, path: Path, tools: Tools) -> None:
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


def run_tasks(
    tasks: Sequence[Task],
    folder: Path,
    tools: Tools,
    *,
    threads: int,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Make the outputs that are missing, `threads` at a time; they are then on the disk.

    progress hears how many of how many are done. The first error stops the rest (those that run are finished first) and
    is raised; outputs finished until then stay.
    """
    missing = [task for task in tasks if not (folder / task.name).exists()]
    num_done = len(tasks) - len(missing)
    stopped = Event()

    def run(task: Task) -> None:
        nonlocal num_done
        if stopped.is_set():
            return
        try:
            _run(task, folder, tools)
        except BaseException:
            stopped.set()
            raise
        num_done += 1

    def report() -> None:
        if progress is not None:
            progress(num_done, len(tasks))

    report()
    if threads == 1:
        for task in missing:
            run(task)
            report()
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="task") as pool:
        running = {pool.submit(run, task) for task in missing}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_EXCEPTION, timeout=0.2)
                for future in done:
                    future.result()
                report()
        finally:
            stopped.set()


def _run(task: Task, folder: Path, tools: Tools) -> None:
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

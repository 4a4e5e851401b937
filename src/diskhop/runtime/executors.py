"""The places where tasks run, by name: a kind of executor is one file and one line of EXECUTORS.

All executors make the same bytes. `--workers` says how many processes share `--memory` and `--threads`, equally.
"""

from __future__ import annotations

from collections.abc import Mapping

from diskhop._native import Engine
from diskhop.errors import ConfigError
from diskhop.runtime.array_driver import ArrayDriver
from diskhop.runtime.jobs import COPIED_ARRAY_BYTES, Executor, ExecutorKind, Resources, Threads
from diskhop.runtime.ray_tasks import RayTasks
from diskhop.runtime.workers import open_workers

EXECUTORS: Mapping[str, ExecutorKind] = {
    "threads": ExecutorKind(Threads),
    "processes": ExecutorKind(open_workers),
    "ray": ExecutorKind(RayTasks, takes_place=True),
    "array": ExecutorKind(ArrayDriver, takes_place=True),
}
SPELLINGS = "threads, processes, ray, ray:HOST:PORT or array:DIR"


def open_executor(
    choice: str,
    workers: int | None,
    *,
    threads: int,
    memory_bytes: int,
    engine: Engine,
    copied_array_bytes: int = COPIED_ARRAY_BYTES,
) -> Executor:
    """Return the executor of --executor and --workers; enter it before use.

    choice: a name of EXECUTORS, for some with a place after a colon; "": threads, or processes if workers > 1.
    workers: number of processes; None: chosen. Raises ConfigError.
    """
    name, colon, place = (choice or ("threads" if workers in (None, 1) else "processes")).partition(":")
    if name not in EXECUTORS or (colon and not (place and EXECUTORS[name].takes_place)):
        raise ConfigError(f"--executor '{choice}' is unknown; use {SPELLINGS}")
    return EXECUTORS[name].open(
        Resources(
            place=place,
            count=workers,
            threads=threads,
            memory_bytes=memory_bytes,
            engine=engine,
            copied_array_bytes=copied_array_bytes,
        )
    )

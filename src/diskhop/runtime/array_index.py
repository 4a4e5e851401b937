"""One index of an array job: runs parts of a command's tasks, which it finds in a folder (array_folder.py)."""

from __future__ import annotations

import json
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from diskhop.errors import ConfigError, DiskhopError, WorkerError
from diskhop.io.engine import open_engine
from diskhop.runtime.array_folder import (
    BEAT_FILE,
    DRIVER_FILE,
    FINISHED_FILE,
    JOB_FILE,
    LOST_SECONDS,
    POLL_SECONDS,
    JobFolder,
    is_open,
    name_of,
)
from diskhop.runtime.heartbeats import Heartbeats, HeartbeatWatch
from diskhop.runtime.plain import decode_job
from diskhop.runtime.process import work_in


class IndexWork(NamedTuple):
    """Work of an index. parts: parts that it ran; jobs: lists of tasks that it took part in."""

    parts: int
    jobs: int


def run_index(path: Path, index: int, of: int, *, lost_seconds: float = LOST_SECONDS) -> IndexWork:
    """Run parts of every job that a driver opens in a folder, until it ends; its own share first: index, index + of ...

    Works in the driver's working directory. Raises ConfigError for an invalid index, and for a driver of another
    version; WorkerError without a driver, or if it failed; the error of a part, which is left to the driver.
    """
    if of < 1 or not 0 <= index < of:
        raise ConfigError(f"--index {index} --of {of}: an index is from 0 to --of - 1; for example --index 0 --of 4")
    path = path.absolute()
    beats, watch = Heartbeats(), HeartbeatWatch(lost_seconds)
    name = name_of(f"index {index} of {of}")
    worked: dict[Path, int] = {}
    opened: tuple[JobFolder, int] | None = None
    try:
        while not (path / FINISHED_FILE).exists():
            if opened is None or not opened[0].is_open:
                opened = _open_next(path, beats, lost_seconds, name)
            if opened is not None:
                done = _run_parts(*opened, beats, index, of)
                worked[opened[0].path] = worked.get(opened[0].path, 0) + done
                if done:
                    continue
            if watch.is_lost(path / BEAT_FILE):
                raise WorkerError(
                    f"{path}: no command has been working here for {lost_seconds:.0f} s; run it with "
                    f"--executor array:{path}, then this again"
                )
            time.sleep(POLL_SECONDS)
    finally:
        beats.stop()
    if json.loads((path / FINISHED_FILE).read_bytes())["failed"]:
        raise WorkerError(f"{path}: the command failed; run it again, then this")
    return IndexWork(sum(worked.values()), sum(done > 0 for done in worked.values()))


def _open_next(path: Path, beats: Heartbeats, lost_seconds: float, name: str) -> tuple[JobFolder, int] | None:
    """Return the job that is open, and its number of lanes; None for none."""
    try:
        driver = json.loads((path / DRIVER_FILE).read_bytes())
        folder = max((each for each in path.iterdir() if is_open(each)), default=None)
        if folder is None:
            return None
        facts = json.loads((folder / JOB_FILE).read_bytes())
    except FileNotFoundError:
        return None
    here = version("diskhop")
    if driver["diskhop"] != here:
        raise ConfigError(
            f"{path}: the command runs diskhop {driver['diskhop']}, this is {here}; install the same version"
        )
    work_in(driver["folder"])
    try:
        job = decode_job(facts["job"], open_engine(*facts["engine"]).engine)
    except (DiskhopError, OSError):
        if is_open(folder):
            raise
        return None  # the driver has closed the job, and removed its files
    return JobFolder(folder, job, beats, lost_seconds, name), facts["lanes"]


def _run_parts(job: JobFolder, num_lanes: int, beats: Heartbeats, index: int, of: int) -> int:
    """Run the parts that no process has, until none is left; return how many. Raises the first error."""
    try:
        pending = sorted(job.pending(), key=lambda number: ((number - index) % of, number))
    except FileNotFoundError:  # the driver began again
        return 0
    numbers, lock, errors = iter(pending), threading.Lock(), list[BaseException]()
    done = 0

    def take() -> int | None:
        with lock:
            return next(numbers, None) if job.is_open and not errors else None

    def work() -> None:
        nonlocal done
        while (number := take()) is not None:
            try:
                if job.claim(number):
                    job.run(number)
                    with lock:
                        done += 1
            except BaseException as error:
                if job.is_open:  # else the driver has ended, or begun again
                    errors.append(error)

    # A scheduler that ends this process does not wait for its parts, which others then claim.
    lanes = [threading.Thread(target=work, name=f"lane-{number}", daemon=True) for number in range(num_lanes)]
    for lane in lanes:
        lane.start()
    try:
        for lane in lanes:
            lane.join()
    except BaseException as error:
        errors.append(error)
        beats.remove_files()
        raise
    if errors:
        raise errors[0]
    return done

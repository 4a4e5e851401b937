"""A folder that the tasks of a command are shared through: the *driver* is the command, *indices* are an array job's.

The driver opens one list of tasks after the other as a folder, with the job as plain data (plain.py). Driver and
indices *claim* parts by files that only one can create, run them, and mark them as done. The driver works, too, so it
needs no index; an index may start, end or die at any time, and a part may run twice. Only the driver commits.

    DIR/driver.json    version of diskhop and working directory; `beat` next to it is touched while the driver runs
    DIR/0007/job.json  job, number of parts, lanes per index
    DIR/0007/claim-17  part 17 is being run; touched while what runs it is alive
    DIR/0007/done-17   part 17 is finished; contains what it counted
    DIR/0007/failed-17 part 17 failed in an index, so the driver runs it
    DIR/finished       the driver has ended
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from diskhop.errors import ConfigError, WorkerError
from diskhop.io.atomic import destination_errors
from diskhop.io.engine import open_engine
from diskhop.runtime.jobs import Job, Lane, Resources, copied
from diskhop.runtime.plain import decode_job, encode_job

# Who leaves files untouched for this long is taken for dead.
LOST_SECONDS = 60.0
_BEAT_SECONDS = 2.0
_POLL_SECONDS = 0.1
_DRIVER, _BEAT, _FINISHED, _JOB, _CLOSED = "driver.json", "beat", "finished", "job.json", "closed"


class _Beats:
    """Touches files while this process works on them."""

    def __init__(self) -> None:
        self._paths: set[Path] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="beats", daemon=True)
        self._thread.start()

    def add(self, path: Path) -> None:
        """Touch a file from now on."""
        self._paths.add(path)

    def remove(self, path: Path) -> None:
        """Touch it no more."""
        self._paths.discard(path)

    def remove_files(self) -> None:
        """Remove the files, whose work will not be finished."""
        for path in list(self._paths):
            path.unlink(missing_ok=True)

    def end(self) -> None:
        """Stop."""
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(_BEAT_SECONDS):
            for path in list(self._paths):
                with contextlib.suppress(OSError):
                    os.utime(path)


class _Watched:
    """Tells which files are no longer touched, by this process's clock: those of machines differ."""

    def __init__(self, lost_seconds: float) -> None:
        self._lost_seconds = lost_seconds
        self._seen: dict[Path, tuple[int, float]] = {}

    def is_lost(self, path: Path) -> bool:
        """Return whether a file has stayed untouched for too long since it was first asked for."""
        now = time.monotonic()
        try:
            touched = path.stat().st_mtime_ns
        except FileNotFoundError:
            touched = 0
        last, since = self._seen.get(path, (-1, now))
        if touched != last:
            self._seen[path] = (touched, now)
            return False
        return now - since > self._lost_seconds


class OpenJob:
    """The folder of one job.

    num_parts: parts of the job. beats: of this process. name: of this process, for people who look into a claim.
    """

    def __init__(self, path: Path, job: Job, num_parts: int, beats: _Beats, lost_seconds: float, name: str) -> None:
        self.path = path
        self.num_parts = num_parts
        self._job = job
        self._beats = beats
        self._watched = _Watched(lost_seconds)
        self.name = name

    @property
    def is_closed(self) -> bool:
        """Whether the driver has closed it, or begun again."""
        return (self.path / _CLOSED).exists() or not (self.path / _JOB).exists()

    def is_done(self, number: int) -> bool:
        """Return whether a part is finished."""
        return self._mark("done", number).exists()

    def pending(self) -> set[int]:
        """Return the parts that are neither finished nor failed in an index."""
        names = {entry.name for entry in os.scandir(self.path)}
        return {
            number
            for number in range(self.num_parts)
            if f"done-{number}" not in names and f"failed-{number}" not in names
        }

    def counted(self, number: int) -> int:
        """Return what a finished part counted."""
        return int(json.loads(self._mark("done", number).read_bytes())["counted"])

    def claim(self, number: int) -> bool:
        """Claim a part, unless it is finished, or somebody who is alive has claimed it."""
        claim = self._mark("claim", number)
        if not self._create(claim):
            if not self._watched.is_lost(claim):
                return False
            # Of several who find that it is lost, mostly one gets it; that two run a part is harmless.
            with contextlib.suppress(FileNotFoundError):
                claim.rename(claim.with_name(f".{claim.name}-{uuid.uuid4().hex}"))
            if not self._create(claim):
                return False
        if self.is_done(number):
            # Whoever finished it marks it before the claim goes: only now is it certain that it is still open.
            claim.unlink(missing_ok=True)
            return False
        self._beats.add(claim)
        return True

    def run(self, number: int) -> None:
        """Run a claimed part, and mark it. Raises its error."""
        counted = 0

        def count(done: int) -> None:
            nonlocal counted
            counted += done

        try:
            self._job.run(number, count)
        except BaseException:
            self._write("failed", number, {"by": self.name})
            raise
        else:
            self._write("done", number, {"by": self.name, "counted": counted})
        finally:
            claim = self._mark("claim", number)
            self._beats.remove(claim)
            claim.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Give up the claims of this process."""
        self._beats.remove_files()

    def _mark(self, what: str, number: int) -> Path:
        return self.path / f"{what}-{number}"

    def _create(self, path: Path) -> bool:
        try:
            with path.open("x") as file:
                file.write(self.name)
        except FileExistsError:
            return False
        return True

    def _write(self, what: str, number: int, content: dict[str, Any]) -> None:
        _write_whole(self._mark(what, number), content)


class ArrayDriver:
    """The executor of the driver. use.place: the folder. use.count: processes that share the memory; default: two.

    Each process takes an equal part of memory and threads: two are the driver and one index on its machine.
    """

    def __init__(self, use: Resources, lost_seconds: float = LOST_SECONDS) -> None:
        if not use.place:
            raise ConfigError("--executor array needs a folder that all machines share; for example array:tasks")
        self.count = 2 if use.count is None else use.count
        if self.count < 2:
            raise ConfigError(
                f"--workers {self.count} must be at least 2 with --executor array: driver and indices share --memory"
            )
        self._path = Path(use.place)
        self._lanes = max(1, use.threads // self.count)
        self._engine = use.engine
        self._copied_array_bytes = use.copied_array_bytes
        self._lost_seconds = lost_seconds
        self._num_jobs = 0
        self._beats: _Beats | None = None
        self._killed = threading.Event()

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
                engine = "auto" if self._engine.name == "uring" else self._engine.name
                facts = {"parts": job.num_parts, "lanes": lanes, "engine": engine, "depth": self._engine.depth}
                _write_whole(path / _JOB, {**facts, "job": content})
            opened = OpenJob(path, job, job.num_parts, self._beats, self._lost_seconds, _name_of("driver"))
            try:
                yield [_DriverLane(opened, self._killed) for _ in range(lanes)]
            finally:
                with destination_errors(path):
                    (path / _CLOSED).touch()

    def kill(self) -> None:
        """See Executor: lanes wait no longer; indices finish their parts."""
        self._killed.set()

    def __enter__(self) -> ArrayDriver:
        with destination_errors(self._path):
            if self._path.exists() and any(self._path.iterdir()) and not (self._path / _DRIVER).exists():
                raise ConfigError(f"--executor array:{self._path}: has other files; name a new folder")
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists():  # indices of an interrupted command may still write there
                earlier = self._path.with_name(f".{self._path.name}-{uuid.uuid4().hex}")
                self._path.rename(earlier)
                shutil.rmtree(earlier, ignore_errors=True)
            self._path.mkdir()
            (self._path / _BEAT).touch()
            _write_whole(self._path / _DRIVER, {"diskhop": version("diskhop"), "folder": str(Path.cwd())})
        self._beats = _Beats()
        self._beats.add(self._path / _BEAT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._beats is not None, "it is entered"
        self._beats.end()
        with destination_errors(self._path):
            _write_whole(self._path / _FINISHED, {"failed": error is not None})


class _DriverLane:
    """Runs parts in the driver, or waits for indices; runs other open parts meanwhile."""

    def __init__(self, job: OpenJob, killed: threading.Event) -> None:
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
                time.sleep(_POLL_SECONDS)
        count(self._job.counted(number))

    def _help(self) -> bool:
        """Run a part that no one has. A part that fails is run again by the lane that must report the error."""
        for number in sorted(self._job.pending()):
            if self._job.claim(number):
                with contextlib.suppress(Exception):
                    self._job.run(number)
                return True
        return False


# -- in the indices --


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
    beats, watched = _Beats(), _Watched(lost_seconds)
    name = _name_of(f"index {index} of {of}")
    worked: dict[Path, int] = {}
    opened: tuple[OpenJob, int] | None = None
    try:
        while not (path / _FINISHED).exists():
            if opened is None or opened[0].is_closed:
                opened = _open_next(path, beats, lost_seconds, name)
            if opened is not None:
                done = _run_parts(*opened, index, of)
                worked[opened[0].path] = worked.get(opened[0].path, 0) + done
                if done:
                    continue
            if watched.is_lost(path / _BEAT):
                raise WorkerError(
                    f"{path}: no command has been working here for {lost_seconds:.0f} s; run it with "
                    f"--executor array:{path}, then this again"
                )
            time.sleep(_POLL_SECONDS)
    finally:
        beats.end()
    if json.loads((path / _FINISHED).read_bytes())["failed"]:
        raise WorkerError(f"{path}: the command failed; run it again, then this")
    return IndexWork(sum(worked.values()), sum(done > 0 for done in worked.values()))


def _open_next(path: Path, beats: _Beats, lost_seconds: float, name: str) -> tuple[OpenJob, int] | None:
    """Return the job that is open, and its number of lanes; None for none."""
    try:
        driver = json.loads((path / _DRIVER).read_bytes())
        folders = sorted(each for each in path.iterdir() if (each / _JOB).exists() and not (each / _CLOSED).exists())
        if not folders:
            return None
        facts = json.loads((folders[-1] / _JOB).read_bytes())
    except FileNotFoundError:
        return None
    here = version("diskhop")
    if driver["diskhop"] != here:
        raise ConfigError(
            f"{path}: the command runs diskhop {driver['diskhop']}, this is {here}; install the same version"
        )
    try:
        os.chdir(driver["folder"])
    except OSError as error:
        raise ConfigError(
            f"{driver['folder']}: {error.strerror}; the command runs there: run it in a folder that all machines share"
        ) from error
    job = decode_job(facts["job"], open_engine(facts["engine"], facts["depth"]).engine)
    return OpenJob(folders[-1], job, facts["parts"], beats, lost_seconds, name), facts["lanes"]


def _run_parts(job: OpenJob, num_lanes: int, index: int, of: int) -> int:
    """Run the parts that no one has, until none is left; return how many. Raises the first error."""
    try:
        pending = sorted(job.pending(), key=lambda number: ((number - index) % of, number))
    except FileNotFoundError:  # the driver began again
        return 0
    numbers, lock, errors = iter(pending), threading.Lock(), list[BaseException]()
    done = 0

    def take() -> int | None:
        with lock:
            return None if errors or job.is_closed else next(numbers, None)

    def work() -> None:
        nonlocal done
        while (number := take()) is not None:
            try:
                if job.claim(number):
                    job.run(number)
                    with lock:
                        done += 1
            except BaseException as error:
                if not job.is_closed:  # the driver may have ended, or begun again
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
        job.abandon()
        raise
    if errors:
        raise errors[0]
    return done


def _name_of(role: str) -> str:
    return f"{role}, process {os.getpid()} on {platform.node()}"


def _write_whole(path: Path, content: dict[str, Any]) -> None:
    """Write a file that appears whole."""
    unnamed = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    unnamed.write_text(json.dumps(content))
    unnamed.replace(path)

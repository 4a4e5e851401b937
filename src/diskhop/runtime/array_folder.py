"""A folder that the tasks of a command are shared through: the *driver* is the command, *indices* are an array job's.

The driver (array_driver.py) opens one list of tasks after the other as a folder, with the job as plain data (plain.py).
Driver and indices (array_index.py) *claim* parts by files that only one can create, run them, and mark them as done.
The driver works, too, so it needs no index; an index may start, end or die at any time, and a part may run twice. Only
the driver commits.

    DIR/driver.json    version of diskhop and working directory; `beat` next to it is touched while the driver runs
    DIR/0007/job.json  job, lanes per index, I/O engine
    DIR/0007/claim-17  part 17 is being run; touched while what runs it is alive
    DIR/0007/done-17   part 17 is finished; contains what it counted
    DIR/0007/failed-17 part 17 failed in an index, so the driver runs it
    DIR/0007/closed    the job has ended
    DIR/finished       the driver has ended
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import uuid
from pathlib import Path
from typing import Any

from diskhop.runtime.heartbeats import Heartbeats, HeartbeatWatch
from diskhop.runtime.jobs import Job, run_counted

DRIVER_FILE, BEAT_FILE, FINISHED_FILE = "driver.json", "beat", "finished"
JOB_FILE, CLOSED_FILE = "job.json", "closed"
# A process that leaves its files untouched for this long is taken for dead.
LOST_SECONDS = 60.0
POLL_SECONDS = 0.1


class JobFolder:
    """The folder of one job, as one process sees it.

    beats: heartbeats of the process.
    lost_seconds: see LOST_SECONDS.
    name: of the process, for people who look into a claim.
    """

    def __init__(self, path: Path, job: Job, beats: Heartbeats, lost_seconds: float, name: str) -> None:
        self.path = path
        self.name = name
        self._job = job
        self._beats = beats
        self._watch = HeartbeatWatch(lost_seconds)

    @property
    def is_open(self) -> bool:
        """Whether the driver still works on the job."""
        return is_open(self.path)

    def is_done(self, number: int) -> bool:
        """Return whether a part is finished."""
        return self._mark("done", number).exists()

    def pending(self) -> set[int]:
        """Return the parts that are neither finished nor failed in an index."""
        names = {entry.name for entry in os.scandir(self.path)}
        return {
            number
            for number in range(self._job.num_parts)
            if f"done-{number}" not in names and f"failed-{number}" not in names
        }

    def counted(self, number: int) -> int:
        """Return what a finished part counted."""
        return int(json.loads(self._mark("done", number).read_bytes())["counted"])

    def claim(self, number: int) -> bool:
        """Claim a part, unless it is finished, or a process that is alive has claimed it."""
        claim = self._mark("claim", number)
        if not self._create(claim):
            if not self._watch.is_lost(claim):
                return False
            # Of several that find it lost, mostly one gets it; that two run a part is harmless.
            with contextlib.suppress(FileNotFoundError):
                claim.rename(claim.with_name(f".{claim.name}-{uuid.uuid4().hex}"))
            if not self._create(claim):
                return False
        if self.is_done(number):
            # A finished part is marked before its claim goes: only now is it certain that this one is still open.
            claim.unlink(missing_ok=True)
            return False
        self._beats.add(claim)
        return True

    def run(self, number: int) -> None:
        """Run a claimed part, and mark it. Raises its error."""
        try:
            counted = run_counted(self._job, number)
        except BaseException:
            self._write("failed", number)
            raise
        else:
            self._write("done", number, counted=counted)
        finally:
            claim = self._mark("claim", number)
            self._beats.remove(claim)
            claim.unlink(missing_ok=True)

    def _mark(self, what: str, number: int) -> Path:
        return self.path / f"{what}-{number}"

    def _create(self, path: Path) -> bool:
        try:
            with path.open("x") as file:
                file.write(self.name)
        except FileExistsError:
            return False
        return True

    def _write(self, what: str, number: int, **facts: Any) -> None:
        write_whole(self._mark(what, number), {"by": self.name, **facts})


def is_open(path: Path) -> bool:
    """Return whether a folder has a job that the driver still works on; a driver that begins again removes it."""
    return (path / JOB_FILE).exists() and not (path / CLOSED_FILE).exists()


def name_of(role: str) -> str:
    """Return the name of this process for people."""
    return f"{role}, process {os.getpid()} on {platform.node()}"


def write_whole(path: Path, content: dict[str, Any]) -> None:
    """Write a file that appears whole; what a power cut takes away is written again."""
    unnamed = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    unnamed.write_text(json.dumps(content))
    unnamed.replace(path)

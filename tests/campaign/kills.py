"""Processes that end at random moments, by SIGKILL or by a power cut, and are started again until the work is done.

One process, which has imported everything and has one thread, forks a child for each start: a kill costs a fraction of
a second. What the last child leaves must be what one that was never stopped leaves, with nothing next to it.
"""

from __future__ import annotations

import functools
import math
import mmap
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import numpy as np

from diskhop._native import CrashError
from tests.campaign.cases import Case, Tries
from tests.campaign.stage import Place, Stage
from tests.campaign.stages import STAGES
from tests.forks import start, wait
from tests.power_cuts import PowerCut

# Tries with each kind of import, and with each other stage, whose ways share them.
NUM_TRIES = 200
# With each way at least.
LEAST_TRIES = 50
# Of a run, before it is left alone.
MOST_KILLS_PER_RUN = 4
MOST_SECONDS = 120


class StageError(Exception):
    """A stage that failed, or whose result is not right."""


class Runs:
    """Runs of one stage, each in the same folder, which is emptied in between.

    is_cut: whether they end by power cuts, which all their changes are announced to.
    """

    def __init__(self, stage: Stage, folder: Path, *, is_cut: bool) -> None:
        self.stage, self._folder, self._is_cut = stage, folder, is_cut
        self.out, self._after, self._scratch = (folder / name for name in ("out", "after", "scratch"))
        self._errors = folder / "errors"
        # Of children: batches trained, changes made, and the most batches between two commits.
        self._counts = np.frombuffer(mmap.mmap(-1, 24), np.int64)
        (folder / "inputs").mkdir()
        self._wait(self._fork(lambda: stage.prepare(folder / "inputs")))
        self.seconds = min(self._whole() for _ in range(2))
        self.num_batches, self.num_changes, between = self._counts.tolist()
        self._interval = between if stage.commit else stage.interval
        self._expected, self._names = stage.result(self.out), stage.names(self.out)

    @property
    def is_done(self) -> bool:
        """Whether the results are there: the stage is not started again."""
        return bool(self.stage.done) and any(self.out.glob(self.stage.done))

    def begin(self) -> None:
        """Prepare the folders for a new run."""
        for path in (self.out, self._scratch):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
        self.stage.begin(self._folder / "inputs", self.out)
        self._counts[:] = 0

    def kill(self, seconds: float) -> bool:
        """Start the stage, and kill its process after these seconds. Returns False if it has ended before."""
        child = self._fork(self._work)
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        code = wait(child)
        if code not in (0, -signal.SIGKILL):
            self._fail(code)
        return code != 0

    def cut(self, nth: int, draws: random.Random) -> None:
        """Start the stage, and cut the power before its nth change, or after the last one."""
        shutil.rmtree(self._after, ignore_errors=True)
        self._after.mkdir()

        def work() -> None:
            power = PowerCut(self.out, nth)
            try:
                self._work(power)
            except BaseException as error:
                if not (power.is_cut or isinstance(error, CrashError)):
                    raise
            power.write_torn(self._after, draws)

        self._wait(self._fork(work))
        shutil.rmtree(self.out)
        self._after.rename(self.out)

    def finish(self, num_kills: int) -> None:
        """Start the stage once more, unless it is done, and check what it leaves. Raises StageError."""
        was_done = self.is_done

        def work() -> None:
            if not was_done:
                self._work()
            self.stage.check(self.out)

        self._wait(self._fork(work))
        if was_done:
            # Work is removed once the results are there: a kill between them leaves both.
            for path in list(self.out.rglob(".*.work")):
                shutil.rmtree(path)
        found = self.stage.result(self.out)
        if wrong := sorted(name for name in {*found, *self._expected} if found.get(name) != self._expected.get(name)):
            raise StageError(f"other bytes: {', '.join(wrong)}")
        names = self.stage.names(self.out)
        if names != self._names:
            raise StageError(f"other files: {', '.join(sorted(names ^ self._names))}")
        lost = int(self._counts[0]) - self.num_batches
        if not 0 <= lost <= num_kills * self._interval:
            raise StageError(
                f"{lost} batches were trained again after {num_kills} kills, with commits every {self._interval}"
            )

    def _whole(self) -> float:
        self.begin()
        started = time.monotonic()
        self._wait(self._fork(self._work))
        return time.monotonic() - started

    def _work(self, power: PowerCut | None = None) -> None:
        """Do the stage in this process; no power cut: one that never comes."""

        commit, last, since = self.out / self.stage.commit, None, 0

        def count() -> None:
            nonlocal last, since
            self._counts[0] += 1
            if self.stage.commit:
                status = commit.stat() if commit.exists() else None
                now = None if status is None else (status.st_ino, status.st_mtime_ns)
                last, since = now, (since if now == last else 0) + 1
                self._counts[2] = max(self._counts[2], since)

        if power is None and self._is_cut:
            power = PowerCut(self.out, 0)
        try:
            self.stage.run(Place(self._folder / "inputs", self.out, self._scratch, power, count))
        finally:
            self._counts[1] = 0 if power is None else power.num_changes

    def _fork(self, action: Callable[[], object]) -> int:
        def act() -> None:
            errors = os.open(self._errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            os.dup2(errors, 1)
            os.dup2(errors, 2)
            action()

        return start(act, MOST_SECONDS)

    def _wait(self, child: int) -> None:
        if code := wait(child):
            self._fail(code)

    def _fail(self, code: int) -> None:
        lines = self._errors.read_text(errors="replace").splitlines()
        raise StageError(f"a process ended with {code}: {lines[-1] if lines else 'it says nothing'}")


def tries_of(stage: Stage, is_cut: bool, tries: Tries) -> Generator[str]:
    """Kill or cut off runs of a stage; each counts once, and a failure of a run counts for its last one."""
    try:
        runs = Runs(stage, tries.folder, is_cut=is_cut)
    except StageError as error:
        yield f"the run that nothing stops: {error}"
        return
    number, num_runs = tries.first, 0
    while number < tries.first + tries.count:
        draws, num_runs = tries.draws(f"{stage.name} {num_runs}", number), num_runs + 1
        most = min(draws.randint(1, MOST_KILLS_PER_RUN), tries.first + tries.count - number)
        num_kills, failure = 0, ""
        runs.begin()
        try:
            for _ in range(most):
                if is_cut:
                    runs.cut(draws.randint(1, runs.num_changes), draws)
                elif not runs.kill(draws.uniform(0, runs.seconds)):
                    break
                num_kills += 1
                if runs.is_done:
                    break
            runs.finish(num_kills)
        except StageError as error:
            failure = str(error)
            num_kills = max(1, num_kills)
        number += num_kills
        for last in range(num_kills - 1, -1, -1):
            yield "" if last else failure


def shared_by(stage: Stage) -> str:
    """Return what shares its tries with this stage: 'train', or the name of a kind of import."""
    return stage.name if stage.name.startswith("import") else stage.name.replace(",", "").split()[0]


def cases_of(stages: Sequence[Stage]) -> Iterator[Case]:
    num_ways = Counter(shared_by(stage) for stage in stages)
    for stage in stages:
        count = max(LEAST_TRIES, math.ceil(NUM_TRIES / num_ways[shared_by(stage)]))
        yield Case("SIGKILL", stage.name, count, functools.partial(tries_of, stage, False))
        if stage.takes_cuts:
            yield Case("power cut", stage.name, count, functools.partial(tries_of, stage, True))


CASES: Sequence[Case] = tuple(cases_of(STAGES))

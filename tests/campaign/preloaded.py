"""A process with faulty_calls.cpp and LeakSanitizer loaded, whose forked children run jobs that meet faults.

    python -m tests.campaign.preloaded MODULE FOLDER FIRST COUNT SEED ARGUMENT...

calls `tries(server, tries, *arguments)` of the module, and prints the outcome of each try as a line of JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import diskhop
from diskhop.derived.scratch import scratch_folder
from tests.campaign import leaks
from tests.campaign.cases import Tries
from tests.campaign.children import Ended, run_in_child, start_child, wait_for
from tests.campaign.jobs import JOBS, Job

SOURCE = Path(__file__).with_name("faulty_calls.cpp")
# Of one run of a job; a job takes about one.
PATIENCE_SECONDS = 120.0


def build_library(folder: Path) -> Path:
    """Compile the library of failing calls. Raises RuntimeError with what the compiler says."""
    library = folder / "libfaulty_calls.so"
    # With frame pointers the sanitizer knows who calls its operator new.
    options = ["-O2", "-std=c++20", "-fPIC", "-fno-omit-frame-pointer", "-shared"]
    command = ["g++", *options, "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return library


def run_preloaded(module: str, tries: Tries, *arguments: str) -> Generator[str]:
    """Make tries in a process with the library; see Case.run. One that ends the process is a failure."""
    library = build_library(tries.folder)
    number = 0
    while number < tries.count:
        place = tries.folder / f"from-{number}"
        place.mkdir()
        numbers = [str(each) for each in (tries.first + number, tries.count - number, tries.seed)]
        words = [sys.executable, "-m", "tests.campaign.preloaded", module, str(place), *numbers, *arguments]
        changes = {
            # In this order, so that operator new is the library's, which the sanitizer has one of, too.
            "LD_PRELOAD": f"{library} {leaks.sanitizer()}",
            # Threads of OpenMP do not survive a fork.
            "OMP_NUM_THREADS": "1",
            **leaks.environment(place),
        }
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, **changes}) as server:
            assert server.stdout is not None
            before = number
            try:
                for line in server.stdout:
                    yield json.loads(line)
                    number += 1
            finally:
                server.kill()
        shutil.rmtree(place, ignore_errors=True)
        if number < tries.count:
            yield f"the process that forks children ended with code {server.returncode}"
            number += 1
            if number == before + 1:
                raise RuntimeError(f"{' '.join(words)}: makes no tries")


class Server:
    """Runs a job in forked children. The process has loaded all modules, and has one thread."""

    def __init__(self, job: Job, folder: Path, *, engine: str = "threads") -> None:
        self.job, self.folder = job, folder
        self.library = ctypes.CDLL(None)
        self._engine = engine
        # Whether a line about a fault need not name a file.
        self.names_nothing = False
        # Called in a child once a job has ended there.
        self.at_end: Callable[[], object] = lambda: None
        self._leaks = leaks.Leaks(self.library, folder)
        self.inputs = folder / "inputs"
        self.inputs.mkdir()
        # A child that loads PyTorch would take seconds.
        for module in walk_packages(diskhop.__path__, "diskhop."):
            if not module.name.endswith("__main__"):
                with contextlib.suppress(ImportError):
                    import_module(module.name)
        self._in_child(lambda: job.prepare(self.inputs))
        self.expected: dict[str, bytes] = {}
        self._names: set[str] = set()

    @property
    def root(self) -> Path:
        """The folder that a run works in."""
        return self.folder / "root"

    def names(self) -> set[str]:
        """Files and folders in it."""
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*")}

    def begin(self) -> None:
        """Empty it."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()

    def run(
        self,
        words: Callable[[Path, Path], list[str]],
        arm: Callable[[], object] = lambda: None,
        patience: float = PATIENCE_SECONDS,
        *,
        checks_leaks: bool = False,
    ) -> Ended:
        """Run a command in a child. arm: called there before. patience: seconds that it may take."""
        return self.end_of(self.start(words, arm, checks_leaks=checks_leaks), patience)

    def start(
        self,
        words: Callable[[Path, Path], list[str]],
        arm: Callable[[], object] = lambda: None,
        told: str = "told",
        *,
        checks_leaks: bool = False,
    ) -> int:
        """Start a command in a child and return its number. told: name of the file for what it says."""

        def action() -> int:
            self._choose_engine()
            arm()
            code = self._command(words)
            self.at_end()
            if checks_leaks:
                self._leaks.check()
            return code

        return start_child(action, self.folder / told)

    def end_of(self, child: int, patience: float = PATIENCE_SECONDS, told: str = "told") -> Ended:
        """Wait for a command's end."""
        code = wait_for(child, patience)
        return Ended(code, (self.folder / told).read_text(errors="replace"))

    def run_without_fault(self, arm: Callable[[], object] = lambda: None) -> None:
        """Run the job as it should be. arm: called there before."""
        self.begin()
        ended = self.run(self.job.words, arm, checks_leaks=True)
        if ended.code != 0:
            raise RuntimeError(f"without a fault: {ended}")
        self.expected = self.job.result(self.root)
        self._names = self.names()
        self._leaks.expect()

    def run_with_fault(self, arm: Callable[[], object]) -> str:
        """Run the job with a fault, then what completes it. Returns "" or what is wrong."""
        self.begin()
        ended = self.run(self.job.words, arm, checks_leaks=True)
        # Read whatever happened, so that a report never counts for a later try.
        leaked = self._leaks.found()
        if wrong := wrong_end(ended) or leaked:
            return wrong
        if ended.code and str(self.folder) not in last_line(ended.told) and not self.names_nothing:
            return f"names no file: {last_line(ended.told)}"
        return self.complete(ended)

    def complete(self, ended: Ended) -> str:
        """Complete what a command that ended left behind. Returns "" or what is wrong with it."""
        if any(self.root.glob(self.job.made)) and (wrong := self.difference()):
            return f"after exit code {ended.code}: {wrong}"
        if ended.code:
            again = self.run(self.job.again)
            if again.code:
                return f"not completed after '{last_line(ended.told)}': {again.code}: {last_line(again.told)}"
            if wrong := self.difference():
                return f"once completed: {wrong}"
        # A run that could not remove its folder there leaves it to the next one, which begins as here.
        if (scratch := self.root / "scratch").exists():
            with scratch_folder(scratch):
                pass
        spare = self.names() - self._names
        return f"left behind: {', '.join(sorted(spare))}" if spare else ""

    def difference(self) -> str:
        """Return how the result differs from one without a fault; "" for equal bytes.

        What a failing command has left of its work does not count: it may have failed once the result was there.
        """
        found = {name: content for name, content in self.job.result(self.root).items() if ".work/" not in name}
        wrong = [name for name in {*found, *self.expected} if found.get(name) != self.expected.get(name)]
        return f"other bytes: {', '.join(sorted(wrong))}" if wrong else ""

    def _choose_engine(self) -> None:
        if self._engine == "threads":
            engines: Any = import_module("diskhop.io.engine")
            engines.why_no_uring = lambda: "the campaign wants threads"

    def _command(self, words: Callable[[Path, Path], list[str]]) -> int:
        return int(import_module("diskhop.cli.app").run(words(self.inputs, self.root)))

    def _in_child(self, action: Callable[[], object]) -> None:
        ended = run_in_child(lambda: int(action() == 1), self.folder / "told", 10 * PATIENCE_SECONDS)
        if ended.code != 0:
            raise RuntimeError(f"without a fault: {ended}")


def wrong_end(ended: Ended) -> str:
    """Return what is wrong with how a command has ended; "" for success, or one line."""
    if ended.code is None:
        return f"does not end: {last_line(ended.told)}"
    if ended.code < 0:
        return f"ended by {signal.Signals(-ended.code).name}: {last_line(ended.told)}"
    if "Traceback" in ended.told or ended.code not in (0, 1, 2):
        return f"a traceback: {last_line(ended.told)}"
    if ended.code and not last_line(ended.told).startswith("diskhop: "):
        return f"exit code {ended.code} without a line: {last_line(ended.told)}"
    return ""


def last_line(told: str) -> str:
    lines = told.strip().splitlines()
    return lines[-1].strip() if lines else "(no word)"


def main() -> None:
    module, folder, first, count, seed, *arguments = sys.argv[1:]
    tries = Tries(int(first), int(count), int(seed), Path(folder))
    for outcome in import_module(module).tries_of(tries, *arguments):
        print(json.dumps(outcome), flush=True)


def job_named(name: str) -> Job:
    return next(job for job in JOBS if job.name == name)


if __name__ == "__main__":
    main()

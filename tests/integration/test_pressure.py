"""Waits for memory in a real control group: a run says so in one line, with its own figures."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diskhop.cli import app
from diskhop.system.limits import GROUPS
from tests.runs import small_graph

MB = 10**6
# Reads a mapped file again and again: pages of all programs there give way. They count for who reads them first.
BALLAST = """
import mmap, os, sys
with open(sys.argv[1], "r+b") as file:
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    content = mmap.mmap(file.fileno(), 0)
while True:
    sum(content[place] for place in range(0, len(content), 4096))
"""


@contextmanager
def made(*groups: Path) -> Iterator[None]:
    """Make control groups; skip the test where that is not allowed."""
    try:
        for group in groups:
            group.mkdir()
        yield
    except OSError as error:
        pytest.skip(f"control groups cannot be made here: {error}")
    finally:
        for group in filter(Path.exists, groups):
            for _ in range(100):
                try:
                    group.rmdir()
                    break
                except OSError:  # busy until some time after its last process has ended
                    signal.sigtimedwait([], 0.1)


@contextmanager
def short_group(limit_bytes: int) -> Iterator[list[Path]]:
    """Make a group whose processes have to wait for memory above a limit; yield the folders to join.

    Version 1 has no `memory.high`: its processes wait at their limit while pages of files are given up.
    """
    name = f"diskhop-test-{os.getpid()}"
    unified = next((each for each in (GROUPS, GROUPS / "unified") if (each / "cgroup.controllers").exists()), None)
    if unified is None:
        pytest.skip("this kernel has no control groups of version 2, which count waits")
    group, old = unified / name, GROUPS / "memory" / name
    is_old = "memory" not in (unified / "cgroup.controllers").read_text().split()
    with made(group, *([old] if is_old else [])):
        if not (group / "memory.pressure").exists():
            pytest.skip("this kernel does not count waits")
        limit = old / "memory.limit_in_bytes" if is_old else group / "memory.high"
        if not limit.exists():
            pytest.skip(f"{limit} does not exist")
        limit.write_text(str(limit_bytes))
        yield [group, old] if is_old else [group]


def start(folders: list[Path], *command: str) -> subprocess.Popen[str]:
    """Start a command in control groups."""
    joining = " && ".join(f"echo $$ > {folder}/cgroup.procs" for folder in folders)
    script = ["sh", "-c", f'{joining} && exec "$@"', "sh", *command]
    return subprocess.Popen(script, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_run_that_waits_for_memory_says_so(tmp_path: Path) -> None:
    graph = small_graph(tmp_path / "graph").path
    file = tmp_path / "file"
    file.write_bytes(bytes(600 * MB))
    options = ["--model", "dot", "--dim", "32", "--epochs", "100000", "--no-eval", "--memory", "100MB"]
    with short_group(600 * MB) as folders:
        ballast = start(folders, sys.executable, "-c", BALLAST, str(file))
        command = [sys.executable, "-m", "diskhop", "embed", str(graph), *options]
        run = start(folders, *command, "--out", str(tmp_path / "run"))
        lines: list[str] = []
        too_late = threading.Timer(240, run.kill)
        too_late.start()
        try:
            assert run.stderr is not None
            for line in run.stderr:
                lines.append(line)
                if line.startswith("Waiting for memory:"):
                    break
        finally:
            too_late.cancel()
            for each in (run, ballast):
                each.kill()
                each.communicate()
    waiting = "Waiting for memory: .* \\(control group {}\\)\\. Process {} has .* and may use .*"
    assert re.match(waiting.format(folders[0], run.pid), lines[-1]), lines


@pytest.mark.parametrize("command", ["train", "embed", "predict", "propagate"])
def test_every_long_command_looks_for_waits(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    seen: list[str] = []

    @contextmanager
    def watch(_tell: object) -> Iterator[None]:
        seen.append("begun")
        yield
        seen.append("ended")

    def run(arguments: list[str]) -> int:
        seen.append(arguments[0])
        return 0

    monkeypatch.setattr(app, "watch_pressure", watch)
    monkeypatch.setattr(app, "run", run)
    monkeypatch.setattr(sys, "argv", ["diskhop", command])
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with pytest.raises(SystemExit):
            app.main()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert seen == ["begun", command, "ended"]

"""A memory control group for a command, page cache included, so that a mapped file is read from the disk.

Cgroup v1 and v2. Making one needs root and a writable /sys/fs/cgroup, which containers often do not have.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_SECONDS_TO_END = 5.0


@dataclass(frozen=True, slots=True)
class Limited:
    """A command that ended. returncode: -9 if the limit killed it. peak_bytes: peak of its group; None: unknown."""

    returncode: int
    output: str
    errors: str
    peak_bytes: int | None


def why_no_limit() -> str:
    """Return in one line why no group can be made here; empty if it can."""
    try:
        with _group(1 << 30):
            return ""
    except OSError as error:
        return str(error)


def run_limited(command: list[str], limit_bytes: int | None, timeout_seconds: float | None = None) -> Limited:
    """Run a command; None: without a limit.

    Raises OSError where no group can be made, subprocess.TimeoutExpired for a command that had to be killed.
    """
    if limit_bytes is None:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_seconds)
        return Limited(done.returncode, done.stdout, done.stderr, None)
    with _group(limit_bytes) as (group, peak):
        # In the group before the program starts, so that its imports count too.
        join = ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(group)]
        done = subprocess.run([*join, *command], capture_output=True, text=True, check=False, timeout=timeout_seconds)
        # Kernels before 5.19 do not report the peak of a group (v2).
        peak_bytes = int(peak.read_text()) if peak.exists() else None
    return Limited(done.returncode, done.stdout, done.stderr, peak_bytes)


@contextlib.contextmanager
def _group(limit_bytes: int) -> Iterator[tuple[Path, Path]]:
    """Make a group, and yield it with the file of its peak."""
    is_v2 = (_ROOT / "cgroup.controllers").exists()
    group = (_ROOT if is_v2 else _ROOT / "memory") / f"diskhop-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / ("memory.max" if is_v2 else "memory.limit_in_bytes")).write_text(str(limit_bytes))
        yield group, group / ("memory.peak" if is_v2 else "memory.max_usage_in_bytes")
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """Remove a group; it is busy until some time after its last process has ended."""
    deadline = time.monotonic() + _SECONDS_TO_END
    while True:
        try:
            group.rmdir()
        except OSError as error:
            if time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            print(f"{group} stays behind: {error}", file=sys.stderr)
        return

"""Memory and cores available to this process, and the memory of the core's buffers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import psutil

from diskhop.errors import TrainingError

_HUGE_PAGE_BYTES, _SMALL_PAGE_BYTES = 2 << 20, 4 << 10
_GROUPS = Path("/sys/fs/cgroup")
# Folder below the cgroup root, limit file and usage file, for cgroup v2 and for the memory controller of v1.
_V2 = ("", "memory.max", "memory.current")
_V1 = ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes")


def buffer_bytes(num_bytes: int) -> int:
    """Return the memory of a buffer of num_bytes: whole pages, huge ones from half a huge page on (buffer.hpp)."""
    page_bytes = _SMALL_PAGE_BYTES if num_bytes <= _HUGE_PAGE_BYTES // 2 else _HUGE_PAGE_BYTES
    return -(-num_bytes // page_bytes) * page_bytes


def free_memory_bytes() -> int:
    """Return the bytes that are free now, within the limits of the machine and of this process's control groups."""
    free_bytes: int = psutil.virtual_memory().available
    for group, limit, usage in _own_groups(Path("/proc/self/cgroup")):
        try:
            free_bytes = min(free_bytes, int((group / limit).read_text()) - int((group / usage).read_text()))
        except (OSError, ValueError):  # no such controller, or no limit ("max")
            continue
    return max(free_bytes, 0)


def default_memory_bytes() -> int:
    """Return the default memory budget: half of the memory that is free now."""
    return free_memory_bytes() // 2


def default_threads() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _own_groups(path: Path) -> list[tuple[Path, str, str]]:
    """List the control groups that limit this process's memory, parents included, with their limit and usage files."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return []
    groups = []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        folder, limit, usage = _V1 if controllers else _V2
        group = _GROUPS / folder / name.lstrip("/")
        groups += [(each, limit, usage) for each in (group, *group.parents) if each.is_relative_to(_GROUPS / folder)]
    return groups


def resident_bytes(name: Literal["VmRSS", "VmHWM"]) -> int:
    """Return the resident memory of this process: now (VmRSS) or at its peak (VmHWM)."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise TrainingError(f"/proc/self/status: has no line {name}; diskhop needs a Linux kernel with /proc mounted")

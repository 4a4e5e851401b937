"""Memory and cores available to this process, and the memory of the core's buffers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
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
    return _bytes_of(Path("/proc/self/status"), [name])[name]


@dataclass(frozen=True, slots=True)
class SharedPages:
    """Resident bytes of this process that count for others, so that the sum over processes has each page once.

    That is resident memory (RSS) minus proportional memory (PSS), in which n processes have 1/n of a page they share.

    program: of libraries and other files, and of memory from before a fork.
    data: of segments (system/resident.py).
    """

    program: int = 0
    data: int = 0


def shared_pages() -> SharedPages:
    """Measure the pages that this process shares with others now."""
    resident = _bytes_of(Path("/proc/self/status"), ("RssAnon", "RssFile", "RssShmem"))
    counted = _bytes_of(Path("/proc/self/smaps_rollup"), ("Pss_Anon", "Pss_File", "Pss_Shmem"))
    program = resident["RssAnon"] + resident["RssFile"] - counted["Pss_Anon"] - counted["Pss_File"]
    return SharedPages(max(0, program), max(0, resident["RssShmem"] - counted["Pss_Shmem"]))


def _bytes_of(path: Path, names: Iterable[str]) -> dict[str, int]:
    """Read lines such as 'VmRSS: 12 kB'."""
    lines = (line.partition(":") for line in path.read_text(encoding="ascii").splitlines())
    found = {name: int(value.split()[0]) * 1024 for name, _, value in lines if name in names}
    for name in names:
        if name not in found:
            raise TrainingError(f"{path}: has no line {name}; diskhop needs a Linux kernel with /proc mounted")
    return found

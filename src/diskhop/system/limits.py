"""Limits on the memory of this process: of its control groups, of the shell that started it, and what is free.

A *limit* is the memory that the process may have in all, with what it has already. Control groups are nested, and each
counts all processes below it: what others have there is theirs. Pages of files that are only cached there give way.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from diskhop.system.figures import MEMORY_INFO, STATUS, read_figures

GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# A limit of a group that is none: 2^63, rounded down to whole pages.
_UNLIMITED = 1 << 62
# Where version 2 is next to version 1, as systemd has it: without limits on memory, but with waits.
_NEXT_TO_V1 = "unified"


class MemoryLimit(NamedTuple):
    """The memory that this process may have in all, and what sets it, in words."""

    num_bytes: int
    source: str


class Controller(NamedTuple):
    """Files of a memory controller: its folder below the groups, limits, usage, and cached pages in memory.stat."""

    folder: str
    limits: tuple[str, ...]
    usage: str
    cached: tuple[str, ...]


_V2 = Controller("", ("memory.max", "memory.high"), "memory.current", ("active_file", "inactive_file"))
_V1 = Controller(
    "memory", ("memory.limit_in_bytes",), "memory.usage_in_bytes", ("total_active_file", "total_inactive_file")
)


def memory_limit() -> MemoryLimit:
    """Return the least of all limits."""
    return min(memory_limits())


def memory_limits(groups: Path = GROUPS, own_file: Path = OWN_GROUPS) -> list[MemoryLimit]:
    """Return every limit of this process.

    groups: the folder of all control groups. own_file: names those of this process.
    """
    own = read_figures(STATUS, ("VmSize", "RssAnon", "RssShmem"))
    own_bytes = own["RssAnon"] + own["RssShmem"]
    free = read_figures(MEMORY_INFO, ("MemAvailable",))
    limits = [MemoryLimit(free["MemAvailable"] + own_bytes, "free memory")]
    address_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_bytes != resource.RLIM_INFINITY:
        # Most of the address space is reserved and never touched, as libraries and threads do.
        limits.append(MemoryLimit(max(0, address_bytes - own["VmSize"] + own_bytes), "ulimit -v"))
    for group, controller in own_groups(groups, own_file):
        limits += _group_limits(group, controller, own_bytes)
    return limits


def _group_limits(group: Path, controller: Controller, own_bytes: int) -> Iterator[MemoryLimit]:
    """Yield the limits of one group; none where it has no such controller, or no limit ("max")."""
    try:
        used_bytes = int((group / controller.usage).read_text()) - _cached_bytes(group, controller)
    except (OSError, ValueError):
        return
    for name in controller.limits:
        try:
            limit_bytes = int((group / name).read_text())
        except (OSError, ValueError):
            continue
        if limit_bytes < _UNLIMITED:
            others_bytes = max(0, used_bytes - own_bytes)
            yield MemoryLimit(max(0, limit_bytes - others_bytes), f"{name} of {group}")


def _cached_bytes(group: Path, controller: Controller) -> int:
    """Return the bytes of a group that are cached pages of files, which the kernel drops when memory is short."""
    try:
        lines = [line.split() for line in (group / "memory.stat").read_text().splitlines()]
    except OSError:
        return 0
    return sum(int(words[1]) for words in lines if len(words) == 2 and words[0] in controller.cached)


def own_groups(groups: Path, own_file: Path) -> Iterator[tuple[Path, Controller]]:
    """Yield the control groups that limit this process's memory, parents included."""
    try:
        lines = own_file.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        # Several controllers may share a hierarchy, as in "cpu,memory".
        if controllers and "memory" not in controllers.split(","):
            continue
        controller = _V1 if controllers else _V2
        root = groups / controller.folder
        if controller is _V2 and (groups / _NEXT_TO_V1).is_dir():
            root = groups / _NEXT_TO_V1
        group = root / name.lstrip("/")
        for each in (group, *group.parents):
            if each.is_relative_to(root):
                yield each, controller

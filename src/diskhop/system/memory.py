"""Memory and cores available to this process, and the memory of the core's buffers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from diskhop.system.figures import STATUS, read_figures
from diskhop.system.limits import memory_limit

_HUGE_PAGE_BYTES, _SMALL_PAGE_BYTES = 2 << 20, 4 << 10


def buffer_bytes(num_bytes: int) -> int:
    """Return the memory of a buffer of num_bytes: whole pages, huge ones from half a huge page on (buffer.hpp)."""
    page_bytes = _SMALL_PAGE_BYTES if num_bytes <= _HUGE_PAGE_BYTES // 2 else _HUGE_PAGE_BYTES
    return -(-num_bytes // page_bytes) * page_bytes


def free_memory_bytes() -> int:
    """Return the bytes that this process can still take, within the limits of the machine and of its control groups."""
    own = read_figures(STATUS, ("RssAnon", "RssShmem"))
    return max(0, memory_limit().num_bytes - sum(own.values()))


def default_memory_bytes() -> int:
    """Return the default memory budget: half of the memory that is free now."""
    return free_memory_bytes() // 2


def default_threads() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def resident_bytes(name: Literal["VmRSS", "VmHWM", "RssAnon"]) -> int:
    """Return the resident memory of this process: now (VmRSS, without files RssAnon) or at its peak (VmHWM)."""
    return read_figures(STATUS, [name])[name]


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
    resident = read_figures(STATUS, ("RssAnon", "RssFile", "RssShmem"))
    counted = read_figures(Path("/proc/self/smaps_rollup"), ("Pss_Anon", "Pss_File", "Pss_Shmem"))
    program = resident["RssAnon"] + resident["RssFile"] - counted["Pss_Anon"] - counted["Pss_File"]
    return SharedPages(max(0, program), max(0, resident["RssShmem"] - counted["Pss_Shmem"]))

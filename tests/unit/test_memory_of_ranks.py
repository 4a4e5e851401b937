"""Memory of several processes: pages that they share count once in the sum."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from typing import Any

import numpy as np

from diskhop.runs.distributed import Group
from diskhop.runs.result import measure_shared, memory_of_ranks
from diskhop.runtime.ranks import Ranks
from diskhop.system.memory import SharedPages, shared_pages

SEGMENT_BYTES = 64 << 20
# The kernel counts pages of each core by itself for a while.
LOOSE_BYTES = 4 << 20
OTHER = """
import mmap, os, sys
pages = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), int(sys.argv[2]))
print(sum(pages[::4096]), flush=True)
sys.stdin.read()
"""


def test_half_of_a_segment_of_two_processes_counts_for_the_other() -> None:
    segment = os.memfd_create("test")
    os.ftruncate(segment, SEGMENT_BYTES)
    alone = shared_pages().data
    pages = mmap.mmap(segment, SEGMENT_BYTES)
    np.frombuffer(pages, np.uint8)[:] = 1
    assert shared_pages().data - alone < LOOSE_BYTES, "nobody else has it yet"
    words = [sys.executable, "-c", OTHER, f"/proc/{os.getpid()}/fd/{segment}", str(SEGMENT_BYTES)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == f"{SEGMENT_BYTES // 4096}\n".encode()
        assert abs(shared_pages().data - alone - SEGMENT_BYTES // 2) < LOOSE_BYTES
        other.communicate()
    os.close(segment)


class Two(Group):
    """The first of two ranks; the second sends `other`."""

    def __init__(self, other: Any) -> None:
        super().__init__(Ranks(rank=0, count=2, local_rank=0, local_count=2))
        self._other = other

    def gather(self, item: Any) -> list[Any]:
        return [item, self._other]


def test_a_page_counts_once_in_the_memory_of_all() -> None:
    result = {"peak_rss_bytes": 1000, "resident_before_bytes": 300, "overhead_bytes": 400}
    other = {"peak_rss_bytes": 1100, "resident_before_bytes": 310, "overhead_bytes": 420}
    # 200 bytes of libraries and 500 of a segment, in both.
    found = memory_of_ranks(result, SharedPages(100, 250), Two((other, SharedPages(100, 250))))
    assert found["peak_rss_bytes"] == 1000 + 1100 - 200 - 500
    assert found["resident_before_bytes"] == 300 + 310 - 200
    assert found["overhead_bytes"] == 400 + 420 - 200
    assert found["ranks"] == {"count": 2, "per_rank": [{**each, "shared_bytes": 350} for each in (result, other)]}
    assert measure_shared(Group()) == SharedPages()
    assert memory_of_ranks(result, SharedPages(), Group()) == {}

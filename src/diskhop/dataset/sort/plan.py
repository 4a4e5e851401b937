"""How edges are cut for sorting: pure arithmetic from counts and memory to sizes.

Edges go to disk in *spills*, runs of the input that are each partitioned by *bucket*, a range of keys (csc.hpp), and
come back a bucket at a time, to be sorted. A *cut* is what the files on disk depend on; it outlives a crash. A *crew*
is how many threads work at a cut and what they hold; it is chosen anew in every run.
"""

from __future__ import annotations

from dataclasses import dataclass

from diskhop.errors import BudgetError
from diskhop.runtime.blocks import threads_that_fit
from diskhop.system.memory import buffer_bytes

_PAGE_BYTES = 4096
_HUGE_PAGE_BYTES = 2 << 20
# A block's place in an index: in memory that grows, and once more as it is written; as it is read.
_INDEX_BYTES_PER_BLOCK = 96
_READ_INDEX_BYTES_PER_BLOCK = 48
# Both ids of an edge, as stored and converted, and those of one read ahead.
_READ_BYTES_PER_EDGE = 48
# Blocks on their way to the disk, and those ahead of a reader: enough for its bandwidth.
SPARE_BLOCKS = 8
WINDOW_BLOCKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SortLimits:
    """Sizes between which a plan chooses. Blocks are powers of two from 4 KiB to 2 MiB.

    bucket_keys: keys in a bucket, so few that sorting stays near the cache. sorted_keys: at most so many are sorted at
    once. thread_bytes: a thread that would have less is not used. read_edges: read of the source at once.
    in_memory_bytes: what would take more goes by way of the disk, whatever the budget.
    """

    least_block_bytes: int = 64 << 10
    most_block_bytes: int = 1 << 20
    bucket_keys: int = 1 << 20
    sorted_keys: int = 1 << 40
    most_buckets: int = 4096
    spill_bytes: int = 256 << 20
    most_spills: int = 64
    thread_bytes: int = 64 << 20
    read_edges: int = 128 << 10
    in_memory_bytes: int = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillLayout:
    """Spill i holds edges [i * spill_edges, (i + 1) * spill_edges), in blocks of block_bytes."""

    spill_edges: int
    num_buckets: int
    block_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSplit:
    """Threads for each kind of task, what they hold together, and the keys that one of them sorts at once."""

    spill_threads: int
    spill_bytes: int
    sort_threads: int
    sort_bytes: int
    sorted_keys: int


def bytes_in_memory(num_edges: int, key_bytes: int, threads: int, limits: SortLimits) -> int:
    """What sorting takes that does without the disk: the keys twice, and what threads read of the source at once."""
    num_blocks = -(-num_edges // limits.read_edges)
    return buffer_bytes(2 * num_edges * key_bytes) + max(1, min(threads, num_blocks)) * _reading_bytes(limits)


def smallest_sort_bytes(num_edges: int, key_bytes: int, limits: SortLimits) -> int:
    """The smallest memory that sorts these edges, with or without the disk."""
    in_memory_bytes = bytes_in_memory(num_edges, key_bytes, 1, limits)
    memory_bytes = 0
    while memory_bytes < in_memory_bytes:
        cut = plan_cut(num_edges, key_bytes, memory_bytes, 1, limits)
        try:
            plan_crew(cut, num_edges, key_bytes, memory_bytes, 1, limits)
        except BudgetError as error:  # with what it asks for there may be more buckets, which ask for more
            memory_bytes = error.smallest_bytes or in_memory_bytes
        else:
            return memory_bytes
    return in_memory_bytes


def plan_cut(num_edges: int, key_bytes: int, memory_bytes: int, threads: int, limits: SortLimits) -> SpillLayout:
    """Choose spills, buckets and blocks for some edges, more than memory holds."""
    threads = max(1, min(threads, memory_bytes // limits.thread_bytes))
    thread_bytes = memory_bytes // threads
    num_spills = max(4 * threads, -(-num_edges * key_bytes // limits.spill_bytes))
    spill_edges = -(-num_edges // min(num_spills, limits.most_spills))

    def fits(num_buckets: int, block_bytes: int) -> bool:
        cut = SpillLayout(spill_edges=spill_edges, num_buckets=num_buckets, block_bytes=block_bytes)
        return _spill_bytes(cut, key_bytes, limits) <= thread_bytes

    block_bytes = limits.least_block_bytes
    uncut = SpillLayout(spill_edges=spill_edges, num_buckets=1, block_bytes=block_bytes)
    # Half of what a thread can sort: how much is in a range is only known from a sample.
    bucket_keys = min(limits.bucket_keys, _sorted_keys(uncut, num_edges, key_bytes, threads, memory_bytes) // 2)
    num_buckets = min(limits.most_buckets, -(-num_edges // max(1, bucket_keys)))
    while num_buckets > 1 and not fits(num_buckets, block_bytes):
        num_buckets -= -(-num_buckets // 8)
    # Larger blocks while a spill has several of each bucket.
    while (
        block_bytes < limits.most_block_bytes
        and fits(num_buckets, 2 * block_bytes)
        and spill_edges * key_bytes >= 4 * block_bytes * num_buckets
    ):
        block_bytes *= 2
    return SpillLayout(spill_edges=spill_edges, num_buckets=num_buckets, block_bytes=block_bytes)


def plan_crew(
    cut: SpillLayout, num_edges: int, key_bytes: int, memory_bytes: int, threads: int, limits: SortLimits
) -> ThreadSplit:
    """Use as many threads as memory allows. Raises BudgetError with the smallest memory that one can work in."""
    spill_bytes = _spill_bytes(cut, key_bytes, limits)
    least_keys = _least_keys(cut, num_edges, key_bytes, limits)
    least_sort_bytes = _sort_bytes(cut, num_edges, key_bytes, 1, least_keys)
    smallest_bytes = max(spill_bytes, least_sort_bytes)
    if memory_bytes < smallest_bytes:
        raise BudgetError(f"sorting edges takes {smallest_bytes} bytes", smallest_bytes)
    spill_threads = min(threads, memory_bytes // spill_bytes)

    def sort_bytes(sorters: int) -> int:
        return max(sorters * limits.thread_bytes, _sort_bytes(cut, num_edges, key_bytes, sorters, least_keys))

    sort_threads = threads_that_fit(threads, memory_bytes, sort_bytes)
    sorted_keys = min(
        limits.sorted_keys, max(least_keys, _sorted_keys(cut, num_edges, key_bytes, sort_threads, memory_bytes))
    )
    return ThreadSplit(
        spill_threads=spill_threads,
        spill_bytes=spill_threads * spill_bytes,
        sort_threads=sort_threads,
        sort_bytes=_sort_bytes(cut, num_edges, key_bytes, sort_threads, sorted_keys),
        sorted_keys=sorted_keys,
    )


def _least_keys(cut: SpillLayout, num_edges: int, key_bytes: int, limits: SortLimits) -> int:
    """Keys that are worth sorting at once: a bucket, or what a huge page holds. A bucket is read again for as many."""
    num_spills = -(-num_edges // cut.spill_edges)
    page_keys = (_HUGE_PAGE_BYTES - _padding_bytes(num_spills)) // key_bytes
    return max(1, min(limits.sorted_keys, -(-num_edges // cut.num_buckets), page_keys))


def _reading_bytes(limits: SortLimits) -> int:
    return buffer_bytes(limits.read_edges * _READ_BYTES_PER_EDGE)


def _spill_bytes(cut: SpillLayout, key_bytes: int, limits: SortLimits) -> int:
    """A thread's while it spills: reading, a block for each bucket and some to spare, the index."""
    num_blocks = cut.spill_edges * key_bytes // cut.block_bytes + cut.num_buckets
    blocks_bytes = buffer_bytes((cut.num_buckets + SPARE_BLOCKS) * cut.block_bytes)
    return _reading_bytes(limits) + blocks_bytes + num_blocks * _INDEX_BYTES_PER_BLOCK


def _sort_bytes(cut: SpillLayout, num_edges: int, key_bytes: int, threads: int, sorted_keys: int) -> int:
    """What sorting holds: the indexes of all spills, a window for each reader, keys and as many again for each thread.

    Beside the keys in the making there are the sorted ones that are written.
    """
    num_spills = -(-num_edges // cut.spill_edges)
    num_blocks = num_edges * key_bytes // cut.block_bytes + num_spills * cut.num_buckets
    fixed_bytes = num_blocks * _READ_INDEX_BYTES_PER_BLOCK + (threads + 1) * buffer_bytes(
        WINDOW_BLOCKS * cut.block_bytes
    )
    return fixed_bytes + _num_held(threads) * buffer_bytes(sorted_keys * key_bytes + _padding_bytes(num_spills))


def _padding_bytes(num_spills: int) -> int:
    """Beside keys, as they are read: what each spill has of a bucket, and keys and all of it, end in whole pages."""
    return (num_spills + 1) * _PAGE_BYTES


def _num_held(threads: int) -> int:
    """Buffers of keys: two for each thread, and one that is written while others are sorted."""
    return 2 * threads + (threads > 1)


def _sorted_keys(cut: SpillLayout, num_edges: int, key_bytes: int, threads: int, memory_bytes: int) -> int:
    """The most keys that each of the threads can sort at once with this memory together, at least 1."""
    num_spills = -(-num_edges // cut.spill_edges)
    pages_bytes = _padding_bytes(num_spills)
    left_bytes = memory_bytes - _sort_bytes(cut, num_edges, key_bytes, threads, 0)
    left_bytes += _num_held(threads) * buffer_bytes(pages_bytes)
    keys_bytes = left_bytes // _num_held(threads) // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES - pages_bytes
    return max(1, keys_bytes // key_bytes)

"""Planning of external sorting: pure arithmetic from counts and memory to sizes.

Edges go to disk in *spills*, runs of the input that are each partitioned by *bucket*, a range of keys (csc.hpp). They
are read back and sorted one bucket at a time. A `SpillLayout` determines the files on disk and survives a crash. A
`ThreadSplit` determines threads and memory, and is chosen in every run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from diskhop.errors import BudgetError
from diskhop.runtime.blocks import threads_that_fit
from diskhop.system.memory import buffer_bytes

_PAGE_BYTES = 4096
# With less memory, a sort works in smaller parts.
_SHORT_BYTES = 64 << 20
_HUGE_PAGE_BYTES = 2 << 20
# Index entry of a block: while spilling, in growing memory and once more when written; while reading.
_INDEX_BYTES_PER_BLOCK = 96
_READ_INDEX_BYTES_PER_BLOCK = 48
# Both ids of an edge, as stored and as converted, and those of a prefetched edge.
_READ_BYTES_PER_EDGE = 48
# Blocks being written, and blocks prefetched by a reader: enough for the bandwidth of a disk.
SPARE_BLOCKS = 8
WINDOW_BLOCKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SortLimits:
    """Limits of a sort.

    least_block_bytes: smallest block of a spill, a power of two from 4 KiB.
    most_block_bytes: largest block of a spill, a power of two up to 2 MiB.
    bucket_keys: largest number of keys in a bucket, small enough that sorting stays near the cache.
    sorted_keys: largest number of keys that are sorted at once.
    most_buckets: largest number of buckets.
    spill_bytes: largest spill.
    most_spills: largest number of spills.
    thread_bytes: smallest memory per thread; fewer threads are used rather than less memory each.
    read_edges: edges read from the source at once.
    in_memory_bytes: largest sort in memory, whatever the budget; larger ones go through the disk.
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
    """How edges are divided on disk.

    spill_edges: edges per spill; spill i has edges [i * spill_edges, (i + 1) * spill_edges).
    num_buckets: number of buckets.
    block_bytes: size of a block; a spill is written in blocks of one bucket each.
    """

    spill_edges: int
    num_buckets: int
    block_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSplit:
    """How threads and memory are divided.

    spill_threads: threads that spill.
    spill_bytes: memory of all of them.
    sort_threads: threads that sort.
    sort_bytes: memory of all of them.
    sorted_keys: keys that each thread sorts at once.
    """

    spill_threads: int
    spill_bytes: int
    sort_threads: int
    sort_bytes: int
    sorted_keys: int


def limits_within(memory_bytes: int) -> SortLimits:
    """Return the limits of sorting: the defaults, smaller ones if memory is short."""
    usual = SortLimits()
    is_short = memory_bytes < _SHORT_BYTES
    return replace(
        usual,
        least_block_bytes=_PAGE_BYTES if is_short else usual.least_block_bytes,
        read_edges=max(1024, min(usual.read_edges, memory_bytes >> 8)),
        sorted_keys=max(1024, memory_bytes >> 8) if is_short else usual.sorted_keys,
    )


def bytes_in_memory(num_edges: int, key_bytes: int, threads: int, limits: SortLimits) -> int:
    """Return the memory of a sort in memory: the keys twice, and the edges that threads read at once."""
    num_blocks = -(-num_edges // limits.read_edges)
    return buffer_bytes(2 * num_edges * key_bytes) + max(1, min(threads, num_blocks)) * _reading_bytes(limits)


def smallest_sort_bytes(num_edges: int, key_bytes: int, limits: SortLimits) -> int:
    """Return the smallest memory that can sort these edges, with or without the disk."""
    in_memory_bytes = bytes_in_memory(num_edges, key_bytes, 1, limits)
    if num_edges == 0:
        return in_memory_bytes
    memory_bytes = 0
    while memory_bytes < in_memory_bytes:
        spills = plan_spills(num_edges, key_bytes, memory_bytes, 1, limits)
        try:
            split_threads(spills, num_edges, key_bytes, memory_bytes, 1, limits)
        except BudgetError as error:  # more memory allows more buckets, which may need more memory
            memory_bytes = error.smallest_bytes or in_memory_bytes
        else:
            return memory_bytes
    return in_memory_bytes


def plan_spills(num_edges: int, key_bytes: int, memory_bytes: int, threads: int, limits: SortLimits) -> SpillLayout:
    """Choose spills, buckets and blocks for more edges than fit into memory."""
    threads = max(1, min(threads, memory_bytes // limits.thread_bytes))
    thread_bytes = memory_bytes // threads
    num_spills = max(4 * threads, -(-num_edges * key_bytes // limits.spill_bytes))
    spill_edges = -(-num_edges // min(num_spills, limits.most_spills))

    def fits(num_buckets: int, block_bytes: int) -> bool:
        spills = SpillLayout(spill_edges=spill_edges, num_buckets=num_buckets, block_bytes=block_bytes)
        return _spill_bytes(spills, key_bytes, limits) <= thread_bytes

    block_bytes = limits.least_block_bytes
    unsplit = SpillLayout(spill_edges=spill_edges, num_buckets=1, block_bytes=block_bytes)
    # Half of what a thread can sort, because the size of a bucket is only estimated from a sample.
    bucket_keys = min(limits.bucket_keys, _sorted_keys(unsplit, num_edges, key_bytes, threads, memory_bytes) // 2)
    num_buckets = min(limits.most_buckets, -(-num_edges // max(1, bucket_keys)))
    while num_buckets > 1 and not fits(num_buckets, block_bytes):
        num_buckets -= -(-num_buckets // 8)
    # Larger blocks, as long as a spill has several per bucket.
    while (
        block_bytes < limits.most_block_bytes
        and fits(num_buckets, 2 * block_bytes)
        and spill_edges * key_bytes >= 4 * block_bytes * num_buckets
    ):
        block_bytes *= 2
    return SpillLayout(spill_edges=spill_edges, num_buckets=num_buckets, block_bytes=block_bytes)


def split_threads(
    spills: SpillLayout, num_edges: int, key_bytes: int, memory_bytes: int, threads: int, limits: SortLimits
) -> ThreadSplit:
    """Choose the most threads that memory allows. Raises BudgetError with the smallest memory that one thread needs."""
    spill_bytes = _spill_bytes(spills, key_bytes, limits)
    least_keys = _least_keys(spills, num_edges, key_bytes, limits)
    least_sort_bytes = _sort_bytes(spills, num_edges, key_bytes, 1, least_keys)
    smallest_bytes = max(spill_bytes, least_sort_bytes)
    if memory_bytes < smallest_bytes:
        raise BudgetError(f"sorting edges takes {smallest_bytes} bytes", smallest_bytes)
    spill_threads = min(threads, memory_bytes // spill_bytes)

    def sort_bytes(sorters: int) -> int:
        return max(sorters * limits.thread_bytes, _sort_bytes(spills, num_edges, key_bytes, sorters, least_keys))

    sort_threads = threads_that_fit(threads, memory_bytes, sort_bytes)
    sorted_keys = min(
        limits.sorted_keys, max(least_keys, _sorted_keys(spills, num_edges, key_bytes, sort_threads, memory_bytes))
    )
    return ThreadSplit(
        spill_threads=spill_threads,
        spill_bytes=spill_threads * spill_bytes,
        sort_threads=sort_threads,
        sort_bytes=_sort_bytes(spills, num_edges, key_bytes, sort_threads, sorted_keys),
        sorted_keys=sorted_keys,
    )


def _least_keys(spills: SpillLayout, num_edges: int, key_bytes: int, limits: SortLimits) -> int:
    """Return the fewest keys to sort at once: a bucket or a huge page. A bucket is read once for each such group."""
    num_spills = -(-num_edges // spills.spill_edges)
    page_keys = (_HUGE_PAGE_BYTES - _padding_bytes(num_spills)) // key_bytes
    return max(1, min(limits.sorted_keys, -(-num_edges // spills.num_buckets), page_keys))


def _reading_bytes(limits: SortLimits) -> int:
    return buffer_bytes(limits.read_edges * _READ_BYTES_PER_EDGE)


def _spill_bytes(spills: SpillLayout, key_bytes: int, limits: SortLimits) -> int:
    """Return the memory of a spilling thread: input, one block per bucket, spare blocks and the index."""
    num_blocks = spills.spill_edges * key_bytes // spills.block_bytes + spills.num_buckets
    blocks_bytes = buffer_bytes((spills.num_buckets + SPARE_BLOCKS) * spills.block_bytes)
    return _reading_bytes(limits) + blocks_bytes + num_blocks * _INDEX_BYTES_PER_BLOCK


def _sort_bytes(spills: SpillLayout, num_edges: int, key_bytes: int, threads: int, sorted_keys: int) -> int:
    """Return the memory of sorting: indexes of all spills, a window per reader, and two buffers of keys per thread.

    One more buffer has the sorted keys that are being written.
    """
    num_spills = -(-num_edges // spills.spill_edges)
    num_blocks = num_edges * key_bytes // spills.block_bytes + num_spills * spills.num_buckets
    fixed_bytes = num_blocks * _READ_INDEX_BYTES_PER_BLOCK + (threads + 1) * buffer_bytes(
        WINDOW_BLOCKS * spills.block_bytes
    )
    return fixed_bytes + _num_buffers(threads) * buffer_bytes(sorted_keys * key_bytes + _padding_bytes(num_spills))


def _padding_bytes(num_spills: int) -> int:
    """Return the padding of a buffer of keys: the part of each spill, and the keys, end on whole pages."""
    return (num_spills + 1) * _PAGE_BYTES


def _num_buffers(threads: int) -> int:
    """Return the number of buffers of keys: two per thread, and one that is written while others are sorted."""
    return 2 * threads + (threads > 1)


def _sorted_keys(spills: SpillLayout, num_edges: int, key_bytes: int, threads: int, memory_bytes: int) -> int:
    """Return the most keys, at least 1, that each thread can sort at once if all share this memory."""
    num_spills = -(-num_edges // spills.spill_edges)
    pages_bytes = _padding_bytes(num_spills)
    left_bytes = memory_bytes - _sort_bytes(spills, num_edges, key_bytes, threads, 0)
    left_bytes += _num_buffers(threads) * buffer_bytes(pages_bytes)
    keys_bytes = left_bytes // _num_buffers(threads) // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES - pages_bytes
    return max(1, keys_bytes // key_bytes)

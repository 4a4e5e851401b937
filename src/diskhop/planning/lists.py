"""Choosing where the neighbour lists are: in memory, cached in part, or on disk."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from diskhop.batches.sizes import BatchSizes
from diskhop.budget import format_bytes
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.errors import BudgetError
from diskhop.sampling.cached_topology import cached_topology_bytes, list_bytes, room_for_lists
from diskhop.sampling.columns import columns_bytes
from diskhop.sampling.lists_in_turn import lists_in_turn_bytes
from diskhop.sampling.topology import topology_bytes
from diskhop.stores.room import SMALLEST_STAGING_BYTES, STAGING_BYTES, NamedLists, StoreRoom
from diskhop.system.memory import buffer_bytes

# Threads that sample lists on the disk mostly wait for it, however few cores there are.
MOST_SHARING_READS = 12


class ListsPlan(NamedTuple):
    """Place of the neighbour lists, and bytes of the cache if they are 'cached'.

    Lists are 'mapped' where batches are read that were sampled before: nothing of them stays in memory.
    """

    topology: Literal["memory", "cached", "mapped"]
    cache_bytes: int = 0


def named_lists(
    files: TopologyFiles, sizes: BatchSizes, wished_bytes: int | None, num_threads: int, num_processes: int
) -> NamedLists:
    """Return the memory that plan_lists() takes at least. wished_bytes: see there. num_threads: that sample."""
    whole = {"topology": topology_bytes(files, "memory"), **columns_bytes(files.columns, "memory")}
    on_disk = {
        "topology": cached_topology_bytes(files, wished_bytes or 0, num_processes),
        "sampling": num_threads * sizes.hop_read_bytes,
        **columns_bytes(files.columns, "cached"),
    }
    if wished_bytes is None:
        each_bytes = sum(on_disk.values()) - on_disk["topology"]
        fits_whole = sum(whole.values()) <= on_disk["topology"] + num_processes * each_bytes
    else:
        fits_whole = wished_bytes >= list_bytes(files)
    return NamedLists(whole, frozenset(whole)) if fits_whole else NamedLists(on_disk, frozenset({"topology"}))


def plan_lists(
    room: StoreRoom,
    files: TopologyFiles,
    sizes: BatchSizes,
    most_bytes: int | None = None,
    wished_bytes: int | None = None,
) -> ListsPlan:
    """Take memory for the neighbour lists. More threads sample if lists stay on the disk: room.sampling_threads.

    most_bytes: memory for lists at most; the rest is worth more to rows. None: all that is left.
    wished_bytes: bytes of the lists that stay in memory, as --neighbor-cache says; None: as many as fit.

    The room has required named_lists(). Raises BudgetError where most_bytes are less than that.
    """
    columns = columns_bytes(files.columns, "memory")
    topology = topology_bytes(files, "memory")
    in_memory_bytes = topology + sum(columns.values())
    # Processes share the lists, and so give a part of their memory each.
    shared_by = room.num_processes
    most_left_bytes = room.left_of_all_bytes
    left_bytes = most_left_bytes if most_bytes is None else min(most_left_bytes, most_bytes)
    wishes_all = wished_bytes is not None and wished_bytes >= list_bytes(files)
    if wishes_all or (wished_bytes is None and in_memory_bytes <= left_bytes):
        room.shared |= {"topology", *columns}
        _take(room, topology, columns)
        room.reasons.append(f"Topology in memory: {format_bytes(in_memory_bytes)}")
        return ListsPlan("memory")
    columns = columns_bytes(files.columns, "cached")
    # The cache takes all memory left except for wide staging, because the last lists that it holds are used least.
    others_bytes = STAGING_BYTES - SMALLEST_STAGING_BYTES + sum(columns.values())
    if wished_bytes is not None:
        others_bytes = sum(columns.values())
    best = _share_reads(room, files, sizes, left_bytes - shared_by * others_bytes, wished_bytes)
    if best is None:
        best = _share_reads(room, files, sizes, left_bytes - shared_by * sum(columns.values()), wished_bytes)
    too_large = f"{format_bytes(in_memory_bytes)} do not fit next to two batches"
    if left_bytes < most_left_bytes:
        too_large = f"{format_bytes(in_memory_bytes)} would leave less for rows, which save more (predicted)"
    if best is None:
        raise BudgetError(f"{format_bytes(left_bytes)} are too few to read neighbour lists from the disk")
    cache_bytes, num_threads = best
    more_threads = num_threads - room.sampling_threads
    room.shared.add("topology")
    _take(room, cached_topology_bytes(files, cache_bytes, shared_by), columns)
    room.take("sampling", num_threads * sizes.hop_read_bytes + more_threads * sizes.workspace_bytes)
    room.take("sampled ahead", more_threads * _thread_block_bytes(sizes))
    room.sampling_threads = num_threads
    share = f"; {num_threads} sampling threads share reads" if num_threads > 1 else ""
    why = too_large
    if cache_bytes:
        why = f"{too_large}; {format_bytes(cache_bytes)} cache the most useful neighbour lists"
    if wished_bytes is not None:
        why = f"{format_bytes(cache_bytes)} of the most useful neighbour lists (--neighbor-cache)"
    place = "cached" if cache_bytes else "on disk"
    room.reasons.append(f"Topology {place}: {why}{share}")
    return ListsPlan("cached", cache_bytes)


def lists_in_turn(files: TopologyFiles, sizes: BatchSizes, num_bytes: int, num_threads: int) -> NamedLists:
    """Return the memory that stays with sampling, where lists and cached rows take theirs in turn.

    num_bytes: of the memory that both take. num_threads: that sample.
    """
    topology = {"topology": lists_in_turn_bytes(files, num_bytes)}
    if num_bytes >= list_bytes(files):
        return NamedLists(topology, frozenset())
    return NamedLists({**topology, "sampling": num_threads * sizes.hop_read_bytes}, frozenset())


def _share_reads(
    room: StoreRoom, files: TopologyFiles, sizes: BatchSizes, room_bytes: int, wished_bytes: int | None
) -> tuple[int, int] | None:
    """Return the bytes of cached lists and the threads that sample, for the fewest bytes read; None if none fit."""
    shared_by, fewest = room.num_processes, room.sampling_threads
    best: tuple[float, int, int] | None = None
    for num_threads in range(fewest, max(fewest, MOST_SHARING_READS) + 1):
        working_bytes = num_threads * sizes.hop_read_bytes
        working_bytes += (num_threads - fewest) * (sizes.workspace_bytes + _thread_block_bytes(sizes))
        left_bytes = room_bytes - shared_by * working_bytes
        if wished_bytes is None:
            cache_bytes = usable_bytes = room_for_lists(files, left_bytes, shared_by)
        else:
            fits = cached_topology_bytes(files, wished_bytes, shared_by) <= left_bytes
            # Memory that would save more as a cache of lists than as another thread is left to rows.
            cache_bytes, usable_bytes = wished_bytes if fits else -1, wished_bytes - shared_by * working_bytes
        if cache_bytes < 0:
            break
        # Measured: threads that sample at the same time share reads, and save by the root of their number.
        bytes_read = max(0, list_bytes(files) - usable_bytes) / math.sqrt(num_threads)
        if best is None or bytes_read < best[0]:
            best = bytes_read, cache_bytes, num_threads
    return None if best is None else best[1:]


def _thread_block_bytes(sizes: BatchSizes) -> int:
    """Bytes of the blocks of a sampling thread: one in the channel, and one before it."""
    return 2 * buffer_bytes(sizes.block_bytes)


def _take(room: StoreRoom, topology: int, columns: Mapping[str, int]) -> None:
    """Take the bytes of lists and of the weights and times next to them."""
    for name, num_bytes in {"topology": topology, **columns}.items():
        room.take(name, num_bytes)

"""Choosing where the neighbour lists are: in memory, cached in part, or memory-mapped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from diskhop.batches.sizes import BatchSizes
from diskhop.budget import format_bytes
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.sampling.cached_topology import cached_topology_bytes, list_bytes, room_for_lists
from diskhop.sampling.columns import columns_bytes
from diskhop.sampling.topology import topology_bytes
from diskhop.stores.room import SMALLEST_STAGING_BYTES, STAGING_BYTES, StoreRoom
from diskhop.system.memory import buffer_bytes

# Threads that sample lists on the disk mostly wait for it, however few cores there are.
_MOST_SHARING_READS = 12


class ListsPlan(NamedTuple):
    """Place of the neighbour lists, and bytes of the cache if they are 'cached'."""

    topology: Literal["memory", "cached", "mapped"]
    cache_bytes: int = 0


def plan_lists(room: StoreRoom, files: TopologyFiles, sizes: BatchSizes, most_bytes: int | None = None) -> ListsPlan:
    """Take memory for the neighbour lists. More threads sample if lists stay on the disk: room.sampling_threads.

    most_bytes: memory for lists at most; the rest is worth more to rows. None: all that is left.
    """
    columns = columns_bytes(files.columns, "memory")
    topology = topology_bytes(files, "memory")
    in_memory_bytes = topology + sum(columns.values())
    # Processes share the lists, and so give a part of their memory each.
    shared_by = room.num_processes
    most_left_bytes = shared_by * room.left_bytes
    left_bytes = most_left_bytes if most_bytes is None else min(most_left_bytes, most_bytes)
    if in_memory_bytes <= left_bytes:
        room.shared |= {"topology", *columns}
        _take(room, topology, columns)
        room.reasons.append(f"Topology in memory: {format_bytes(in_memory_bytes)}")
        return ListsPlan("memory")
    columns = columns_bytes(files.columns, "cached")
    # The cache takes all memory left except for wide staging, because the last lists that it holds are used least.
    others_bytes = STAGING_BYTES - SMALLEST_STAGING_BYTES + sum(columns.values())
    room_bytes = left_bytes - shared_by * others_bytes
    block_bytes = 2 * buffer_bytes(sizes.block_bytes)  # per thread: in the channel, and before it
    fewest = room.sampling_threads
    best = None
    for num_threads in range(fewest, max(fewest, _MOST_SHARING_READS) + 1):
        working_bytes = num_threads * sizes.hop_read_bytes
        working_bytes += (num_threads - fewest) * (sizes.workspace_bytes + block_bytes)
        cache_bytes = room_for_lists(files, room_bytes - shared_by * working_bytes, shared_by)
        if cache_bytes < 0:
            break
        # Measured: threads that sample at the same time share reads, and save by the root of their number.
        bytes_read = max(0, list_bytes(files) - cache_bytes) / math.sqrt(num_threads)
        if best is None or bytes_read < best[0]:
            best = bytes_read, cache_bytes, num_threads
    too_large = f"{format_bytes(in_memory_bytes)} do not fit next to two batches"
    if left_bytes < most_left_bytes:
        too_large = f"{format_bytes(in_memory_bytes)} would leave less for rows, which save more (predicted)"
    if best is None:
        room.reasons.append(f"Topology memory-mapped: {too_large}")
        return ListsPlan("mapped")
    _, cache_bytes, num_threads = best
    more_threads = num_threads - fewest
    room.shared.add("topology")
    _take(room, cached_topology_bytes(files, cache_bytes, shared_by), columns)
    room.take("sampling", num_threads * sizes.hop_read_bytes + more_threads * sizes.workspace_bytes)
    room.take("sampled ahead", more_threads * block_bytes)
    room.sampling_threads = num_threads
    share = f"; {num_threads} sampling threads share reads" if num_threads > 1 else ""
    room.reasons.append(
        f"Topology cached: {too_large}; {format_bytes(cache_bytes)} cache the most useful neighbour lists{share}"
    )
    return ListsPlan("cached", cache_bytes)


def _take(room: StoreRoom, topology: int, columns: Mapping[str, int]) -> None:
    """Take the bytes of lists and of the weights and times next to them."""
    for name, num_bytes in {"topology": topology, **columns}.items():
        room.take(name, num_bytes)

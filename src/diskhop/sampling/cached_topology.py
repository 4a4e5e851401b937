"""A graph's in-neighbour lists where memory does not hold them all: some in a neighbour cache, the others on the disk.

`indptr` is in memory, 8 bytes a node. A *neighbour cache* (Ginex, section 3.2) holds whole lists, chosen once; where
they are is known from half a byte a node. What is drawn from other lists comes by a shared scan of `indices`, a whole
hop at once, of a long list only what holds draws: threads that sample at the same time share its reads. Opening reads
all of `indices`, to count how often each node is a neighbour, and then the lists that are held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File, NeighborSampler, SharedScan, count_ids, make_cached_sampler
from diskhop.budget import Budget
from diskhop.dataset.dataset import TopologyFiles
from diskhop.errors import FormatError
from diskhop.io.streams import TRANSFER_BYTES, read_in_order
from diskhop.policies.neighbor_cache import NODES_PER_BLOCK, PICK_LISTS_BYTES, is_picked, pick_lists
from diskhop.sampling.topology import Indices, check_length, index_dtype_of, open_indptr
from diskhop.system.memory import buffer_bytes

# Where reads land. Measured: four times as much makes no difference, a quarter of it leaves the device idle.
STAGING_BYTES = 4 << 20
_MAX_READ_BYTES = 512 << 10
_NODES_AT_ONCE = 1 << 15
_EDGES_AT_ONCE = 1 << 17
# Of nodes at once, what their lists are found by; of edges, their ids, what these are made of and what the scan keeps.
_LOAD_BYTES = 64 * _NODES_AT_ONCE + 36 * _EDGES_AT_ONCE
# Of `indices` from front to back.
_COUNTING_BYTES = 2 * TRANSFER_BYTES
_BESIDE_LISTS_BYTES = _LOAD_BYTES + STAGING_BYTES
_PAGE_BYTES = 2 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighborCacheOptions:
    """cache_bytes: memory for lists. max_gap_bytes: as for stores."""

    cache_bytes: int
    max_gap_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class CachedTopology:
    """The lists of an open graph, those that are held in memory; see CachedTopology in sampler.hpp for the arrays."""

    indices_path: Path
    num_edges: int
    indptr: NDArray[np.int64]
    blocks: NDArray[np.uint64]
    lists: Indices
    scan: SharedScan

    @property
    def num_nodes(self) -> int:
        """Nodes of the graph."""
        return len(self.indptr) - 1

    def make_sampler(self, fanouts: Sequence[int]) -> NeighborSampler:
        """The core's sampler of these lists."""
        return make_cached_sampler(self.indptr, self.blocks, self.lists, self.scan, fanouts)


def list_bytes(files: TopologyFiles) -> int:
    """Of `indices`, all lists one after the other."""
    return np.dtype(files.index_dtype).itemsize * files.num_edges


def cached_topology_bytes(files: TopologyFiles, cache_bytes: int) -> int:
    """Bytes that open_cached_topology reserves under the budget's name "topology".

    What samplers work in is theirs to reserve.
    """
    cached_bytes = buffer_bytes(min(cache_bytes, list_bytes(files)))
    # Neighbours are counted before any list is held or anything sampled.
    counting_bytes = PICK_LISTS_BYTES + _COUNTING_BYTES + _count_dtype(files).itemsize * files.num_nodes
    return _table_bytes(files) + max(counting_bytes, cached_bytes + _BESIDE_LISTS_BYTES)


def room_for_lists(files: TopologyFiles, num_bytes: int) -> int:
    """The most cache_bytes, in huge pages, for which num_bytes are enough; negative if they are too few."""
    if cached_topology_bytes(files, 0) > num_bytes:
        return -1
    return (num_bytes - _table_bytes(files) - _BESIDE_LISTS_BYTES) & ~(_PAGE_BYTES - 1)


def hop_read_bytes(num_lists: int, num_edges: int) -> int:
    """The most that a sampler of a cached topology works in besides, to read a hop of so many edges from so many lists.

    Of a list 16 bytes, twice, in vectors that double; of an edge its id, place and value, with a quarter to spare, and
    12 bytes in the scan.
    """
    return 4 * 16 * num_lists + 42 * num_edges


@contextmanager
def open_cached_topology(
    files: TopologyFiles, options: NeighborCacheOptions, engine: Engine, budget: Budget, pool: BufferPool
) -> Iterator[CachedTopology]:
    """Open the lists for sampling, as many of them held as there are bytes for, all reserved until the context ends.

    pool: where reads land. Raises BudgetError, ReadError, and FormatError for lists that are damaged.
    """
    dtype = index_dtype_of(files)
    num_bytes = cached_topology_bytes(files, options.cache_bytes)
    with budget.reserve("topology", num_bytes):
        indptr = open_indptr(files, "memory", engine)
        check_length(files.indices_path, list_bytes(files))
        file = File(str(files.indices_path), "read")
        out_degrees = count_neighbors(files, engine, pool)
        picked = pick_lists(indptr, out_degrees, options.cache_bytes // dtype.itemsize)
        del out_degrees
        blocks, num_held = _place_lists(indptr, picked)
        # The core copies a value for every edge, also where no list is held.
        lists = BufferPool(0).take(max(num_held, 1) * dtype.itemsize).view(dtype)
        lists[:1] = 0
        scan = SharedScan(
            engine,
            file,
            files.num_edges,
            dtype.itemsize,
            dtype.itemsize,
            options.max_gap_bytes,
            _MAX_READ_BYTES,
            STAGING_BYTES,
            pool,
        )
        try:
            _load_lists(indptr, picked, scan, lists)
            yield CachedTopology(files.indices_path, files.num_edges, indptr, blocks, lists, scan)
        finally:
            scan.close()


def count_neighbors(files: TopologyFiles, engine: Engine, pool: BufferPool) -> NDArray[Any]:
    """How often each node is somebody's neighbour (nodes), by reading `indices` from front to back."""
    file = File(str(files.indices_path), "read")
    counts = np.zeros(files.num_nodes, _count_dtype(files))
    num_counted = 0
    for part in read_in_order(file, list_bytes(files), engine, pool):
        ids = part.view(files.index_dtype)
        bad = count_ids(ids, counts)
        if bad < len(ids):
            raise FormatError(
                f"{files.indices_path}: topology is damaged: indices[{num_counted + bad}] is {ids[bad]}, the graph has "
                f"{files.num_nodes} nodes; run 'diskhop verify'"
            )
        num_counted += len(ids)
    return counts


def _place_lists(indptr: NDArray[np.int64], picked: NDArray[np.uint16]) -> tuple[NDArray[np.uint64], int]:
    """The core's blocks, for the lists picked one after the other, and how many edges these have."""
    blocks = BufferPool(0).take(8 * len(picked)).view(np.uint64)
    num_held = 0
    for first, last in _node_ranges(len(indptr) - 1):
        lengths = np.where(is_picked(picked, first, last), np.diff(indptr[first : last + 1]), 0)
        starts = num_held + np.concatenate([[0], np.cumsum(lengths)])
        words = picked[first // NODES_PER_BLOCK : -(-last // NODES_PER_BLOCK)]
        places = starts[:-1:NODES_PER_BLOCK].astype(np.uint64) << np.uint64(NODES_PER_BLOCK)
        blocks[first // NODES_PER_BLOCK :][: len(words)] = places | words
        num_held = int(starts[-1])
    return blocks, num_held


def _load_lists(indptr: NDArray[np.int64], picked: NDArray[np.uint16], scan: SharedScan, lists: Indices) -> None:
    """Read the lists picked, in order: their edges are rows that ascend, so that reads are as large as gaps allow."""
    rows = lists.view(np.uint8).reshape(len(lists), lists.itemsize)
    num_held = 0
    for first, last in _node_ranges(len(indptr) - 1):
        nodes = first + np.flatnonzero(is_picked(picked, first, last))
        begins = indptr[nodes]
        ends = np.cumsum(indptr[nodes + 1] - begins)
        starts = np.concatenate([[0], ends[:-1]])
        # A hub's list alone may be longer than what is read at once.
        for start in range(0, int(ends[-1]) if len(ends) else 0, _EDGES_AT_ONCE):
            stop = min(start + _EDGES_AT_ONCE, int(ends[-1]))
            counts = np.clip(ends, start, stop) - np.clip(starts, start, stop)
            edges = np.arange(start, stop) + np.repeat(begins - starts, counts)
            scan.join(edges, rows[num_held : num_held + len(edges)]).wait()
            num_held += len(edges)


def _node_ranges(num_nodes: int) -> Iterator[tuple[int, int]]:
    for first in range(0, num_nodes, _NODES_AT_ONCE):
        yield first, min(first + _NODES_AT_ONCE, num_nodes)


def _table_bytes(files: TopologyFiles) -> int:
    # Of a block 8 bytes in the core's table, and 2 in what it is made of.
    num_blocks = _num_blocks(files)
    return buffer_bytes(8 * (files.num_nodes + 1)) + buffer_bytes(8 * num_blocks) + 2 * num_blocks


def _num_blocks(files: TopologyFiles) -> int:
    return -(-files.num_nodes // NODES_PER_BLOCK)


def _count_dtype(files: TopologyFiles) -> np.dtype[Any]:
    return np.dtype(np.uint32 if files.num_edges < 2**32 else np.int64)

"""In-neighbour lists of a graph that exceeds memory: some in a neighbour cache, the others on disk.

`indptr` is in memory, 8 bytes per list. A *neighbour cache* (Ginex, section 3.2) keeps whole lists, chosen once; half
a byte per list finds them. Draws from other lists are read by a shared scan of `indices`, one hop at a time. Threads
that sample at the same time share its reads, and of a long list only the blocks with draws are read. Opening reads all
of `indices` to count how often each node is a neighbour, and then the cached lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import (
    BufferPool,
    Engine,
    File,
    NeighborSampler,
    SharedScan,
    count_ids,
    make_cached_sampler,
)
from diskhop.budget import Budget
from diskhop.dataset.edge_set import ClusterFiles, TopologyFiles
from diskhop.dataset.type_map import TypeMap
from diskhop.errors import FormatError
from diskhop.io.streams import TRANSFER_BYTES, read_in_order
from diskhop.policies.neighbor_cache import NODES_PER_BLOCK, PICK_LISTS_BYTES, is_picked, pick_lists
from diskhop.runtime.process import keep_after_fork
from diskhop.sampling.columns import MAX_READ_BYTES, SCAN_BYTES, Columns, open_columns
from diskhop.sampling.topology import Indices, SamplerOptions, Topology, index_dtype_of, native_types, open_indptr
from diskhop.sampling.whole_files import check_length
from diskhop.system.memory import buffer_bytes
from diskhop.system.resident import OwnMemory, Part, ResidentMemory

# Buffer of reads.
STAGING_BYTES = SCAN_BYTES
_NODES_AT_ONCE = 1 << 15
_EDGES_AT_ONCE = 1 << 17
# Per node: the places of its list. Per edge: its id, the arrays that it is computed from, and the scan's entry.
_LOAD_BYTES = 64 * _NODES_AT_ONCE + 36 * _EDGES_AT_ONCE
# `indices` is read from front to back in two buffers.
_COUNTING_BYTES = 2 * TRANSFER_BYTES
_LOADING_BYTES = _LOAD_BYTES + STAGING_BYTES
_PAGE_BYTES = 2 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighborCacheOptions:
    """Options of a neighbour cache.

    cache_bytes: memory for lists.
    max_gap_bytes: reads closer than this are merged.
    """

    cache_bytes: int
    max_gap_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class CachedTopology:
    """The lists of an open graph, some of them cached; see CachedTopology in sampler.hpp for the arrays.

    columns: weights and times, by use.
    clusters: clusters of nodes; None for none.
    types: types of merged lists; None for a graph without.
    """

    indices_path: Path
    num_edges: int
    indptr: NDArray[np.int64]
    blocks: NDArray[np.uint64]
    lists: Indices
    scan: SharedScan
    columns: Columns = field(default_factory=dict)
    clusters: ClusterFiles | None = None
    types: TypeMap | None = None

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.indptr) - 1 if self.types is None else self.types.total_nodes

    def make_sampler(self, fanouts: Sequence[int], options: SamplerOptions | None = None) -> NeighborSampler:
        """Make a native sampler of these lists; see Topology."""
        types = native_types(self.types)
        return make_cached_sampler(self.indptr, self.blocks, self.lists, self.scan, fanouts, options, types)


AnyTopology = Topology | CachedTopology


def list_bytes(files: TopologyFiles) -> int:
    """Bytes of all lists, the size of `indices`."""
    return np.dtype(files.index_dtype).itemsize * files.num_edges


def cached_topology_bytes(files: TopologyFiles, cache_bytes: int, num_processes: int = 1) -> int:
    """Bytes that open_cached_topology() reserves as "topology"; working memory of samplers is not included.

    num_processes: processes that share the arrays; each has a read buffer of its own.
    """
    cached_bytes = buffer_bytes(min(cache_bytes, list_bytes(files)))
    # Counting neighbours ends before any list is cached.
    counting_bytes = picking_bytes(files) if cache_bytes else 0
    others_bytes = (num_processes - 1) * STAGING_BYTES
    return _table_bytes(files) + max(counting_bytes, cached_bytes + _LOADING_BYTES) + others_bytes


def room_for_lists(files: TopologyFiles, num_bytes: int, num_processes: int = 1) -> int:
    """Largest cache_bytes, in huge pages, that fit num_bytes; negative if none do. See cached_topology_bytes()."""
    if cached_topology_bytes(files, 0, num_processes) > num_bytes:
        return -1
    left_bytes = num_bytes - _table_bytes(files) - (num_processes - 1) * STAGING_BYTES
    return (left_bytes - _LOADING_BYTES) & ~(_PAGE_BYTES - 1) if picking_bytes(files) <= left_bytes else 0


@contextmanager
def open_cached_topology(
    files: TopologyFiles,
    options: NeighborCacheOptions,
    engine: Engine,
    budget: Budget,
    pool: BufferPool,
    memory: ResidentMemory | None = None,
    place_of_lists: NDArray[np.uint8] | None = None,
) -> Iterator[CachedTopology]:
    """Open the lists and their columns for sampling, and cache the lists that fit; all bytes are reserved meanwhile.

    pool: memory of the read buffer. memory: of indptr and the cached lists, if processes share them; None: memory of
    this process alone. place_of_lists: memory for the cached lists, which is reserved by others; None: memory of their
    own. Raises BudgetError, ReadError, and FormatError for damaged lists.
    """
    dtype = index_dtype_of(files)
    resident = memory or OwnMemory()
    own_bytes = options.cache_bytes if place_of_lists is None else 0
    num_bytes = cached_topology_bytes(files, own_bytes, resident.num_processes)
    with budget.reserve("topology", num_bytes, is_shared=memory is not None):
        indptr = open_indptr(files, "memory", engine, resident)
        check_length(files.indices_path, list_bytes(files))
        file = File(str(files.indices_path), "read")

        def place(content: NDArray[np.uint8], part: Part) -> None:
            if part.is_first:
                picked = _pick_lists(files, indptr, options.cache_bytes // dtype.itemsize, engine, pool)
                _place_lists(indptr, picked, content.view(np.uint64))

        blocks = resident.make(8 * _num_blocks(files), place).view(np.uint64)
        scan = SharedScan(
            engine,
            file,
            files.num_edges,
            dtype.itemsize,
            dtype.itemsize,
            options.max_gap_bytes,
            MAX_READ_BYTES,
            STAGING_BYTES,
            pool,
        )
        keep_after_fork(scan)

        def load(content: NDArray[np.uint8], part: Part) -> None:
            _load_lists(indptr, blocks, scan, content.view(dtype), part)

        try:
            # The native sampler reads a value for every edge, even if no list is cached.
            num_bytes = max(_num_cached(indptr, blocks), 1) * dtype.itemsize
            if place_of_lists is None:
                lists = resident.make(num_bytes, load).view(dtype)
            else:
                load(place_of_lists[:num_bytes], Part(0, 1))
                lists = place_of_lists[:num_bytes].view(dtype)
            with open_columns(files.columns, "cached", engine, budget, pool, options.max_gap_bytes) as columns:
                parts = indptr, blocks, lists, scan, columns, files.clusters, files.types
                yield CachedTopology(files.indices_path, files.num_edges, *parts)
        finally:
            scan.close()


def picking_bytes(files: TopologyFiles) -> int:
    """Bytes that counting neighbours takes, and ranking lists by their counts."""
    num_counts = files.num_nodes + (0 if files.types is None else files.num_lists)
    return PICK_LISTS_BYTES + _COUNTING_BYTES + _count_dtype(files).itemsize * num_counts


def count_neighbors(
    files: TopologyFiles, engine: Engine, pool: BufferPool, most_bytes: int | None = None
) -> NDArray[Any]:
    """Count how often each node is a neighbour (nodes), by reading `indices` from front to back.

    most_bytes: read about as much at most, in parts all over the file; None: the whole.
    """
    file = File(str(files.indices_path), "read")
    counts = np.zeros(files.num_nodes, _count_dtype(files))
    every = 1 if most_bytes is None else max(1, -(-list_bytes(files) // most_bytes))
    for number, part in enumerate(read_in_order(file, list_bytes(files), engine, pool, every)):
        ids = part.view(files.index_dtype)
        bad = count_ids(ids, counts)
        if bad < len(ids):
            place = number * every * TRANSFER_BYTES // ids.itemsize + bad
            raise FormatError(
                f"{files.indices_path}: topology is damaged: indices[{place}] is {ids[bad]}, the graph has "
                f"{files.num_nodes} nodes; run 'diskhop verify'"
            )
    return counts


def counts_by_list(of_nodes: NDArray[Any], types: TypeMap) -> NDArray[Any]:
    """Return the value of each list's node (lists), given those of the nodes."""
    ranges = [(types.node_starts[number], types.node_starts[number + 1]) for number in types.destinations]
    return np.concatenate([of_nodes[first:end] for first, end in ranges]) if ranges else of_nodes[:0]


def _pick_lists(
    files: TopologyFiles, indptr: NDArray[np.int64], most_edges: int, engine: Engine, pool: BufferPool
) -> NDArray[np.uint16]:
    if not most_edges:
        return np.zeros(_num_blocks(files), np.uint16)
    out_degrees = count_neighbors(files, engine, pool)
    if files.types is not None:
        out_degrees = counts_by_list(out_degrees, files.types)
    return pick_lists(indptr, out_degrees, most_edges)


def _place_lists(indptr: NDArray[np.int64], picked: NDArray[np.uint16], blocks: NDArray[np.uint64]) -> None:
    """Write the native sampler's blocks for the picked lists, which are stored back to back."""
    num_cached = 0
    for first, last in _node_ranges(len(indptr) - 1):
        lengths = np.where(is_picked(picked, first, last), np.diff(indptr[first : last + 1]), 0)
        starts = num_cached + np.concatenate([[0], np.cumsum(lengths)])
        words = picked[first // NODES_PER_BLOCK : -(-last // NODES_PER_BLOCK)]
        places = starts[:-1:NODES_PER_BLOCK].astype(np.uint64) << np.uint64(NODES_PER_BLOCK)
        blocks[first // NODES_PER_BLOCK :][: len(words)] = places | words
        num_cached = int(starts[-1])


def _picked_of(blocks: NDArray[np.uint64]) -> NDArray[np.uint16]:
    return blocks.astype(np.uint16)  # the low bits


def _num_cached(indptr: NDArray[np.int64], blocks: NDArray[np.uint64]) -> int:
    """Return the number of edges of all picked lists."""
    if len(blocks) == 0:
        return 0
    first, last = (len(blocks) - 1) * NODES_PER_BLOCK, len(indptr) - 1
    is_last_picked = is_picked(_picked_of(blocks[-1:]), 0, last - first)
    return _first_of(blocks, first) + int(np.diff(indptr[first:])[is_last_picked].sum())


def _first_of(blocks: NDArray[np.uint64], node: int) -> int:
    """Return where the picked lists from a block's first node on begin."""
    return int(blocks[node // NODES_PER_BLOCK]) >> NODES_PER_BLOCK


def _load_lists(
    indptr: NDArray[np.int64], blocks: NDArray[np.uint64], scan: SharedScan, lists: Indices, part: Part
) -> None:
    """Read a part of the picked lists in order.

    Their edges are ascending rows, so that reads are as large as gaps allow.
    """
    rows = lists.view(np.uint8).reshape(len(lists), lists.itemsize)
    picked = _picked_of(blocks)
    ranges = list(_node_ranges(len(indptr) - 1))
    for first, last in ranges[part.of(len(ranges))]:
        num_cached = _first_of(blocks, first)
        nodes = first + np.flatnonzero(is_picked(picked, first, last))
        begins = indptr[nodes]
        ends = np.cumsum(indptr[nodes + 1] - begins)
        starts = np.concatenate([[0], ends[:-1]])
        # A single list may be longer than one read.
        for start in range(0, int(ends[-1]) if len(ends) else 0, _EDGES_AT_ONCE):
            stop = min(start + _EDGES_AT_ONCE, int(ends[-1]))
            counts = np.clip(ends, start, stop) - np.clip(starts, start, stop)
            edges = np.arange(start, stop) + np.repeat(begins - starts, counts)
            scan.join(edges, rows[num_cached : num_cached + len(edges)]).wait()
            num_cached += len(edges)


def _node_ranges(num_nodes: int) -> Iterator[tuple[int, int]]:
    for first in range(0, num_nodes, _NODES_AT_ONCE):
        yield first, min(first + _NODES_AT_ONCE, num_nodes)


def _table_bytes(files: TopologyFiles) -> int:
    # Per block of lists 8 bytes in the native sampler's table, and 2 of picked flags.
    num_blocks = _num_blocks(files)
    return buffer_bytes(8 * (files.num_lists + 1)) + buffer_bytes(8 * num_blocks) + 2 * num_blocks


def _num_blocks(files: TopologyFiles) -> int:
    return -(-files.num_lists // NODES_PER_BLOCK)


def _count_dtype(files: TopologyFiles) -> np.dtype[Any]:
    return np.dtype(np.uint32 if files.num_edges < 2**32 else np.int64)

"""Neighbour lists while a run is planned: where batches are sampled from, and what a batch reads of lists on the disk.

A plan decides where the lists will be, and planning must not read more than it saves: small lists are read whole,
larger ones where batches draw from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from diskhop._native import BufferPool, Engine
from diskhop.budget import Budget
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.policies.list_reads import ListCurve, list_curve
from diskhop.protocols import SampledBatch
from diskhop.sampling.cached_topology import (
    AnyTopology,
    NeighborCacheOptions,
    cached_topology_bytes,
    count_neighbors,
    counts_by_list,
    open_cached_topology,
    picking_bytes,
)
from diskhop.sampling.columns import columns_bytes
from diskhop.sampling.topology import open_indptr, open_topology, topology_bytes

# Lists that are read whole: sampling would read most of them, in small parts.
_SMALL_BYTES = 256_000_000
# Of larger lists, what is read to count how often a node is a neighbour.
COUNTED_BYTES = 256_000_000
# Larger gaps between draws are not read: a few batches come soon enough.
_GAP_BYTES = 1024


@contextmanager
def open_lists(files: TopologyFiles, engine: Engine, budget: Budget, room_bytes: int) -> Iterator[AnyTopology]:
    """Open the lists for sampling a few batches: in memory, on the disk, or mapped where not even indptr fits.

    room_bytes: memory that they may take of the budget.
    """
    whole_bytes = topology_bytes(files, "memory") + sum(columns_bytes(files.columns, "memory").values())
    if whole_bytes <= min(room_bytes, _SMALL_BYTES):
        with open_topology(files, "memory", engine, budget) as topology:
            yield topology
        return
    if cached_topology_bytes(files, 0) + sum(columns_bytes(files.columns, "cached").values()) > room_bytes:
        with open_topology(files, "mapped", engine, budget) as topology:
            yield topology
        return
    options = NeighborCacheOptions(cache_bytes=0, max_gap_bytes=_GAP_BYTES)
    with open_cached_topology(files, options, engine, budget, BufferPool(0)) as on_disk:
        yield on_disk


def find_list_curve(files: TopologyFiles, batch: SampledBatch, engine: Engine, budget: Budget) -> ListCurve:
    """Find what a batch reads of lists on the disk, for any cache of them.

    Without memory for counting neighbours the cache is taken to hold lists from the front of the file.
    """
    num_bytes = 8 * (files.num_lists + 1) + picking_bytes(files)
    edge_bytes = np.dtype(files.index_dtype).itemsize
    drawn = batch.edge_positions, batch.num_sampled_edges, edge_bytes
    if num_bytes > budget.available_bytes:
        return list_curve(open_indptr(files, "mapped", engine), None, *drawn)
    with budget.reserve("counting neighbours", num_bytes):
        out_degrees = count_neighbors(files, engine, BufferPool(0), COUNTED_BYTES)
        if files.types is not None:
            out_degrees = counts_by_list(out_degrees, files.types)
        return list_curve(open_indptr(files, "memory", engine), out_degrees, *drawn)

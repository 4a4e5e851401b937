"""Sampling a short trace: a few batches of a run, on which plans are simulated.

They are the first ones where seeds are shuffled. A pass in order gives *stretches* of adjacent batches from all over
it: its first batches may be of one kind, and adjacent ones share rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine
from diskhop.batches.record import describe_batch
from diskhop.batches.short_trace import ListsRead, ShortTrace
from diskhop.batches.sizes import BatchSizes
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.planning.workload import Workload
from diskhop.policies.list_reads import ListCurve, list_curve
from diskhop.policies.neighbor_cache import PICK_LISTS_BYTES
from diskhop.protocols import NodeIds, SampledBatch
from diskhop.sampling.cached_topology import (
    AnyTopology,
    CachedTopology,
    NeighborCacheOptions,
    cached_topology_bytes,
    count_neighbors,
    counts_by_list,
    list_bytes,
    open_cached_topology,
    room_for_lists,
)
from diskhop.sampling.columns import columns_bytes
from diskhop.sampling.samplers import lists_of, open_sampler
from diskhop.sampling.seeds import BatchSeeds
from diskhop.sampling.topology import Topology, open_topology, topology_bytes
from diskhop.system.memory import buffer_bytes

_MOST_BATCHES, _MOST_SECONDS, _LISTS_BATCHES = 96, 6.0, 2
_STRETCH_BATCHES, _FEWEST_STRETCHES = 8, 4
# Share of the budget for the trace; the rest is for neighbour lists, and for the batch that the model is measured on.
_MOST_SHARE = 0.25
_BYTES_PER_COUNT = 8


def sample_short_trace(
    dataset: Dataset, workload: Workload, sizes: BatchSizes, budget: Budget, engine: Engine, max_gap_bytes: int
) -> ShortTrace:
    """Sample some batches of a run, until a quarter of the budget or a few seconds are spent."""
    seed_set = workload.seed_sets[0]
    id_dtype = np.dtype(np.uint32 if dataset.num_nodes < 2**32 else np.int64)
    trace_bytes = int(budget.available_bytes * _MOST_SHARE)
    most_batches = max(2, min(_MOST_BATCHES, trace_bytes // max(1, sizes.num_rows * id_dtype.itemsize)))
    node_ids: list[NDArray[np.uint32] | NodeIds] = []
    seconds: list[float] = []
    block_bytes = record_bytes = 0
    middle: SampledBatch | None = None
    room_bytes = budget.available_bytes - trace_bytes
    files = lists_of(dataset, workload.samplers)
    with _open_lists(files, budget, sizes, engine, max_gap_bytes, room_bytes) as lists:
        sampler = open_sampler(lists, seed_set.sampler, workload.seed)
        began = time.perf_counter()
        # A run of several short epochs needs two in the trace: the second one finds the cache that the first one left.
        num_batches = workload.num_batches * (1 if workload.epochs == 1 or workload.reuse else 2)
        for number, seeds in _batches(workload, min(most_batches, num_batches)):
            started = time.perf_counter()
            batch = sampler.sample(
                seeds.rows,
                purpose=seed_set.purpose,
                epoch=number // workload.num_batches,
                number=number,
                times=seeds.times,
            )
            seconds.append(time.perf_counter() - started)
            node_ids.append(np.sort(batch.row_ids).astype(id_dtype))
            block_bytes += batch.num_bytes
            record_bytes += describe_batch(batch, dataset.num_nodes).num_bytes
            if len(node_ids) <= 2:
                middle = batch
            if len(node_ids) > 1 and time.perf_counter() - began > _MOST_SECONDS:
                break
        assert middle is not None, "an epoch has a batch"
        curve = _list_curve(files, lists, middle, budget, engine)
    count = len(node_ids)
    return ShortTrace(
        node_ids=tuple(node_ids),
        block_bytes=block_bytes / count,
        record_bytes=record_bytes / count,
        # The first batch also allocates working memory.
        sample_seconds=float(np.median(seconds[1:] or seconds)),
        middle=middle,
        lists=curve,
    )


def _list_curve(
    files: TopologyFiles, lists: AnyTopology, middle: SampledBatch, budget: Budget, engine: Engine
) -> ListCurve | None:
    """Find what a batch reads of lists on disk, for any cache of them, if the graph has types and memory suffices."""
    types, counting_bytes = files.types, _counting_bytes(files)
    if types is None or not counting_bytes or counting_bytes > budget.available_bytes:
        return None
    with budget.reserve("counting neighbours", counting_bytes):
        out_degrees = counts_by_list(count_neighbors(files, engine, BufferPool(0)), types)
        positions, num_drawn = middle.edge_positions, middle.num_sampled_edges
        return list_curve(lists.indptr, out_degrees, positions, num_drawn, np.dtype(files.index_dtype).itemsize)


def _counting_bytes(files: TopologyFiles) -> int:
    """Return the memory of finding what a batch reads of lists; 0 for a graph without types, where it is measured."""
    if files.types is None or files.types.is_single:
        return 0
    return _BYTES_PER_COUNT * (files.num_nodes + files.num_lists) + PICK_LISTS_BYTES


def _batches(workload: Workload, count: int) -> Iterator[tuple[int, BatchSeeds]]:
    """Yield number and seed nodes of about n batches."""
    seed_set = workload.seed_sets[0]
    is_whole = seed_set.is_shuffled or count >= workload.num_batches
    for number in range(count) if is_whole else spread_numbers(workload.num_batches, count):
        yield number, seed_set.typical_batch(number % seed_set.num_batches)


def spread_numbers(num_batches: int, count: int) -> list[int]:
    """Return the numbers of at most n batches of a pass, in stretches all over it, the first of them near its middle.

    Any first stretches are spread over the pass too, in case the time for sampling ends.
    """
    length = max(1, min(_STRETCH_BATCHES, count // _FEWEST_STRETCHES))
    num_stretches = count // length
    margin = (num_batches // num_stretches - length) // 2
    numbers: list[int] = []
    # Places in bit-reversed order (van der Corput) are far from those before them.
    for place in sorted(range(num_stretches), key=lambda place: f"{place:b}"[::-1]):
        first = (place + num_stretches // 2) % num_stretches * num_batches // num_stretches + margin
        numbers += range(first, first + length)
    return numbers


@contextmanager
def _open_lists(
    files: TopologyFiles, budget: Budget, sizes: BatchSizes, engine: Engine, max_gap_bytes: int, room_bytes: int
) -> Iterator[Topology | CachedTopology]:
    """Open the neighbour lists: in memory, else cached in part as in a run, else mapped."""
    sampling_bytes = sizes.workspace_bytes + buffer_bytes(sizes.block_bytes)
    room_bytes -= sampling_bytes
    with budget.reserve("sampling", max(0, min(sampling_bytes, budget.available_bytes))):
        if topology_bytes(files, "memory") + sum(columns_bytes(files.columns, "memory").values()) <= room_bytes:
            with open_topology(files, "memory", engine, budget) as topology:
                yield topology
            return
        room_bytes -= sum(columns_bytes(files.columns, "cached").values())
        # Leaves enough to compute what any cache of lists reads: sampling again for each takes seconds.
        room_bytes -= _counting_bytes(files)
        cache_bytes = min(room_for_lists(files, room_bytes - sizes.hop_read_bytes), list_bytes(files))
        if cache_bytes < 0:
            with open_topology(files, "mapped", engine, budget) as topology:
                yield topology
            return
        assert cached_topology_bytes(files, cache_bytes) <= room_bytes
        options = NeighborCacheOptions(cache_bytes=cache_bytes, max_gap_bytes=max_gap_bytes)
        with open_cached_topology(files, options, engine, budget, BufferPool(0)) as cached:
            yield cached


def measure_lists(
    dataset: Dataset, workload: Workload, cache_bytes: int, budget: Budget, engine: Engine, max_gap_bytes: int
) -> ListsRead:
    """Measure what sampling a batch reads if cache_bytes of the neighbour lists are cached."""
    seed_set = workload.seed_sets[0]
    options = NeighborCacheOptions(cache_bytes=cache_bytes, max_gap_bytes=max_gap_bytes)
    with open_cached_topology(lists_of(dataset, workload.samplers), options, engine, budget, BufferPool(0)) as lists:
        sampler = open_sampler(lists, seed_set.sampler, workload.seed)
        started = time.process_time()
        batches = [
            sampler.sample(seeds.rows, purpose=seed_set.purpose, epoch=0, number=number, times=seeds.times)
            for number, seeds in _batches(workload, min(_LISTS_BATCHES, workload.num_batches))
        ]
        cores_seconds = time.process_time() - started
    return ListsRead(
        reads=sum(batch.topology_reads for batch in batches) / len(batches),
        bytes_read=sum(batch.topology_bytes_read for batch in batches) / len(batches),
        cores_seconds=cores_seconds / len(batches),
    )

"""Sampling a short trace: a few batches of a run, on which plans are simulated.

They are the first ones where seeds are shuffled. A pass in order gives *stretches* of adjacent batches from all over
it: its first batches may be of one kind, and adjacent ones share rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine
from diskhop.batches.record import describe_batch
from diskhop.batches.short_trace import ShortTrace
from diskhop.batches.sizes import BatchSizes
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.planning.lists_on_disk import open_lists
from diskhop.planning.workload import Workload
from diskhop.protocols import NodeIds, SampledBatch
from diskhop.sampling.samplers import lists_of, open_sampler
from diskhop.sampling.seeds import BatchSeeds
from diskhop.stores.costs import CoreSeconds
from diskhop.system.memory import buffer_bytes

_MOST_BATCHES, _MOST_SECONDS, _MOST_LIST_BYTES = 96, 6.0, 400_000_000
_STRETCH_BATCHES, _FEWEST_STRETCHES = 8, 4
# Share of the budget for the trace; the rest is for neighbour lists, and for the batch that the model is measured on.
_MOST_SHARE = 0.25


def sample_short_trace(
    dataset: Dataset, workload: Workload, sizes: BatchSizes, budget: Budget, engine: Engine
) -> ShortTrace:
    """Sample some batches of a run, until a quarter of the budget, a few seconds or many reads of lists are spent."""
    seed_set = workload.seed_sets[0]
    id_dtype = np.dtype(np.uint32 if dataset.num_nodes < 2**32 else np.int64)
    trace_bytes = int(budget.available_bytes * _MOST_SHARE)
    most_batches = max(2, min(_MOST_BATCHES, trace_bytes // max(1, sizes.num_rows * id_dtype.itemsize)))
    node_ids: list[NDArray[np.uint32] | NodeIds] = []
    seconds: list[float] = []
    block_bytes = record_bytes = bytes_read = 0
    middle: SampledBatch | None = None
    sampling_bytes = sizes.workspace_bytes + sizes.hop_read_bytes + buffer_bytes(sizes.block_bytes)
    room_bytes = budget.available_bytes - trace_bytes - sampling_bytes
    files = lists_of(dataset, workload.samplers)
    with (
        budget.reserve("sampling", max(0, min(sampling_bytes, budget.available_bytes))),
        open_lists(files, engine, budget, room_bytes) as lists,
    ):
        sampler = open_sampler(lists, seed_set.sampler, workload.seed)
        began = time.perf_counter()
        # A run of several short epochs needs two in the trace: the second one finds the cache that the first one left.
        num_batches = workload.num_batches * (1 if workload.epochs == 1 or workload.reuse else 2)
        for number, seeds in _batches(workload, min(most_batches, num_batches)):
            started = time.thread_time()
            batch = sampler.sample(
                seeds.rows,
                purpose=seed_set.purpose,
                epoch=number // workload.num_batches,
                number=number,
                times=seeds.times,
            )
            seconds.append(_without_reading(time.thread_time() - started, batch))
            node_ids.append(np.sort(batch.row_ids).astype(id_dtype))
            block_bytes += batch.num_bytes
            record_bytes += describe_batch(batch, dataset.num_nodes).num_bytes
            bytes_read += batch.topology_bytes_read
            if len(node_ids) <= 2:
                middle = batch
            is_enough = time.perf_counter() - began > _MOST_SECONDS or bytes_read > _MOST_LIST_BYTES
            if len(node_ids) > 1 and is_enough:
                break
        assert middle is not None, "an epoch has a batch"
    count = len(node_ids)
    return ShortTrace(
        node_ids=tuple(node_ids),
        block_bytes=block_bytes / count,
        record_bytes=record_bytes / count,
        # The first batch also allocates working memory.
        sample_seconds=float(np.median(seconds[1:] or seconds)),
        middle=middle,
    )


def _without_reading(seconds: float, batch: SampledBatch) -> float:
    """Return the CPU seconds of sampling a batch as if its lists were in memory, at least half of those it took."""
    if not batch.topology_reads:
        return seconds
    cores = CoreSeconds()
    reading = batch.topology_reads * cores.read + sum(batch.num_sampled_edges) * cores.join_row
    return max(seconds - reading, seconds / 2)


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

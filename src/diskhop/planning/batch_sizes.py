"""Measuring the sizes of mini-batches on a few of them, because the worst case of the fan-outs exceeds any budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from diskhop.batches.record import describe_batch
from diskhop.batches.sizes import HEADROOM, BatchSizes
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.io.engine import open_engine
from diskhop.planning.lists_on_disk import open_lists
from diskhop.protocols import NodeIds, Purpose, SampledBatch, Sampler
from diskhop.sampling.samplers import lists_of, open_sampler
from diskhop.sampling.seeds import SeedSet

_MEASURED_BATCHES = 5
# Batches with many edges are alike: no more of a pass are sampled once they have this number of edges.
_ENOUGH_EDGES = 500_000
# A small batch has one seed of this many.
SMALL = 16


def measure_batches(dataset: Dataset, seed_sets: Sequence[SeedSet], seed: int, memory_bytes: int) -> BatchSizes:
    """Sample a few batches of every seed set and return the largest sizes, with headroom.

    memory_bytes: of the run, of which neighbour lists take a half at most.
    """
    most_block_bytes = most_record_bytes = most_nodes = most_hop_bytes = workspace_bytes = 0
    repeats_nodes = False
    most_ids: NodeIds = np.empty(0, np.int64)
    for _, sampler, batches in _sample_some(dataset, seed_sets, seed, memory_bytes, fewest=2):
        for batch in batches:
            most_block_bytes = max(most_block_bytes, batch.num_bytes + batch.repeating_bytes)
            most_nodes = max(most_nodes, batch.num_nodes)
            repeats_nodes |= batch.distinct is not None
            record = describe_batch(batch, dataset.num_nodes)
            most_record_bytes = max(most_record_bytes, record.num_bytes)
            most_ids = max(most_ids, batch.row_ids, key=len)
        most_hop_bytes = max(most_hop_bytes, sampler.reading_bytes)
        workspace_bytes = max(workspace_bytes, sampler.workspace_bytes)
    return BatchSizes(
        block_bytes=int(most_block_bytes * HEADROOM),
        record_bytes=int(most_record_bytes * HEADROOM),
        num_nodes=int(most_nodes * HEADROOM),
        num_rows=int(len(most_ids) * HEADROOM),
        node_ids=np.sort(most_ids),
        hop_read_bytes=int(most_hop_bytes * HEADROOM),
        workspace_bytes=int(workspace_bytes * HEADROOM),
        repeats_nodes=repeats_nodes,
    )


class Probe(NamedTuple):
    """A large batch of a pass, and a small one that shows what the large one will take."""

    purpose: Purpose
    small: SampledBatch
    large: SampledBatch


def sample_probes(dataset: Dataset, seed_sets: Sequence[SeedSet], seed: int, memory_bytes: int) -> list[Probe]:
    """Return the largest batch of each seed set, of some that measure_batches() samples, and a small one."""
    probes = []
    for seed_set, sampler, batches in _sample_some(dataset, seed_sets, seed, memory_bytes, fewest=1):
        large = max(batches, key=lambda batch: batch.num_bytes)
        seeds = seed_set.typical_batch(0)
        count = max(1, len(seeds.rows) // SMALL)
        times = None if seeds.times is None else seeds.times[:count]
        small = sampler.sample(seeds.rows[:count], purpose=seed_set.purpose, epoch=0, number=0, times=times)
        probes.append(Probe(seed_set.purpose, small, large))
    return probes


def _sample_some(
    dataset: Dataset, seed_sets: Sequence[SeedSet], seed: int, memory_bytes: int, *, fewest: int
) -> Iterator[tuple[SeedSet, Sampler, Iterator[SampledBatch]]]:
    """Yield each seed set with its sampler and a few batches."""
    files = lists_of(dataset, [seed_set.sampler for seed_set in seed_sets])
    # Nothing else of the run is in memory yet.
    budget = Budget(max(1, memory_bytes // 2))
    with open_lists(files, open_engine().engine, budget, budget.total_bytes) as topology:
        for seed_set in seed_sets:
            sampler = open_sampler(topology, seed_set.sampler, seed)
            yield seed_set, sampler, _batches_of(seed_set, sampler, fewest)


def _batches_of(seed_set: SeedSet, sampler: Sampler, fewest: int) -> Iterator[SampledBatch]:
    num_edges = 0
    for count, (number, seeds) in enumerate(seed_set.some_batches(_MEASURED_BATCHES)):
        if count >= fewest and num_edges >= _ENOUGH_EDGES:
            return
        batch = sampler.sample(seeds.rows, purpose=seed_set.purpose, epoch=0, number=number, times=seeds.times)
        num_edges += sum(batch.num_sampled_edges)
        yield batch

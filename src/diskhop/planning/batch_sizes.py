"""Measuring the sizes of mini-batches on a few of them, because the worst case of the fan-outs exceeds any budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diskhop.batches.record import describe_batch
from diskhop.batches.sizes import HEADROOM, BatchSizes
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.io.engine import open_engine
from diskhop.protocols import NodeIds
from diskhop.sampling.samplers import lists_of, open_sampler
from diskhop.sampling.seeds import SeedSet
from diskhop.sampling.topology import open_topology

_MEASURED_BATCHES = 5


def measure_batches(dataset: Dataset, seed_sets: Sequence[SeedSet], seed: int) -> BatchSizes:
    """Sample a few batches of every seed set and return the largest sizes, with headroom."""
    most_block_bytes = most_record_bytes = most_nodes = most_hop_bytes = workspace_bytes = 0
    repeats_nodes = False
    most_ids: NodeIds = np.empty(0, np.int64)
    # Mapped, since nothing is reserved yet; the OS may keep the pages it touches.
    engine = open_engine("threads", 1).engine
    files = lists_of(dataset, [seed_set.sampler for seed_set in seed_sets])
    with open_topology(files, "mapped", engine, Budget(1)) as topology:
        for seed_set in seed_sets:
            sampler = open_sampler(topology, seed_set.sampler, seed)
            for number, seeds in seed_set.some_batches(_MEASURED_BATCHES):
                batch = sampler.sample(seeds.rows, purpose=seed_set.purpose, epoch=0, number=number, times=seeds.times)
                most_block_bytes = max(most_block_bytes, batch.num_bytes + batch.repeating_bytes)
                most_nodes = max(most_nodes, batch.num_nodes)
                repeats_nodes |= batch.distinct is not None
                record = describe_batch(batch, topology.num_nodes)
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

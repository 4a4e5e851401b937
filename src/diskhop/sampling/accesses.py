"""Estimates how often each feature row will be requested, from a few sampled batches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.seeds import SeedSet

_MEASURED_BATCHES = 40
# A count of 32 or 64 bits, and the working memory of choosing the highest.
COUNTING_BYTES_PER_NODE = 24


def count_accesses(topology: AnyTopology, seed_set: SeedSet) -> NDArray[np.uint32]:
    """Count for each row (nodes) how many of about 40 sampled batches request it."""
    counts = np.zeros(topology.num_nodes, np.uint32)
    sampler = open_sampler(topology, seed_set.sampler, seed=0)
    for number, seeds in seed_set.some_batches(_MEASURED_BATCHES):
        batch = sampler.sample(seeds.rows, purpose=seed_set.purpose, epoch=0, number=number, times=seeds.times)
        counts[batch.row_ids] += 1
    return counts

"""How often each row will probably be asked for, measured on a few batches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diskhop.sampling.cached_topology import CachedTopology
from diskhop.sampling.neighbor import NeighborSampler
from diskhop.sampling.seeds import SeedSet
from diskhop.sampling.topology import Topology

_MEASURED_BATCHES = 40
# A count of 32 or 64 bits, and what choosing the highest takes beside it.
COUNTING_BYTES_PER_NODE = 24


def count_accesses(topology: Topology | CachedTopology, seed_set: SeedSet) -> NDArray[np.uint32]:
    """How many of some sampled batches ask for each row."""
    counts = np.zeros(topology.num_nodes, np.uint32)
    sampler = NeighborSampler(topology, seed_set.fanouts, seed=0)
    for number, seeds in seed_set.some_batches(_MEASURED_BATCHES):
        batch = sampler.sample(seeds, purpose=seed_set.purpose, epoch=0, number=number)
        counts[batch.node_ids] += 1
    return counts

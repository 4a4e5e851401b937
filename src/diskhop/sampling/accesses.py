"""How often each row will probably be asked for, measured on a few batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop.protocols import NodeIds, Purpose
from diskhop.sampling.cached_topology import CachedTopology
from diskhop.sampling.neighbor import NeighborSampler
from diskhop.sampling.topology import Topology

_MEASURED_BATCHES = 40
# A count of 32 or 64 bits, and what choosing the highest takes beside it.
COUNTING_BYTES_PER_NODE = 24


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeedSet:
    """Batches that a run will ask for: which seeds, how many a batch, how many neighbours a hop (-1: all).

    is_shuffled: a batch's seeds come from anywhere; else they lie together.
    """

    purpose: Purpose
    seeds: NodeIds
    batch_size: int
    fanouts: tuple[int, ...]
    is_shuffled: bool

    def some_batches(self, count: int) -> Iterator[tuple[int, NodeIds]]:
        """About so many batches like those to come, each with its number: its seeds."""
        num_batches = -(-len(self.seeds) // self.batch_size)
        # Spread over the seeds: those at the front may be of one kind.
        for number in range(0, num_batches, max(1, num_batches // count)):
            if self.is_shuffled:
                yield number, self.seeds[number::num_batches]
            else:
                yield number, self.seeds[number * self.batch_size :][: self.batch_size]


def count_accesses(topology: Topology | CachedTopology, seed_set: SeedSet) -> NDArray[np.uint32]:
    """How many of some sampled batches ask for each row."""
    counts = np.zeros(topology.num_nodes, np.uint32)
    sampler = NeighborSampler(topology, seed_set.fanouts, seed=0)
    for number, seeds in seed_set.some_batches(_MEASURED_BATCHES):
        batch = sampler.sample(seeds, purpose=seed_set.purpose, epoch=0, number=number)
        counts[batch.node_ids] += 1
    return counts

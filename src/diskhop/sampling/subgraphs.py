"""Subgraphs of nodes that a sampler chose: all edges of the graph among them."""

from __future__ import annotations

from diskhop._native import BufferPool, NeighborOptions
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.core_sampler import CoreSampler


def make_inducer(topology: AnyTopology, pool: BufferPool) -> CoreSampler:
    """Make a sampler that draws nothing: its batches have the seeds, and all edges among them."""
    core = topology.make_sampler((), NeighborOptions(subgraph="induced"))
    return CoreSampler(core, topology.indices_path, 0, pool, by_hop=False)

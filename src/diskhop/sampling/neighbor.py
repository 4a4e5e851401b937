"""Uniform neighbour sampling without replacement: the sampler of GraphSAGE, with PyG's output."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diskhop._native import BufferPool
from diskhop.errors import ConfigError, FormatError
from diskhop.protocols import NodeIds, Purpose, SampledBatch
from diskhop.sampling.cached_topology import CachedTopology
from diskhop.sampling.topology import Topology


class NeighborSampler:
    """Draws up to fanouts[h] in-neighbours of every node first reached by hop h (ALL_NEIGHBORS: all of them).

    Draws depend on seed, purpose, epoch, batch number, hop and node alone. Safe to call from several threads.
    pool: where batches get their memory, and leave it to later ones; default: it is not used again.
    """

    def __init__(
        self,
        topology: Topology | CachedTopology,
        fanouts: Sequence[int],
        seed: int,
        pool: BufferPool | None = None,
    ) -> None:
        if not fanouts:
            raise ConfigError("fan-outs must name at least one hop, got none")
        for fanout in fanouts:
            if fanout == 0 or not -1 <= fanout < 2**31:
                raise ConfigError(f"each fan-out must be positive, or -1 for all neighbours, got {fanout}")
        if not 0 <= seed < 2**64:
            raise ConfigError(f"seed must be at least 0 and less than 2^64, got {seed}")
        self.fanouts = tuple(int(fanout) for fanout in fanouts)
        self._topology = topology
        self._seed = seed
        self._pool = pool or BufferPool(0)
        self._core = topology.make_sampler(self.fanouts)

    @property
    def workspace_bytes(self) -> int:
        """What a thread that samples holds besides its batch: the most that one needed so far."""
        return self._core.workspace_bytes

    def sample(self, seeds: NodeIds, *, purpose: Purpose, epoch: int, number: int) -> SampledBatch:
        """See Sampler. Raises ConfigError for seeds that are repeated or not nodes, FormatError for damaged lists.

        A cached topology also raises ReadError, naming file and offset.
        """
        try:
            sampled = self._core.sample(
                np.ascontiguousarray(seeds, dtype=np.int64), self._seed, purpose, epoch, number, self._pool
            )
        except ValueError as error:
            raise ConfigError(f"batch {number} cannot be sampled: {error}") from error
        except IndexError as error:
            raise FormatError(f"{self._topology.indices_path}: {error}; run 'diskhop verify'") from error
        node_ids, indptr, sources, edge_positions, num_sampled_nodes, num_sampled_edges, reads, bytes_read = sampled
        return SampledBatch(
            number=number,
            num_seeds=len(seeds),
            node_ids=node_ids,
            indptr=indptr,
            sources=sources,
            edge_positions=edge_positions,
            num_sampled_nodes=tuple(num_sampled_nodes),
            num_sampled_edges=tuple(num_sampled_edges),
            topology_reads=reads,
            topology_bytes_read=bytes_read,
        )

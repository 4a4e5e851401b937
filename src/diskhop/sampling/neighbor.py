"""Uniform neighbour sampling without replacement: the sampler of GraphSAGE, with PyG's output."""

from __future__ import annotations

import numpy as np

from diskhop._native import BufferPool
from diskhop.config.train import FANOUT
from diskhop.errors import ConfigError, FormatError
from diskhop.protocols import NEIGHBOR, NodeIds, Purpose, SampledBatch, SamplerSpec, SeedTimes, neighbor_spec
from diskhop.sampling.cached_topology import AnyTopology, hop_read_bytes
from diskhop.sampling.kind import SamplerKind


def check_fanouts(spec: SamplerSpec) -> None:
    """Raise ConfigError for a spec without hops, with an invalid fan-out or with parameters."""
    if not spec.fanouts or not FANOUT.holds(spec.fanouts):
        raise ConfigError(
            f"fan-outs must be one or more {FANOUT.text}, got {list(spec.fanouts)}; for example {FANOUT.example}"
        )
    if spec.parameters:
        names = ", ".join(name for name, _ in spec.parameters)
        raise ConfigError(f"the sampler '{NEIGHBOR}' has no parameters, got {names}; leave them out")


class NeighborSampler:
    """Draws up to fanouts[h] in-neighbours of every node first reached by hop h (-1: all of them).

    Draws depend only on seed, purpose, epoch, batch number, hop and node. Several threads may sample at once.
    """

    def __init__(self, topology: AnyTopology, spec: SamplerSpec, seed: int, pool: BufferPool) -> None:
        self._indices_path = topology.indices_path
        self._seed = seed
        self._pool = pool
        self._core = topology.make_sampler(spec.fanouts)
        self._reading_bytes = 0

    @property
    def workspace_bytes(self) -> int:
        """See Sampler."""
        return self._core.workspace_bytes

    @property
    def reading_bytes(self) -> int:
        """See Sampler."""
        return self._reading_bytes

    def sample(
        self, seeds: NodeIds, *, purpose: Purpose, epoch: int, number: int, times: SeedTimes = None
    ) -> SampledBatch:
        """See Sampler. Raises ConfigError for seeds that repeat or are no nodes, FormatError for damaged lists.

        With a cached topology it also raises ReadError, naming file and offset.
        """
        try:
            sampled = self._core.sample(
                np.ascontiguousarray(seeds, dtype=np.int64), self._seed, purpose, epoch, number, self._pool
            )
        except ValueError as error:
            raise ConfigError(f"batch {number} cannot be sampled: {error}") from error
        except IndexError as error:
            raise FormatError(f"{self._indices_path}: {error}; run 'diskhop verify'") from error
        node_ids, indptr, sources, edge_positions, num_sampled_nodes, num_sampled_edges, reads, bytes_read = sampled
        hops = zip(num_sampled_nodes, num_sampled_edges, strict=False)
        self._reading_bytes = max(self._reading_bytes, *(hop_read_bytes(*hop) for hop in hops))
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


KIND = SamplerKind(
    name=NEIGHBOR,
    check=check_fanouts,
    open=NeighborSampler,
    examples=(neighbor_spec((4, 3)), neighbor_spec((-1,))),
)

"""A native sampler as the Sampler of the package: its arrays become batches, its exceptions errors with a next step."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from diskhop._native import BufferPool
from diskhop._native import NeighborSampler as NativeSampler
from diskhop.errors import ConfigError, FormatError
from diskhop.protocols import DistinctRows, NodeIds, Purpose, SampledBatch, SeedTimes


class CoreSampler:
    """Several threads may sample at once.

    core: samples the batches.
    indices_path: the file to name where neighbour lists are damaged.
    seed: of the draws, 64 bits.
    pool: memory of batches.
    is_disjoint: whether every seed has a subgraph of its own.
    by_hop: see SampledBatch.
    has_weights: whether edges have weights.
    """

    def __init__(
        self,
        core: NativeSampler,
        indices_path: Path,
        seed: int,
        pool: BufferPool,
        *,
        is_disjoint: bool = False,
        by_hop: bool = True,
        has_weights: bool = False,
    ) -> None:
        self._core = core
        self._indices_path = indices_path
        self._seed = seed
        self._pool = pool
        self._is_disjoint = is_disjoint
        self._by_hop = by_hop
        self._has_weights = has_weights

    @property
    def workspace_bytes(self) -> int:
        """See Sampler."""
        return self._core.workspace_bytes

    @property
    def reading_bytes(self) -> int:
        """See Sampler."""
        return self._core.reading_bytes

    def sample(
        self, seeds: NodeIds, *, purpose: Purpose, epoch: int, number: int, times: SeedTimes = None
    ) -> SampledBatch:
        """See Sampler. Raises ConfigError for seeds that are no nodes and for repeated ones.

        Raises FormatError for damaged lists. With a cached topology it also raises ReadError, naming file and offset.
        """
        nodes = np.ascontiguousarray(seeds, dtype=np.int64)
        latest = None if times is None else np.ascontiguousarray(times, dtype=np.int64)
        try:
            sampled = self._core.sample(nodes, self._seed, purpose, epoch, number, self._pool, latest)
        except ValueError as error:
            self._refuse_columns()
            raise ConfigError(f"batch {number} cannot be sampled: {error}") from error
        except IndexError as error:
            raise FormatError(f"{self._indices_path}: {error}; run 'diskhop verify'") from error
        node_ids, indptr, sources, edge_positions, num_sampled_nodes, num_sampled_edges = sampled[:6]
        reads, bytes_read, seed_of, row_ids, node_rows, edge_weights = sampled[6:]
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
            edge_weights=edge_weights if self._has_weights else None,
            seed_of=seed_of if self._is_disjoint else None,
            distinct=DistinctRows(row_ids, node_rows) if self._is_disjoint else None,
            by_hop=self._by_hop,
        )

    def _refuse_columns(self) -> None:
        """Raise ConfigError for a bad value of a column that draws depend on, if that is why a batch failed."""

"""Neighbour sampling: the sampler of GraphSAGE, with PyG's output and PyG's ways to draw."""

from __future__ import annotations

import numpy as np

from diskhop._native import BufferPool, NeighborOptions
from diskhop.config.train import FANOUT
from diskhop.errors import ConfigError, FormatError
from diskhop.protocols import (
    NEIGHBOR,
    DistinctRows,
    NodeIds,
    Purpose,
    SampledBatch,
    SamplerSpec,
    SeedTimes,
    neighbor_spec,
)
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.columns import TIMES, WEIGHTS, Columns, ColumnUse, refuse_weights
from diskhop.sampling.kind import SamplerKind
from diskhop.sampling.neighbor_ways import NeighborWays, ways_of

_BLOCK_BYTES = 4 << 20


def check_fanouts(spec: SamplerSpec) -> None:
    """Raise ConfigError for a spec without hops, with an invalid fan-out or with unknown parameters."""
    if not spec.fanouts or not FANOUT.holds(spec.fanouts):
        raise ConfigError(
            f"fan-outs must be one or more {FANOUT.text}, got {list(spec.fanouts)}; for example {FANOUT.example}"
        )
    ways_of(spec)


def columns_of(spec: SamplerSpec) -> tuple[ColumnUse, ...]:
    """Return the weights and times that a sampler draws by."""
    return ways_of(spec).columns


class NeighborSampler:
    """Draws up to fanouts[h] in-neighbours of every node first reached by hop h (-1: all of them).

    Draws depend only on seed, purpose, epoch, batch number, hop and node, and on the number of the seed in its batch if
    every seed has a subgraph of its own. Several threads may sample at once.
    """

    def __init__(self, topology: AnyTopology, spec: SamplerSpec, seed: int, pool: BufferPool) -> None:
        self._indices_path = topology.indices_path
        self._columns = topology.columns
        self._seed = seed
        self._pool = pool
        ways = ways_of(spec)
        self._is_disjoint, self._by_hop = ways.is_disjoint, ways.by_hop
        options = None if spec.is_neighbor else _options_of(ways, topology.columns)
        self._core = topology.make_sampler(spec.fanouts, options)

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
        """See Sampler. Raises ConfigError for seeds that are no nodes, repeated ones and bad weights.

        Raises FormatError for damaged lists. With a cached topology it also raises ReadError, naming file and offset.
        """
        nodes = np.ascontiguousarray(seeds, dtype=np.int64)
        latest = None if times is None else np.ascontiguousarray(times, dtype=np.int64)
        try:
            sampled = self._core.sample(nodes, self._seed, purpose, epoch, number, self._pool, latest)
        except ValueError as error:
            self._refuse_weights()
            raise ConfigError(f"batch {number} cannot be sampled: {error}") from error
        except IndexError as error:
            raise FormatError(f"{self._indices_path}: {error}; run 'diskhop verify'") from error
        node_ids, indptr, sources, edge_positions, num_sampled_nodes, num_sampled_edges = sampled[:6]
        reads, bytes_read, seed_of, row_ids, node_rows = sampled[6:]
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
            seed_of=seed_of if self._is_disjoint else None,
            distinct=DistinctRows(row_ids, node_rows) if self._is_disjoint else None,
            by_hop=self._by_hop,
        )

    def _refuse_weights(self) -> None:
        """Raise ConfigError for the first bad weight, by the source's number of its edge."""
        if WEIGHTS in self._columns:
            file = self._columns[WEIGHTS].file
            with file.path.open("rb") as opened:
                blocks = iter(lambda: opened.read(_BLOCK_BYTES), b"")
                refuse_weights(file, (np.frombuffer(block, np.uint8) for block in blocks))


def _options_of(ways: NeighborWays, columns: Columns) -> NeighborOptions:
    for wanted in ways.columns:
        if wanted.use not in columns:
            raise ConfigError(f"the topology was opened without {wanted.use}, which the sampler draws by")
    weights = columns[WEIGHTS].numbers if ways.weights else None
    times = columns[TIMES] if ways.times else None
    return NeighborOptions(
        replaces=ways.replace,
        is_disjoint=ways.is_disjoint,
        takes_latest=ways.strategy == "last",
        subgraph=ways.subgraph,
        weights=weights,
        edge_times=times.numbers if times is not None and times.file.of == "edges" else None,
        node_times=times.numbers if times is not None and times.file.of == "nodes" else None,
    )


KIND = SamplerKind(
    name=NEIGHBOR,
    check=check_fanouts,
    open=NeighborSampler,
    columns=columns_of,
    examples=(
        neighbor_spec((4, 3)),
        neighbor_spec((-1,)),
        NeighborWays(replace=True).spec((4, 3)),
        NeighborWays(disjoint=True).spec((4, 3)),
        NeighborWays(subgraph="bidirectional").spec((4, 3)),
        NeighborWays(subgraph="induced").spec((4, 3)),
        NeighborWays(disjoint=True, replace=True, subgraph="induced").spec((3, 2)),
        NeighborWays(disjoint=True, subgraph="bidirectional").spec((-1,)),
    ),
)

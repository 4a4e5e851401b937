"""Neighbour sampling: the sampler of GraphSAGE, with PyG's output and PyG's ways to draw."""

from __future__ import annotations

import numpy as np

from diskhop._native import BufferPool, NeighborOptions
from diskhop.errors import ConfigError
from diskhop.protocols import NEIGHBOR, SamplerSpec, neighbor_spec
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.columns import TIMES, WEIGHTS, Columns, ColumnUse, refuse_weights
from diskhop.sampling.core_sampler import CoreSampler
from diskhop.sampling.kind import SamplerKind, check_counts
from diskhop.sampling.neighbor_ways import NeighborWays, ways_of
from diskhop.sampling.type_fanouts import fanouts_by_type, flat_fanouts, without_fanouts

_BLOCK_BYTES = 4 << 20


def check_fanouts(spec: SamplerSpec) -> None:
    """Raise ConfigError for an invalid fan-out or unknown parameters. A batch of no hops has seeds alone."""
    if spec.fanouts:
        check_counts(spec)
    fanouts_by_type(spec)
    ways_of(without_fanouts(spec))


def columns_of(spec: SamplerSpec) -> tuple[ColumnUse, ...]:
    """Return the weights and times that a sampler draws by."""
    return ways_of(without_fanouts(spec)).columns


class NeighborSampler(CoreSampler):
    """Draws up to fanouts[h] in-neighbours of every node first reached by hop h (-1: all of them).

    Draws depend only on seed, purpose, epoch, batch number, hop and node, and on the number of the seed in its batch if
    every seed has a subgraph of its own. Several threads may sample at once.
    """

    def __init__(self, topology: AnyTopology, spec: SamplerSpec, seed: int, pool: BufferPool) -> None:
        ways = ways_of(without_fanouts(spec))
        options = None if ways == NeighborWays() else _options_of(ways, topology.columns)
        core = topology.make_sampler(flat_fanouts(spec, topology.types), options)
        super().__init__(core, topology.indices_path, seed, pool, is_disjoint=ways.is_disjoint, by_hop=ways.by_hop)
        self._columns = topology.columns

    def _refuse_columns(self) -> None:
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


def _refuse_types(spec: SamplerSpec) -> str:
    if ways_of(without_fanouts(spec)).subgraph == "bidirectional":
        return "the opposite of an edge is of another type; use reverse edge types, or subgraph_type='directional'"
    return ""


KIND = SamplerKind(
    name=NEIGHBOR,
    check=check_fanouts,
    open=NeighborSampler,
    columns=columns_of,
    refuses_types=_refuse_types,
    examples=(
        neighbor_spec((4, 3)),
        neighbor_spec((-1,)),
        neighbor_spec(()),
        NeighborWays(replace=True).spec((4, 3)),
        NeighborWays(disjoint=True).spec((4, 3)),
        NeighborWays(subgraph="bidirectional").spec((4, 3)),
        NeighborWays(subgraph="induced").spec((4, 3)),
        NeighborWays(disjoint=True, replace=True, subgraph="induced").spec((3, 2)),
        NeighborWays(disjoint=True, subgraph="bidirectional").spec((-1,)),
    ),
)

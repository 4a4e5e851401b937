"""A sampler without random draws: the first neighbours of every list, from the parameter `skip` on.

With `disjoint` every seed has a subgraph of its own; with `weights` every edge has an importance.
"""

from __future__ import annotations

import numpy as np

from diskhop._native import BufferPool
from diskhop.errors import ConfigError
from diskhop.protocols import NodeIds, Purpose, SampledBatch, SamplerSpec, SeedTimes
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.kind import SamplerKind
from diskhop.sampling.topology import Topology
from tests.unit.batches import distinct_rows


class FirstNeighbors:
    def __init__(self, topology: Topology, spec: SamplerSpec) -> None:
        self._topology = topology
        self._fanouts = spec.fanouts
        parameters = dict(spec.parameters)
        self._skip = int(parameters.get("skip", 0))
        self._is_disjoint = bool(parameters.get("disjoint", 0))
        self._is_weighted = bool(parameters.get("weights", 0))

    @property
    def workspace_bytes(self) -> int:
        return 0

    @property
    def reading_bytes(self) -> int:
        return 0

    def sample(
        self, seeds: NodeIds, *, purpose: Purpose, epoch: int, number: int, times: SeedTimes = None
    ) -> SampledBatch:
        indptr, indices = self._topology.indptr, self._topology.indices
        # A node of a disjoint batch is one of its seed's.
        owners = [seed if self._is_disjoint else 0 for seed in range(len(seeds))]
        nodes = [int(seed) for seed in seeds]
        local = {(owner, node): place for place, (owner, node) in enumerate(zip(owners, nodes, strict=True))}
        starts, nodes_by_hop = [0], [len(nodes)]
        sources: list[int] = []
        positions: list[int] = []
        edges_by_hop: list[int] = []
        for hop, fanout in enumerate(self._fanouts):
            for place in range(sum(nodes_by_hop[:hop]), sum(nodes_by_hop)):
                node, owner = nodes[place], owners[place]
                begin, end = indptr[node] + self._skip, indptr[node + 1]
                for position in range(begin, min(end, begin + fanout)):
                    neighbor = (owner, int(indices[position]))
                    if neighbor not in local:
                        local[neighbor] = len(nodes)
                        nodes.append(neighbor[1])
                        owners.append(owner)
                    sources.append(local[neighbor])
                    positions.append(position)
                starts.append(len(sources))
            nodes_by_hop.append(len(nodes) - sum(nodes_by_hop))
            edges_by_hop.append(len(sources) - sum(edges_by_hop))
        node_ids = np.array(nodes, np.int64)
        return SampledBatch(
            number=number,
            num_seeds=len(seeds),
            node_ids=node_ids,
            indptr=np.array(starts, np.int64),
            sources=np.array(sources, np.int32),
            edge_positions=np.array(positions, np.int64),
            num_sampled_nodes=tuple(nodes_by_hop),
            num_sampled_edges=tuple(edges_by_hop),
            edge_weights=np.arange(len(sources)).astype(np.float32) if self._is_weighted else None,
            seed_of=np.array(owners, np.int64) if self._is_disjoint else None,
            distinct=distinct_rows(node_ids) if self._is_disjoint else None,
        )


def check(spec: SamplerSpec) -> None:
    if any(fanout < 1 for fanout in spec.fanouts):
        raise ConfigError(f"fan-outs of first neighbours must be at least 1, got {list(spec.fanouts)}")


def open_first(topology: AnyTopology, spec: SamplerSpec, _seed: int, _pool: BufferPool) -> FirstNeighbors:
    assert isinstance(topology, Topology), "the toy reads whole lists"
    return FirstNeighbors(topology, spec)


KIND = SamplerKind(
    name="first",
    check=check,
    open=open_first,
    examples=(
        SamplerSpec("first", (3, 2), (("skip", 1.0),)),
        SamplerSpec("first", (3, 2), (("disjoint", 1.0),)),
        SamplerSpec("first", (2, 2), (("weights", 1.0),)),
        SamplerSpec("first", (2, 2), (("disjoint", 1.0), ("skip", 1.0), ("weights", 1.0))),
    ),
)

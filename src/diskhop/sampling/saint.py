"""GraphSAINT (Zeng et al., 2020): batches are subgraphs of nodes that are drawn again for each.

saint-node: nodes in proportion to their in-degree, with replacement.
saint-edge: nodes with in-edges, uniformly with replacement, each with one of its in-neighbours. Of a graph with all
    opposite edges, an edge between u and v is then drawn in proportion to 1 / deg(u) + 1 / deg(v), as in the paper.
saint-walk: nodes, uniformly with replacement, and random walks from them along in-edges.

A batch has each of the drawn nodes once, and all edges of the graph among them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from diskhop._native import BufferPool, NeighborOptions
from diskhop.config.options import require
from diskhop.config.sampler import SAINT_EDGE, SAINT_NODE, SAINT_WALK
from diskhop.errors import ConfigError
from diskhop.protocols import NodeIds, Purpose, SampledBatch, SamplerSpec, SeedTimes
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.core_sampler import CoreSampler
from diskhop.sampling.keyed import draw_below, key_of
from diskhop.sampling.kind import SamplerKind
from diskhop.sampling.starts import EpochKey, Starts, numbered_starts
from diskhop.sampling.subgraphs import make_inducer

DRAWS, LENGTH = "draws", "length"
# Of a draw: its node, the next one, sorting, and what the core gives for a step.
_BYTES_PER_DRAW = 160
# Keys the steps of walks, so that none shares draws with neighbour sampling.
_WALKING = 0x5341494E54


def saint_spec(kind: str, draws: int, length: int = 0) -> SamplerSpec:
    """Return a GraphSAINT sampler. draws: nodes, edges or walks per batch. length: steps of a walk."""
    parameters = ((DRAWS, draws), (LENGTH, length)) if kind == SAINT_WALK else ((DRAWS, draws),)
    return SamplerSpec(kind, (), parameters)


def check_saint(spec: SamplerSpec) -> None:
    """Raise ConfigError for a spec with other parameters than saint_spec() gives it."""
    known = (DRAWS, LENGTH) if spec.kind == SAINT_WALK else (DRAWS,)
    if tuple(name for name, _ in spec.parameters) != known or spec.fanouts:
        raise ConfigError(
            f"the sampler '{spec.kind}' needs the parameters {', '.join(known)} and no fan-outs, got "
            f"{list(spec.parameters)} and {list(spec.fanouts)}; for example {dict.fromkeys(known, 2)}"
        )
    for name, value in spec.parameters:
        is_count = isinstance(value, int) and value >= 1
        require(is_count, name, "a whole number of at least 1", value, f"for example ({name!r}, 2)")


class SaintSampler:
    """Draws the nodes of batches and takes all edges among them.

    A batch depends on seed, purpose, epoch and number alone; the seeds that it is asked for have no effect. Several
    threads may sample at once.
    """

    def __init__(self, topology: AnyTopology, spec: SamplerSpec, seed: int, pool: BufferPool) -> None:
        parameters = dict(spec.parameters)
        self._kind = spec.kind
        self._num_draws = int(parameters[DRAWS])
        num_steps = {SAINT_NODE: 0, SAINT_EDGE: 1}.get(spec.kind, int(parameters.get(LENGTH, 0)))
        self._topology = topology
        self._seed = seed
        self._inducer = make_inducer(topology, pool)
        self._steps: list[CoreSampler] = []
        if num_steps:
            walker = topology.make_sampler((1,), NeighborOptions(is_disjoint=True))
            keys = (key_of((_WALKING, seed, step)) for step in range(num_steps))
            self._steps = [CoreSampler(walker, topology.indices_path, key, pool, is_disjoint=True) for key in keys]

    @property
    def workspace_bytes(self) -> int:
        """See Sampler."""
        drawing_bytes = _BYTES_PER_DRAW * self._num_draws * (1 + len(self._steps))
        walking_bytes = self._steps[0].workspace_bytes if self._steps else 0
        return drawing_bytes + walking_bytes + self._inducer.workspace_bytes

    @property
    def reading_bytes(self) -> int:
        """See Sampler."""
        return max(each.reading_bytes for each in (*self._steps[:1], self._inducer))

    def sample(
        self, seeds: NodeIds, *, purpose: Purpose, epoch: int, number: int, times: SeedTimes = None
    ) -> SampledBatch:
        """See Sampler. Raises FormatError for damaged lists, and ReadError with lists on disk."""
        current = self._draw_roots(key_of((self._seed, purpose, epoch, number)))
        visited = [current]
        reads = bytes_read = 0
        for step in self._steps if len(current) else []:
            drawn = step.sample(current, purpose=purpose, epoch=epoch, number=number)
            moves = np.diff(drawn.indptr[: len(current) + 1]) > 0
            current = current.copy()
            current[moves] = drawn.node_ids[drawn.sources]
            reads, bytes_read = reads + drawn.topology_reads, bytes_read + drawn.topology_bytes_read
            visited.append(current)
        nodes = np.unique(np.concatenate(visited))
        batch = self._inducer.sample(nodes, purpose=purpose, epoch=epoch, number=number)
        return replace(
            batch,
            topology_reads=batch.topology_reads + reads,
            topology_bytes_read=batch.topology_bytes_read + bytes_read,
        )

    def _draw_roots(self, key: int) -> NodeIds:
        """Draw the nodes of a batch, or those that its walks start from."""
        indptr = self._topology.indptr
        if self._kind == SAINT_NODE and self._topology.num_edges > 0:
            edges = draw_below(self._topology.num_edges, self._num_draws, key)
            return np.searchsorted(indptr, edges, "right").astype(np.int64) - 1
        roots = draw_below(self._topology.num_nodes, self._num_draws, key)
        if self._kind == SAINT_EDGE:
            with_edges = roots[indptr[roots + 1] > indptr[roots]]
            return with_edges if len(with_edges) else roots
        return roots


def saint_starts(nodes_per_draw: int, spec: SamplerSpec, key: EpochKey) -> Starts:
    """Return the starts of an epoch: as many batches as draw each node once on average."""
    parameters = dict(spec.parameters)
    nodes_per_batch = int(parameters[DRAWS]) * (nodes_per_draw + int(parameters.get(LENGTH, 0)))
    return numbered_starts(-(-key.num_nodes // nodes_per_batch))


def _kind(name: str, nodes_per_draw: int, *examples: SamplerSpec) -> SamplerKind:
    return SamplerKind(
        name=name,
        check=check_saint,
        open=SaintSampler,
        starts=partial(saint_starts, nodes_per_draw),
        chooses_nodes=True,
        examples=examples,
    )


KINDS = (
    _kind(SAINT_NODE, 1, saint_spec(SAINT_NODE, 150)),
    _kind(SAINT_EDGE, 2, saint_spec(SAINT_EDGE, 100)),
    _kind(SAINT_WALK, 1, saint_spec(SAINT_WALK, 60, 3)),
)

"""The interfaces that samplers and feature stores implement, and the values that pass between them.

A *sampler* turns seed nodes into a `SampledBatch`. A *feature store* turns the batch's node ids into `Rows`. Neither
imports the other. Everything here is NumPy; torch is used only above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, NewType, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from diskhop.counters import FetchCounts

NodeIds = NDArray[np.int64]
# Node numbers of two kinds, which mypy keeps apart. IdMap (dataset/id_map.py) converts one to the other.
SourceIds = NewType("SourceIds", NDArray[np.int64])  # ids as in the source: all that users give or get
NodeRows = NewType("NodeRows", NDArray[np.int64])  # rows of the dataset's tables, which inner code uses
# A time per seed, int64 (seeds): no neighbour is later. None: the sampler knows the times of its seeds, or uses none.
# A sampler that arranges the batches of an epoch may give the numbers another meaning (sampling/marius.py).
SeedTimes = NDArray[np.int64] | None
Bytes = NDArray[np.uint8]

NEIGHBOR = "neighbor"


class Purpose(IntEnum):
    """The use of random draws. It is part of every draw's key, so that validation never changes training's draws."""

    TRAIN = 0
    VALID = 1
    TEST = 2
    INFER = 3
    NEGATIVES = 4
    BATCH_ORDER = 5


@dataclass(frozen=True, slots=True)
class SamplerSpec:
    """The choice of a sampler and its settings. With a seed, it determines every draw.

    kind: name in `sampling.samplers.SAMPLERS`.
    fanouts: neighbours drawn per hop, -1 for all.
    parameters: further settings of the kind, as (name, value) pairs: each name once, values are numbers or text.
    """

    kind: str
    fanouts: tuple[int, ...]
    parameters: tuple[tuple[str, float | str], ...] = ()

    @property
    def is_neighbor(self) -> bool:
        """True for the uniform neighbour sampler, which fan-outs alone describe."""
        return self.kind == NEIGHBOR and not self.parameters

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON. A neighbour sampler is written as its fan-outs alone."""
        if self.is_neighbor:
            return {"fanouts": list(self.fanouts)}
        return {"fanouts": list(self.fanouts), "sampler": self.kind, "parameters": dict(self.parameters)}


def neighbor_spec(fanouts: Sequence[int]) -> SamplerSpec:
    """The uniform neighbour sampler with these fan-outs."""
    return SamplerSpec(NEIGHBOR, tuple(fanouts))


@dataclass(frozen=True, slots=True, eq=False)
class DistinctRows:
    """The feature rows of a batch that has nodes repeatedly.

    ids: int64 (rows), each once.
    of_nodes: int64 (nodes), the place in ids of each node's row.
    """

    ids: NodeIds
    of_nodes: NDArray[np.int64]

    @property
    def num_bytes(self) -> int:
        """Bytes of memory of the arrays."""
        return self.ids.nbytes + self.of_nodes.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class SampledBatch:
    """One mini-batch's nodes and edges, as internal ids.

    Every node is expanded at most once, when it is first reached. Expanded nodes are therefore a prefix of node_ids,
    and edges are grouped by destination: the in-edges of local node i are indptr[i] to indptr[i + 1].
    In a disjoint batch every seed has a subgraph of its own, and a node of several subgraphs is in node_ids repeatedly.

    number: global number of the batch in its epoch.
    num_seeds: count of seed nodes, which come first in node_ids.
    node_ids: int64 (nodes); seeds, then nodes by hop in order of discovery.
    indptr: int64 (expanded nodes + 1).
    sources: int32 (edges), local ids.
    edge_positions: int64 (edges), positions in the dataset's `indices`.
    num_sampled_nodes: new nodes per hop, the seeds first (hops + 1).
    num_sampled_edges: edges per hop (hops).
    topology_reads: reads of neighbour lists on disk while sampling this batch.
    topology_bytes_read: bytes of those reads.
    edge_weights: float32 (edges), importance of each edge in sums over neighbours; None if all are 1.
    seed_of: int64 (nodes), number of the seed whose subgraph a node belongs to; None unless the batch is disjoint.
    distinct: the rows of a disjoint batch; None if node_ids has each node once.
    by_hop: True if layer i of L needs the edges of the first L - i hops alone. False if the batch has edges of all its
        nodes, which every layer needs: the last of num_sampled_nodes is then 0, and all nodes count as expanded.
    """

    number: int
    num_seeds: int
    node_ids: NodeIds
    indptr: NDArray[np.int64]
    sources: NDArray[np.int32]
    edge_positions: NDArray[np.int64]
    num_sampled_nodes: tuple[int, ...]
    num_sampled_edges: tuple[int, ...]
    topology_reads: int = 0
    topology_bytes_read: int = 0
    edge_weights: NDArray[np.float32] | None = None
    seed_of: NDArray[np.int64] | None = None
    distinct: DistinctRows | None = None
    by_hop: bool = True

    @property
    def num_nodes(self) -> int:
        """Number of nodes; a disjoint batch counts a node once per subgraph."""
        return len(self.node_ids)

    @property
    def row_ids(self) -> NodeIds:
        """The feature rows that the batch needs, each once, int64."""
        return self.node_ids if self.distinct is None else self.distinct.ids

    @property
    def num_rows(self) -> int:
        """Number of distinct rows."""
        return len(self.row_ids)

    @property
    def repeating_bytes(self) -> int:
        """Bytes of memory that it takes in addition to deliver the rows of a disjoint batch."""
        return 0 if self.distinct is None else self.distinct.of_nodes.nbytes

    @property
    def num_bytes(self) -> int:
        """Bytes of memory of the arrays."""
        arrays = (self.node_ids, self.indptr, self.sources, self.edge_positions, self.edge_weights, self.seed_of)
        num_bytes = sum(array.nbytes for array in arrays if array is not None)
        return num_bytes + (0 if self.distinct is None else self.distinct.num_bytes)


class Sampler(Protocol):
    """Expands seed nodes to mini-batches. Several threads may call it at once."""

    @property
    def workspace_bytes(self) -> int:
        """Bytes of working memory per sampling thread, besides the batch: the largest so far."""

    @property
    def reading_bytes(self) -> int:
        """Bytes of working memory per sampling thread to read lists on disk, as if none were cached: most so far."""

    def sample(
        self, seeds: NodeIds, *, purpose: Purpose, epoch: int, number: int, times: SeedTimes = None
    ) -> SampledBatch:
        """Sample the neighbourhood of internal ids; the same arguments always give the same batch.

        times: of the seeds, for a sampler of earlier neighbours; see SeedTimes. Seeds are unique unless each has a
        subgraph of its own.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Place of a feature table: row i is row_bytes bytes at offset i * row_stride of the file."""

    path: Path
    num_rows: int
    row_bytes: int
    row_stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart:
    """The feature table of one node type in a TableGroup.

    name: name of the node type.
    first_row: merged row of its first node (dataset/type_map.py).
    table: place of the rows.
    dtype, dim: dtype and number of values of a row.
    """

    name: str
    first_row: int
    table: Table
    dtype: str
    dim: int

    @property
    def made_bytes(self) -> int:
        """Bytes per row that decoding adds: int8 becomes float32."""
        return 4 * self.dim if self.dtype == "int8" else 0

    def find(self, merged_rows: NodeIds) -> tuple[NDArray[np.int64], NodeIds]:
        """Return the places of the rows that are this part's, ascending, and their rows in its table."""
        rows = merged_rows - self.first_row
        places = np.flatnonzero((rows >= 0) & (rows < self.table.num_rows))
        return places, rows[places]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGroup(Table):
    """The feature tables of a graph with types as one table, whose rows are the merged rows of all node types.

    Its path and row sizes are those of the part with the most bytes; its rows include those of types without features.
    parts: the types with features, ascending by first_row.
    """

    parts: tuple[TablePart, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RowSegment:
    """Rows in one buffer.

    buffer: uint8 (m, row bytes).
    from_rows: rows of the buffer to use, or None for 0, 1, 2 ...
    to_rows: rows of the batch that they are, or None for 0, 1, 2 ...
    """

    buffer: Bytes
    from_rows: NDArray[np.int64] | None = None
    to_rows: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The feature rows of one batch, in one or more buffers; valid until the store's release()."""

    num_rows: int
    row_bytes: int
    segments: tuple[RowSegment, ...]
    counts: FetchCounts = field(default_factory=FetchCounts)


@dataclass(frozen=True, slots=True, eq=False)
class GroupRows(Rows):
    """The feature rows of one batch of a graph with types; it has no segments of its own.

    parts: rows by node type, of those with features; row i of a part is that of the type's i-th row in `row_ids`.
    """

    parts: Mapping[str, Rows] = field(default_factory=dict)


TicketT = TypeVar("TicketT")
# A submission calls it once with the bytes that it needs; it returns when they may be allocated.
MakeRoom = Callable[[int], None]


class FeatureStore(Protocol[TicketT]):
    """Rows of one feature table, wherever they live. One caller submits; any thread may collect, cancel and release."""

    table: Table

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> TicketT:
        """Start fetching the distinct rows of a batch, once make_room() has granted the memory for them."""

    def collect(self, ticket: TicketT) -> Rows:
        """Wait for the rows of a submitted batch: row i of the batch is row_ids[i].

        The buffers stay valid until release(ticket). Raises ReadError, naming file and offset, if a read failed;
        no row of the batch is then valid.
        """

    def cancel(self, ticket: TicketT) -> None:
        """Drop interest in a batch: collect() may now fail instead of waiting for a long time."""

    def release(self, ticket: TicketT) -> None:
        """Return the batch's buffers; also for a ticket that was never collected or that failed."""

    def close(self) -> None:
        """Wait for reads in flight and free everything."""


class AccessTrace(Protocol):
    """The rows that a span of prefetched batches will request. Batches may be read repeatedly and in any order."""

    def __len__(self) -> int:
        """Number of batches."""

    def node_ids(self, index: int) -> NodeIds:
        """The distinct rows of one batch, int64."""


class LookAheadStore(FeatureStore[TicketT], Protocol[TicketT]):
    """A store that plans with a trace of coming batches. look_ahead() and submit() may run in different threads.

    growth: ratio of a superbatch's length to the previous one's, at least 1.5.
    """

    growth: float

    def start_pass(self) -> None:
        """Forget planned batches that were not submitted. No other call may be in progress."""

    def make_room(self, batch: SampledBatch) -> None:
        """Reserve the disk space of one batch of the next trace. Raises DestinationError for a full disk."""

    def free_disk(self) -> None:
        """Delete files that are kept only for reuse, when the disk has no space for a single batch."""

    def look_ahead(self, trace: AccessTrace, keep_on: Callable[[], None]) -> None:
        """Prepare for the batches of a trace, after make_room() for each. They are submitted next, in order.

        keep_on: called regularly; raises once the batches are no longer wanted.
        """

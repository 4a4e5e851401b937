"""The interfaces that strategies implement, and the values that pass between them.

A *sampler* turns seeds into a `SampledBatch`; a *feature store* turns its node ids into `Rows`. They meet only
here: neither imports the other. Everything is NumPy; torch appears where a model does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from diskhop.counters import FetchCounts

NodeIds = NDArray[np.int64]
Bytes = NDArray[np.uint8]


class Purpose(IntEnum):
    """What draws are for; part of every draw's key, so that validation never shifts training's draws."""

    TRAIN = 0
    VALID = 1
    TEST = 2
    INFER = 3
    NEGATIVES = 4
    BATCH_ORDER = 5


@dataclass(frozen=True, slots=True, eq=False)
class SampledBatch:
    """One mini-batch's nodes and edges, as internal ids.

    Every node is expanded at most once, when first reached, so that expanded nodes are a prefix of node_ids and
    edges are grouped by destination: the in-edges of local node i are indptr[i] to indptr[i + 1].

    number: the global batch number in its epoch. num_seeds: the first nodes are the seeds.
    node_ids: int64 (nodes); seeds, then nodes by hop in order of discovery.
    indptr: int64 (expanded nodes + 1). sources: int32 (edges), local ids. edge_positions: int64 (edges), positions
    in the dataset's `indices`. num_sampled_nodes: per hop, the seeds first (hops + 1). num_sampled_edges: per hop.
    topology_reads and topology_bytes_read: what sampling it read of lists that are not in memory.
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

    @property
    def num_nodes(self) -> int:
        """Distinct nodes of the batch."""
        return len(self.node_ids)

    @property
    def num_bytes(self) -> int:
        """Memory that the arrays take."""
        return self.node_ids.nbytes + self.indptr.nbytes + self.sources.nbytes + self.edge_positions.nbytes


class Sampler(Protocol):
    """Expands seeds to mini-batches. Safe to call from several threads at once."""

    def sample(self, seeds: NodeIds, *, purpose: Purpose, epoch: int, number: int) -> SampledBatch:
        """Sample the neighbourhood of unique internal ids; the same arguments give the same batch, always."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Where a feature table lies: row i is row_bytes bytes at offset i * row_stride of the file."""

    path: Path
    num_rows: int
    row_bytes: int
    row_stride: int


@dataclass(frozen=True, slots=True, eq=False)
class RowSegment:
    """Rows that lie in one buffer.

    buffer: uint8 (m, row bytes). from_rows: which rows of the buffer, or None for 0, 1, 2 ...; to_rows: which rows
    of the batch they are, or None for 0, 1, 2 ...
    """

    buffer: Bytes
    from_rows: NDArray[np.int64] | None = None
    to_rows: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The feature rows of one batch, wherever they lie; valid until the store's release()."""

    num_rows: int
    row_bytes: int
    segments: tuple[RowSegment, ...]
    counts: FetchCounts = field(default_factory=FetchCounts)


TicketT = TypeVar("TicketT")
# Called once by a submission with the bytes that it will take; returns when they may be taken.
MakeRoom = Callable[[int], None]


class FeatureStore(Protocol[TicketT]):
    """Rows of one feature table, wherever they live. One caller submits; any thread may collect, cancel and release."""

    table: Table

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> TicketT:
        """Start bringing the rows of a batch, once there is room for what that takes until they are collected."""

    def collect(self, ticket: TicketT) -> Rows:
        """Wait for the rows of a submitted batch: row i of the batch is node_ids[i].

        The buffers stay valid until release(ticket). Raises ReadError, naming file and offset, if a read failed;
        no row of the batch is then valid.
        """

    def cancel(self, ticket: TicketT) -> None:
        """Nobody wants the batch any more: collect() may fail now, where it would have waited for long."""

    def release(self, ticket: TicketT) -> None:
        """Give the batch's buffers back; also for a ticket that was never collected or that failed."""

    def close(self) -> None:
        """Wait for what is in flight and free everything."""


class AccessTrace(Protocol):
    """What a span of batches will ask for, sampled ahead. Batches are asked for in any order, again and again."""

    def __len__(self) -> int:
        """Batches."""

    def node_ids(self, index: int) -> NodeIds:
        """The rows that a batch asks for, int64, distinct."""


class LookAheadStore(FeatureStore[TicketT], Protocol[TicketT]):
    """A store that wants to know what comes. Looking ahead and submitting may be done by different threads.

    growth: how many times as long as the one before a superbatch should be, at least 1.5.
    """

    growth: float

    def start_pass(self) -> None:
        """What was looked over and not submitted never comes. Nothing else is going on in the store."""

    def make_room(self, batch: SampledBatch) -> None:
        """Make sure of what a batch of the next trace will take on the disk. Raises DestinationError for a full one."""

    def free_disk(self) -> None:
        """Give back what is kept on the disk only to be used again: there is no room for a single batch."""

    def look_ahead(self, trace: AccessTrace, keep_on: Callable[[], None]) -> None:
        """Get ready for the batches of a trace, for each of which room was made. They are submitted next, in order.

        keep_on: called again and again; raises once nobody wants them any more.
        """

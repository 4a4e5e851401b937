"""Batches whose nodes a sampler chose: the training nodes among them, and what each counts in the loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.counters import FetchCounts
from diskhop.nn.layers.aggregate import BlockWeights
from diskhop.pipeline.batch import MiniBatch, Prepare
from diskhop.pipeline.edge_weights import OpenWeights
from diskhop.pipeline.norms import OpenNorms
from diskhop.pipeline.stream import BatchStream
from diskhop.plans import PreparedBytes
from diskhop.protocols import NodeRows, SampledBatch

# Of a training node: its place, its row and its weight.
ADDED = PreparedBytes(per_node=20)


@dataclass(frozen=True, slots=True, eq=False)
class SubgraphPart:
    """The prepared part of a batch.

    places: int64 (training nodes), in the batch.
    weights: weights of the edges; None: all 1.
    importance: norms of the edges; None without norms.
    loss_weights: float32 (training nodes); None: all count the same.
    """

    places: NDArray[np.int64]
    weights: BlockWeights | None
    importance: Tensor | None
    loss_weights: Tensor | None


class SubgraphBatch:
    """A mini-batch as training sees it (feeds.Batch): its seed nodes are the training nodes among its nodes.

    mini: the mini-batch. part: what was prepared of it.
    """

    def __init__(self, mini: MiniBatch) -> None:
        self.mini = mini
        self.part: SubgraphPart = mini.prepared

    @property
    def number(self) -> int:
        """See feeds.Batch."""
        return self.mini.number

    @property
    def nodes(self) -> NodeRows:
        """See feeds.Batch."""
        return NodeRows(self.mini.sampled.node_ids[self.part.places])

    @property
    def loss_weights(self) -> Tensor | None:
        """Factors of the losses of nodes, so that the expected sum is the mean over all training nodes.

        float32 (training nodes); None: the loss is the mean over the batch.
        """
        return self.part.loss_weights

    @property
    def counts(self) -> FetchCounts:
        """See feeds.Batch."""
        return self.mini.counts

    @property
    def sample_seconds(self) -> float:
        """See feeds.Batch."""
        return self.mini.sample_seconds

    @property
    def stall_seconds(self) -> float:
        """See feeds.Batch."""
        return self.mini.stall_seconds


class SubgraphBatches(AbstractContextManager["SubgraphBatches"]):
    """The batches of a stream as training sees them."""

    def __init__(self, stream: BatchStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[SubgraphBatch]:
        # Not a generator, which would keep a batch while the next one is fetched.
        return map(SubgraphBatch, self._stream)

    def __len__(self) -> int:
        return len(self._stream)

    def __enter__(self) -> SubgraphBatches:
        self._stream.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.__exit__(kind, error, trace)


class TrainingNodes:
    """Which nodes a run trains on, and the norms of GraphSAINT, if it uses them. Takes a byte per node."""

    def __init__(self, train_rows: NodeRows, num_nodes: int, norms: OpenNorms | None) -> None:
        self._is_training = np.zeros(num_nodes, np.bool_)
        self._is_training[train_rows] = True
        self._norms = norms
        # A node norm is for a mean over all nodes.
        self._factor = np.float32(num_nodes / len(train_rows))

    @property
    def has_norms(self) -> bool:
        """Whether batches have norms."""
        return self._norms is not None

    def prepare(self, weights: OpenWeights | None) -> Prepare:
        """Return what prepares a batch while it is prefetched. weights: of the edges; None: all 1."""

        def of(sampled: SampledBatch, _x: Tensor) -> SubgraphPart:
            places = np.flatnonzero(self._is_training[sampled.node_ids])
            given = None if weights is None else weights.of(sampled, with_strengths=self.has_norms)
            if self._norms is None:
                return SubgraphPart(places, given, None, None)
            importance = torch.from_numpy(self._norms.of_edges(sampled.edge_positions))
            of_nodes = self._norms.of_nodes(sampled.node_ids[places]) * self._factor
            return SubgraphPart(places, given, importance, torch.from_numpy(of_nodes))

        return of

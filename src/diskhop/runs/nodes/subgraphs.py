"""Batches whose nodes a sampler chose: the training nodes among them, and what each counts in the loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.nn.layers.aggregate import BlockWeights
from diskhop.pipeline.batch import MiniBatch, Prepare
from diskhop.pipeline.edge_weights import OpenWeights
from diskhop.pipeline.norms import OpenNorms
from diskhop.plans import PreparedBytes
from diskhop.protocols import NodeRows, SampledBatch
from diskhop.runs.nodes.views import BatchView

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


class SubgraphBatch(BatchView):
    """A mini-batch as training sees it (feeds.Batch): its seed nodes are the training nodes among its nodes.

    part: what was prepared of it.
    """

    def __init__(self, mini: MiniBatch) -> None:
        super().__init__(mini)
        self.part: SubgraphPart = mini.prepared

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

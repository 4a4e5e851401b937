"""Delivery of a run's batches on a device: what the model and the loss read of each is copied there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.nn.layers.aggregate import Block
from diskhop.pipeline.batch import InFlightBatch, MiniBatch
from diskhop.pipeline.transfer import Destination, DeviceCopies
from diskhop.protocols import NodeRows
from diskhop.runs.nodes.subgraphs import SubgraphPart
from diskhop.runs.nodes.views import BatchView


@dataclass(frozen=True, slots=True, eq=False)
class Delivered:
    """The parts of a batch on the device that the model and the loss read besides its features.

    nodes: rows of the nodes in the loss.
    labels: of these nodes, as Objective.labels.
    block: edges, as the model takes them.
    places: int64, rows of these nodes among the model's outputs; None: the first ones.
    loss_weights: see SubgraphBatch.
    """

    nodes: NodeRows
    labels: Tensor
    block: Any
    places: Tensor | None
    loss_weights: Tensor | None


class DeviceBatch(BatchView):
    """A mini-batch on a device as training sees it (feeds.Batch)."""

    def __init__(self, mini: MiniBatch) -> None:
        super().__init__(mini)
        self.delivered: Delivered = mini.prepared

    @property
    def nodes(self) -> NodeRows:
        """See feeds.Batch."""
        return self.delivered.nodes

    @property
    def loss_weights(self) -> Tensor | None:
        """See SubgraphBatch."""
        return self.delivered.loss_weights


def delivered_on(copies: DeviceCopies, labels: NDArray[Any]) -> Destination:
    """Return the destination of a run's batches. labels: of all nodes."""

    def move(batch: InFlightBatch, copies: DeviceCopies) -> None:
        sampled, part = batch.sampled, batch.prepared
        nodes, places, importance, loss_weights = NodeRows(sampled.node_ids[: sampled.num_seeds]), None, None, None
        weights = part
        if isinstance(part, SubgraphPart):
            nodes, places = NodeRows(sampled.node_ids[part.places]), copies.copy(torch.from_numpy(part.places))
            weights, importance = part.weights, part.importance
            loss_weights = None if part.loss_weights is None else copies.copy(part.loss_weights)
        block = Block.of(sampled, batch.in_degrees, None, weights, importance)
        assert batch.x is not None
        if batch.staged is not None:
            batch.x = batch.staged.assemble(batch.x, copies)
        else:
            # Rows that the store lends go to their places in the batch on the way.
            batch.x = copies.copy(batch.x, batch.rows)
        batch.rows = batch.in_degrees = None
        batch.prepared = Delivered(
            nodes=nodes,
            labels=copies.copy(torch.from_numpy(labels[nodes])),
            block=block.mapped(copies.copy),
            places=places,
            loss_weights=loss_weights,
        )

    return Destination(copies, move)

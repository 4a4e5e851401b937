"""Batches of links of one edge type, as a typed model takes them, without the edges that they are scored on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.made_features import MadeFeatures
from diskhop.pipeline.batch import InFlightBatch, MiniBatch
from diskhop.pipeline.device_rows import copy_typed
from diskhop.pipeline.transfer import DeviceCopies
from diskhop.protocols import SampledBatch
from diskhop.runs.links.feed import LinkFeed
from diskhop.runs.typed.feed import TypedInputs, inputs_of, rows_by_type
from diskhop.sampling.edge_split.target import SplitTarget


class TypedLinkFeed(LinkFeed):
    """Batches of a run; see LinkFeed.

    target: the edge type.
    made: features that stand in for those of some node types.
    """

    def __init__(self, *arguments: Any, target: SplitTarget, made: Mapping[str, MadeFeatures], **options: Any) -> None:
        super().__init__(*arguments, **options, uses_degrees=False)
        self._target = target
        self._made = made

    def features_of(self, batch: MiniBatch | InFlightBatch) -> dict[str, Tensor]:
        """See LinkFeed."""
        return rows_by_type(batch, batch.prepared.by_type, self._made)

    def edges_of(self, batch: MiniBatch | InFlightBatch, _rows: Tensor | None) -> TypedInputs:
        """See LinkFeed."""
        inputs: TypedInputs = batch.prepared.by_type
        return inputs

    def copy_features(self, batch: InFlightBatch, copies: DeviceCopies) -> None:
        """See LinkFeed."""
        batch.x_by_type = copy_typed(self.features_of(batch), batch.staged_by_type, copies)

    def delivered_features(self, batch: MiniBatch) -> Any:
        """See LinkFeed."""
        return batch.x_by_type

    def split_by_type(self, graph: Dataset, messages: SampledBatch) -> TypedInputs:
        """See LinkFeed."""
        assert graph.types is not None
        return inputs_of(messages, graph.types)

    def answers(self, graph: Dataset, sampled: SampledBatch) -> NDArray[np.bool_]:
        """See LinkFeed: edges of the type itself, and of those that have its edges in the other direction."""
        # By the types of the graph: those of the whole dataset have other numbers of edges.
        assert graph.types is not None
        return np.isin(graph.types.edge_type_of(sampled.edge_positions), self._target.split_types)

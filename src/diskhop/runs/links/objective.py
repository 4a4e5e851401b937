"""Objective of a link model: the loss of a batch's edges against its negatives, and the metric of a pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diskhop.config.link import LinkConfig
from diskhop.nn.decoders.losses import find_loss
from diskhop.nn.losses import BatchLoss
from diskhop.protocols import Purpose
from diskhop.runs.links.measures import PairMeasure, PairScores, RankMeasure, make_measure


class LinkObjective:
    """Loss and metric of a run; see feeds.Task.

    config: options of the run. num_nodes: nodes of the graph. num_edges: edges that are measured, by the use of a pass.
    """

    def __init__(self, config: LinkConfig, num_nodes: int, num_edges: Mapping[Purpose, int]) -> None:
        self._config = config
        self._loss = find_loss(config.loss)
        self._num_nodes = num_nodes
        self._num_edges = num_edges

    def loss(self, outputs: PairScores, _batch: Any) -> BatchLoss:
        """See feeds.Task. The mean is over the batch's edges."""
        mean = self._loss(outputs.positives, outputs.negatives, self._config.margin)
        return BatchLoss(mean, float(len(outputs.positives)))

    def measure(self, metric: str, purpose: Purpose) -> PairMeasure | RankMeasure:
        """See feeds.Task."""
        assert metric == self._config.metric
        return make_measure(self._config, self._num_nodes, self._num_edges[purpose])

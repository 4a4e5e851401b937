"""Metrics of links, accumulated batch by batch: of edges against negatives, and of ranks among candidates.

ROC-AUC and average precision compare all edges of a part with as many random pairs as there are edges. MRR and Hits@k
rank each end of an edge among the same random nodes, or among all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.config.link import PAIR_METRICS, LinkConfig
from diskhop.embedding.ranking.protocol import Protocol, num_candidates
from diskhop.embedding.ranking.ranks import Ranks, summarize_ranks
from diskhop.errors import ConfigError
from diskhop.predicting.metrics.ranking import Sides, average_precision, roc_auc

# Two scores of an edge and its negative, each sorted in a copy; or counts of both ends.
BYTES_PER_EDGE = 64

_SidesOfBatch = tuple[NDArray[np.float32], NDArray[np.float32]]


class PairScores(NamedTuple):
    """Scores of the links of a batch.

    positives: float32 (edges).
    negatives: float32 (edges, negatives).
    """

    positives: Tensor
    negatives: Tensor


class RankScores(NamedTuple):
    """Scores of the edges of a batch, and of edges with a candidate in the place of one end.

    positives: float32 (edges).
    tails, heads: float32 (edges, candidates), with another destination, and with another source; -inf leaves one out.
    """

    positives: Tensor
    tails: Tensor
    heads: Tensor


class PairMeasure:
    """ROC-AUC and average precision, exact."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._positives: list[NDArray[np.float32]] = []
        self._negatives: list[NDArray[np.float32]] = []

    def part(self, outputs: PairScores, _batch: Any = None) -> _SidesOfBatch:
        """See feeds.Measure."""
        return outputs.positives.cpu().numpy().copy(), outputs.negatives.cpu().numpy().ravel().copy()

    def add(self, part: _SidesOfBatch) -> None:
        """See feeds.Measure."""
        self._positives.append(part[0])
        self._negatives.append(part[1])

    def value(self) -> float:
        """Return the metric of everything added."""
        return self._values()[self._metric]

    def details(self) -> Mapping[str, Any]:
        """Return both metrics, and the numbers of edges and of random pairs."""
        sides = self._sides()
        return {**self._values(), "edges": len(sides.positives), "random_pairs": len(sides.negatives)}

    def entries(self) -> Mapping[str, Any]:
        """See feeds.Measure."""
        return {}

    def _values(self) -> dict[str, float]:
        sides = self._sides()
        return {"auc": roc_auc(sides), "ap": average_precision(sides)}

    def _sides(self) -> Sides:
        if not self._positives:
            raise ConfigError(f"metric {self._metric} needs at least one edge; hold out more edges")
        return Sides(np.sort(np.concatenate(self._positives)), np.sort(np.concatenate(self._negatives)))


class RankMeasure:
    """MRR and Hits@k. protocol: how edges are ranked. num_edges: edges of the part."""

    def __init__(self, metric: str, protocol: Protocol, num_edges: int) -> None:
        self._metric = metric
        self._protocol = protocol
        self._num_edges = num_edges
        self._ranks: list[Ranks] = []

    def part(self, outputs: RankScores, _batch: Any = None) -> list[Ranks]:
        """See feeds.Measure."""
        return [rank_among(outputs.positives, scores) for scores in (outputs.tails, outputs.heads)]

    def add(self, part: list[Ranks]) -> None:
        """See feeds.Measure."""
        self._ranks += part

    def value(self) -> float:
        """Return the metric of everything added."""
        return float(self._values()[self._metric])

    def details(self) -> Mapping[str, Any]:
        """Return all metrics of ranks, and the protocol."""
        return {**self._values(), "protocol": self._protocol.to_dict(self._num_edges, self._num_edges)}

    def entries(self) -> Mapping[str, Any]:
        """See feeds.Measure."""
        return {}

    def _values(self) -> Mapping[str, float]:
        return summarize_ranks(self._ranks, self._protocol.ties)


def rank_among(positives: Tensor, candidates: Tensor) -> Ranks:
    """Count the candidates that score higher than each edge, or as high.

    positives: float32 (edges). candidates: float32 (edges, candidates); -inf leaves one out.
    """
    own = positives[:, None]
    num_left_out = (candidates == -torch.inf).sum(1)
    counts = (candidates > own).sum(1), (candidates == own).sum(1), candidates.shape[1] - num_left_out
    return Ranks(*(each.cpu() for each in counts))


def make_measure(config: LinkConfig, num_nodes: int, num_edges: int) -> PairMeasure | RankMeasure:
    """Return a new accumulator of a configuration's metric. num_edges: edges of the part."""
    if config.metric in PAIR_METRICS:
        return PairMeasure(config.metric)
    protocol = Protocol(
        filtered=config.eval_filtered,
        candidates=num_candidates(config.eval_candidates, num_nodes),
        sides="both",
        ties=config.eval_ties,
    )
    return RankMeasure(config.metric, protocol, num_edges)

"""Losses of links: the scores of edges against those of their negatives.

Each loss is a mean over edges, or over edges and negatives, so that it does not grow with the batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from diskhop.config.learning import CROSS_ENTROPY
from diskhop.config.link import CONTRASTIVE, MARGIN
from diskhop.config.options import require_known

# From scores of edges (edges), scores of their negatives (edges, negatives) and the margin to a scalar.
LinkLoss = Callable[[Tensor, Tensor, float], Tensor]


def cross_entropy(positives: Tensor, negatives: Tensor, _margin: float) -> Tensor:
    """Return the binary cross-entropy of all scores: edges are 1, negatives 0."""
    scores = torch.cat([positives, negatives.flatten()])
    labels = torch.zeros_like(scores)
    labels[: len(positives)] = 1
    return functional.binary_cross_entropy_with_logits(scores, labels)


def contrastive(positives: Tensor, negatives: Tensor, _margin: float) -> Tensor:
    """Return the mean cross-entropy of each edge among itself and its negatives."""
    scores = torch.cat([positives[:, None], negatives], dim=1)
    return (scores.logsumexp(dim=1) - positives).mean()


def margin_ranking(positives: Tensor, negatives: Tensor, margin: float) -> Tensor:
    """Return the mean over edges and negatives of max(0, margin - edge + negative)."""
    return (margin - positives[:, None] + negatives).clamp(min=0).mean()


LINK_LOSSES: dict[str, LinkLoss] = {
    CROSS_ENTROPY: cross_entropy,
    CONTRASTIVE: contrastive,
    MARGIN: margin_ranking,
}


def find_loss(name: str) -> LinkLoss:
    """Return a loss by its name. Raises ConfigError for an unknown one."""
    require_known("loss", name, LINK_LOSSES)
    return LINK_LOSSES[name]

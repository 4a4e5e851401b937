"""Losses of an edge's score against the scores of its negatives, with their gradients.

A loss replaces the negatives' scores, (edges, negatives), by their gradients in place. A score of -inf excludes a
negative: it adds nothing to the loss and gets a gradient of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from diskhop._native import contrastive_softmax


class EdgeLosses(NamedTuple):
    """Losses of edges.

    losses: one per edge.
    positive_grads: gradients of the edges' own scores.
    """

    losses: Tensor
    positive_grads: Tensor


# (negatives' scores, positives' scores, margin)
Loss = Callable[[Tensor, Tensor, float], EdgeLosses]


def contrastive(scores: Tensor, positives: Tensor, margin: float) -> EdgeLosses:
    """log sum exp(negatives) - positive (Legend, equation 1)."""
    return _softmax(scores, positives, with_positive=False)


def softmax(scores: Tensor, positives: Tensor, margin: float) -> EdgeLosses:
    """Cross-entropy of the edge among itself and its negatives; near 0 once the edge scores far above them."""
    return _softmax(scores, positives, with_positive=True)


def logistic(scores: Tensor, positives: Tensor, margin: float) -> EdgeLosses:
    """softplus(-(positive + margin)) + mean over negatives of softplus(negative + margin)."""
    positives = positives + margin
    share = 1 / scores.shape[1]
    losses = functional.softplus(-positives) + functional.softplus(scores + margin).sum(1) * share
    torch.sigmoid(scores.add_(margin), out=scores).mul_(share)
    return EdgeLosses(losses, torch.sigmoid(-positives).neg_())


def margin_ranking(scores: Tensor, positives: Tensor, margin: float) -> EdgeLosses:
    """Mean over negatives of max(0, margin - positive + negative)."""
    share = 1 / scores.shape[1]
    scores.add_((margin - positives)[:, None]).clamp_(min=0)
    losses = scores.sum(1) * share
    scores.sign_().mul_(share)
    return EdgeLosses(losses, scores.sum(1).neg_())


LOSSES: dict[str, Loss] = {
    "contrastive": contrastive,
    "softmax": softmax,
    "logistic": logistic,
    "margin": margin_ranking,
}


def _softmax(scores: Tensor, positives: Tensor, *, with_positive: bool) -> EdgeLosses:
    losses, positive_grads = torch.empty_like(positives), torch.empty_like(positives)
    contrastive_softmax(scores, positives, positive_grads, losses, with_positive, torch.get_num_threads())
    return EdgeLosses(losses, positive_grads)

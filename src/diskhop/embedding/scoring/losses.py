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
from diskhop.nn.kernels.choice import runs_core


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
    if not runs_core(scores):
        return _softmax_by_torch(scores, positives, with_positive=with_positive)
    losses, positive_grads = torch.empty_like(positives), torch.empty_like(positives)
    contrastive_softmax(scores, positives, positive_grads, losses, with_positive, torch.get_num_threads())
    return EdgeLosses(losses, positive_grads)


def _softmax_by_torch(scores: Tensor, positives: Tensor, *, with_positive: bool) -> EdgeLosses:
    """Compute what the core does, on a device."""
    base = scores.amax(1)
    base = torch.maximum(base, positives) if with_positive else base.clone()
    base[base == -torch.inf] = 0  # infinity cannot be subtracted from excluded scores
    powers = scores.sub_(base[:, None]).exp_()
    sums = powers.sum(1)
    total = sums + (positives - base).exp() if with_positive else sums
    # All negatives are excluded; a sum that is not a number is not.
    is_empty = total <= 0
    divisor = total.masked_fill(is_empty, 1)
    powers /= divisor[:, None]
    positive_grads = -(sums / divisor) if with_positive else is_empty.float() - 1
    return EdgeLosses((divisor.log() + (base - positives)).where(~is_empty, positives - positives), positive_grads)

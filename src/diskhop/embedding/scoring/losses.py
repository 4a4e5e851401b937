"""Losses of an edge's score against those of its negatives, with their gradients.

A loss turns a matrix of negatives' scores, (edges, negatives), into its own gradient, in place; a negative that is
masked has the score -inf, counts nothing and gets none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from diskhop._native import contrastive_softmax


class EdgeLosses(NamedTuple):
    """losses: of each edge. of_positives: their gradients by the edges' own scores."""

    losses: Tensor
    of_positives: Tensor


# (negatives' scores, positives' scores, margin)
Loss = Callable[[Tensor, Tensor, float], EdgeLosses]


def contrastive(scores: Tensor, positives: Tensor, margin: float) -> EdgeLosses:
    """log sum exp(negatives) - positive (Legend, equation 1)."""
    return _softmax(scores, positives, with_positive=False)


def softmax(scores: Tensor, positives: Tensor, margin: float) -> EdgeLosses:
    """Cross-entropy of the edge among itself and its negatives: where they are far below it, nothing is left to do."""
    return _softmax(scores, positives, with_positive=True)


def logistic(scores: Tensor, positives: Tensor, margin: float) -> EdgeLosses:
    """softplus(-(positive + margin)), and the mean of softplus(negative + margin) over the negatives."""
    positives = positives + margin
    share = 1 / scores.shape[1]
    losses = functional.softplus(-positives) + functional.softplus(scores + margin).sum(1) * share
    torch.sigmoid(scores.add_(margin), out=scores).mul_(share)
    return EdgeLosses(losses, torch.sigmoid(-positives).neg_())


def margin_ranking(scores: Tensor, positives: Tensor, margin: float) -> EdgeLosses:
    """The mean of what negatives exceed positive - margin by."""
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
    losses, of_positives = torch.empty_like(positives), torch.empty_like(positives)
    contrastive_softmax(scores, positives, of_positives, losses, with_positive, torch.get_num_threads())
    return EdgeLosses(losses, of_positives)

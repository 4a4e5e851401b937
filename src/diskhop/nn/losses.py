"""Losses of node models: classes, tasks of 0 and 1, and values, with weights, focus and smoothing.

A loss returns a weighted mean together with the sum of its weights, so that the means of several batches can be
combined to the mean of all of them: this is what gradient accumulation needs.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

# A focal factor has a slope of infinity at 0 for a gamma below 1.
_LEAST_DOUBT = 1e-12


class BatchLoss(NamedTuple):
    """The loss of a batch.

    mean: scalar, the weighted mean over the batch's labels.
    weight: sum of the weights; mean * weight is the sum over the labels.
    """

    mean: Tensor
    weight: float


class NodeLoss(Protocol):
    """A loss of nodes."""

    def __call__(self, outputs: Tensor, labels: Tensor) -> BatchLoss:
        """Return the loss of a batch."""

    def of_nodes(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each node, the mean over its known labels, float32 (nodes)."""


class ClassLoss:
    """Cross-entropy of one class per node, or focal loss (Lin et al., 2017).

    weights: float32 (classes), weight of the nodes of each class; None: all 1. The mean is over these weights, as
        torch's cross_entropy has it.
    focal_gamma: power of 1 - p, with p the probability of a node's class; 0 for cross-entropy.
    smoothing: share of a label that is spread over all classes; only for cross-entropy.
    """

    def __init__(self, weights: Tensor | None = None, *, focal_gamma: float = 0.0, smoothing: float = 0.0) -> None:
        self._weights = weights
        self._gamma = focal_gamma
        self._smoothing = smoothing

    def __call__(self, outputs: Tensor, labels: Tensor) -> BatchLoss:
        """Return the loss of logits, float32 (nodes, classes). labels: int64 (nodes)."""
        weights = self._weights
        of_nodes = None if weights is None else weights[labels]
        weight = float(len(labels)) if of_nodes is None else float(of_nodes.sum(dtype=torch.float64))
        if self._gamma == 0:
            mean = functional.cross_entropy(outputs, labels, weights, label_smoothing=self._smoothing)
            return BatchLoss(mean, weight)
        losses = self._focal(outputs, labels)
        if of_nodes is None:
            return BatchLoss(losses.mean(), weight)
        return BatchLoss((losses * of_nodes).sum() / weight, weight)

    def of_nodes(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """See NodeLoss. A node counts by the weight of its class."""
        if self._gamma == 0:
            return functional.cross_entropy(
                outputs, labels, self._weights, reduction="none", label_smoothing=self._smoothing
            )
        losses = self._focal(outputs, labels)
        return losses if self._weights is None else losses * self._weights[labels]

    def _focal(self, outputs: Tensor, labels: Tensor) -> Tensor:
        losses = functional.cross_entropy(outputs, labels, reduction="none")
        return _doubt(losses).pow(self._gamma) * losses


class TaskLoss:
    """Binary cross-entropy over the known labels of several tasks, or binary focal loss.

    positive_weights: float32 (tasks), weight of the positives of each task; None: all 1. As in torch's
        binary_cross_entropy_with_logits, the mean is over labels, not over these weights.
    focal_gamma, smoothing: see ClassLoss; a smoothed label moves towards 1/2.
    """

    def __init__(
        self, positive_weights: Tensor | None = None, *, focal_gamma: float = 0.0, smoothing: float = 0.0
    ) -> None:
        self._positive_weights = positive_weights
        self._gamma = focal_gamma
        self._smoothing = smoothing

    def __call__(self, outputs: Tensor, labels: Tensor) -> BatchLoss:
        """Return the loss of logits, float32 (nodes, tasks). labels: float32 (nodes, tasks), NaN for none."""
        is_known = ~labels.isnan()
        num_known = float(is_known.sum())
        if self._gamma == 0:
            return BatchLoss(self._cross_entropy(outputs, labels, is_known, "mean"), num_known)
        return BatchLoss(self._focal(outputs, labels, is_known).mean(), num_known)

    def of_nodes(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """See NodeLoss."""
        is_known = ~labels.isnan()
        if self._gamma == 0:
            return _means(self._cross_entropy(outputs, labels, is_known, "none"), is_known)
        return _means(self._focal(outputs, labels, is_known), is_known)

    def _cross_entropy(self, outputs: Tensor, labels: Tensor, is_known: Tensor, reduction: str) -> Tensor:
        known = labels[is_known]
        targets = known * (1 - self._smoothing) + self._smoothing / 2 if self._smoothing else known
        weights = self._of_labels(labels, is_known)
        return functional.binary_cross_entropy_with_logits(
            outputs[is_known], targets, pos_weight=weights, reduction=reduction
        )

    def _focal(self, outputs: Tensor, labels: Tensor, is_known: Tensor) -> Tensor:
        known, weights = labels[is_known], self._of_labels(labels, is_known)
        losses = functional.binary_cross_entropy_with_logits(outputs[is_known], known, reduction="none")
        losses = _doubt(losses).pow(self._gamma) * losses
        return losses if weights is None else losses * torch.where(known > 0.5, weights, 1.0)

    def _of_labels(self, labels: Tensor, is_known: Tensor) -> Tensor | None:
        return None if self._positive_weights is None else self._positive_weights.expand_as(labels)[is_known]


class ValueLoss:
    """Mean squared or mean absolute error over known values. is_absolute: the latter."""

    def __init__(self, *, is_absolute: bool) -> None:
        self._function = functional.l1_loss if is_absolute else functional.mse_loss

    def __call__(self, outputs: Tensor, labels: Tensor) -> BatchLoss:
        """Return the loss of outputs, float32 (nodes, columns). labels: float32 (nodes, columns), NaN for none."""
        is_known = ~labels.isnan()
        known = labels[is_known]
        return BatchLoss(self._function(outputs[is_known], known), float(len(known)))

    def of_nodes(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """See NodeLoss."""
        is_known = ~labels.isnan()
        return _means(self._function(outputs[is_known], labels[is_known], reduction="none"), is_known)


def _means(losses: Tensor, is_known: Tensor) -> Tensor:
    """Return each row's mean of the losses of its known labels; 0 without any."""
    zeros = torch.zeros(is_known.shape, dtype=losses.dtype, device=losses.device)
    of_labels = zeros.masked_scatter(is_known, losses)
    return of_labels.sum(dim=1) / is_known.sum(dim=1).clamp(min=1)


def _doubt(losses: Tensor) -> Tensor:
    """Return 1 - p, given -log p."""
    return (-torch.expm1(-losses)).clamp(min=_LEAST_DOUBT)

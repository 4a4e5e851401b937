"""Sums of losses and gradients over the batches of a step, which several ranks compute.

One process with `--accumulate N` adds up the gradients of N batches one by one, and divides by all weights. Ranks do
the same: after every round, in which each computed one batch, all have the gradients of all and add them in the order
of the batches. So any number of ranks gives the same bits.

DistributedDataParallel would not: it adds in another order, divides by the number of ranks and needs every rank to have
a batch. What it gains by sending gradients during the backward pass is little here: models have some MB, and a batch
takes far longer than they take to send.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from diskhop.nn.norms import FollowsBatches
from diskhop.runs.distributed import Group

# Values that ranks send of a batch: whether there is one, its loss and the loss's weight.
_FACTS = 3


class LossValue(NamedTuple):
    """The loss of a batch. mean: over its labels. weight: sum of their weights."""

    mean: float
    weight: float


class LossSums:
    """Losses of an epoch and of a step, added up in the order of the batches. accumulate: batches per step."""

    def __init__(self, num_batches: int, accumulate: int) -> None:
        self._num_batches = num_batches
        self._accumulate = accumulate
        self._num_added = 0
        self._sum = self._weight = self._step_weight = 0.0

    def add(self, losses: Iterable[LossValue]) -> None:
        """Add batches."""
        for mean, weight in losses:
            self._num_added += 1
            self._sum += mean * weight
            self._weight += weight
            self._step_weight += weight

    @property
    def are_all(self) -> bool:
        """Whether all batches of the epoch were added."""
        return self._num_added == self._num_batches

    @property
    def end_step(self) -> bool:
        """Whether a step is due."""
        return self._num_added % self._accumulate == 0 or self.are_all

    def take_step_weight(self) -> float:
        """Return the weights of the step's losses; the next step begins."""
        weight, self._step_weight = self._step_weight, 0.0
        return weight

    @property
    def mean(self) -> float:
        """The mean over the epoch."""
        return self._sum / (self._weight or 1.0)


def separate_gradients(model: nn.Module) -> None:
    """Give every parameter a gradient of its own, to change in place.

    Torch may give parameters that a model adds up, such as those of relations, one gradient in common.
    """
    found = set()
    for parameter in model.parameters():
        if parameter.grad is not None:
            if parameter.grad.data_ptr() in found:
                parameter.grad = parameter.grad.clone()
            found.add(parameter.grad.data_ptr())


class GradientSums:
    """Adds up the gradients of a model. Between rounds, no parameter has a gradient, unless this process is alone."""

    def __init__(self, model: nn.Module, group: Group) -> None:
        self._group = group
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self._following = [each for each in model.modules() if isinstance(each, FollowsBatches)]
        self._sums: list[Tensor | None] = [None] * len(self._parameters)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Keep what follows batches from changing before all ranks have computed theirs."""
        if self._group.is_alone:
            yield
            return
        for each in self._following:
            each.hold_batches(True)
        try:
            yield
        finally:
            for each in self._following:
                each.hold_batches(False)

    def add(self, own: LossValue | None) -> list[LossValue]:
        """Add the gradients of a round, and return the losses of its batches.

        own: of this rank's batch, whose gradients the parameters have; None: there was none left for it.
        """
        if self._group.is_alone:
            assert own is not None
            return [own]
        # Before the gradients, and from memory: a rank that has ended is noticed here.
        of_ranks = [each.tolist() for each in self._group.gather_tensors(self._facts(own))]
        has_batch = [bool(facts[0]) for facts in of_ranks]
        losses = [LossValue(facts[1], facts[2]) for facts in of_ranks if facts[0]]
        for facts, received in zip(of_ranks, self._group.gather_tensors(self._pack()), strict=True):
            if facts[0]:
                self._add(facts[_FACTS:], received)
        if self._following:
            for is_batch, taken in zip(
                has_batch, self._group.gather([each.take_batch() for each in self._following]), strict=True
            ):
                if is_batch:
                    for each, part in zip(self._following, taken, strict=True):
                        each.add_batch(part)
        return losses

    def finish(self) -> None:
        """Give the sums to the parameters, for a step of the optimiser."""
        if not self._group.is_alone:
            for number, parameter in enumerate(self._parameters):
                total, self._sums[number] = self._sums[number], None
                parameter.grad = None if total is None else total.to(parameter.device)

    def _facts(self, own: LossValue | None) -> Tensor:
        """Return what this rank says of its batch, float64: _FACTS, and whether each parameter has a gradient."""
        has_gradient = [own is not None and each.grad is not None for each in self._parameters]
        return torch.tensor([own is not None, *(own or LossValue(0, 0)), *has_gradient], dtype=torch.float64)

    def _pack(self) -> Tensor:
        """Return all gradients of this rank, which leave the parameters. They are added in the same order everywhere:
        the same bits for any number of ranks, and for any devices of theirs."""
        parts = []
        for parameter in self._parameters:
            parts.append((torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).flatten())
            parameter.grad = None
        return torch.cat(parts)

    def _add(self, has_gradient: list[float], received: Tensor) -> None:
        gradients = torch.split(received, [each.numel() for each in self._parameters])
        for number, (parameter, gradient) in enumerate(zip(self._parameters, gradients, strict=True)):
            if has_gradient[number]:
                found = gradient.view_as(parameter)
                total = self._sums[number]
                self._sums[number] = found.clone() if total is None else total.add_(found)

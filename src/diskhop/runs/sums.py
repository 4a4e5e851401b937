"""Sums of losses and gradients over the batches of a step, which several ranks compute.

One process with `--accumulate N` adds up the gradients of N batches one by one, and divides by all weights. Ranks do
the same. In every *round* each of them computes one batch and sends its gradients to all, which add them in the order
of the batches: any number of ranks gives the same bits. Gradients travel while the next batch of the step is computed;
only at the end of a step does a rank wait for the slowest one. What a batch changes besides, running statistics and
learned rows, all ranks exchange at the end of its round.

DistributedDataParallel would give other bits: it adds in another order, divides by the number of ranks and needs every
rank to have a batch. What it gains by sending gradients during the backward pass is little here: models have some MB,
and a batch takes far longer than they take to send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from diskhop.nn.norms import FollowsBatches
from diskhop.nn.typed.embeddings import PIECE_BYTES
from diskhop.runs.distributed import Group

# Values that ranks send of a batch: whether there is one, its loss and the loss's weight.
_FACTS = 3
# Bytes of gradients that may wait to be added, besides those of the last round: how far ranks may get ahead of others.
_MOST_WAITING_BYTES = 64 << 20


class LossValue(NamedTuple):
    """The loss of a batch. mean: over its labels. weight: sum of their weights."""

    mean: float
    weight: float


class LossSums:
    """Losses of an epoch and of a step, added up in the order of the batches.

    num_batches: of the epoch. accumulate: batches per step. per_round: batches that ranks compute at the same time.
    num_done, total, weight: batches of steps before these, their losses times weights, and the weights.
    """

    def __init__(
        self,
        num_batches: int,
        accumulate: int,
        per_round: int,
        *,
        num_done: int = 0,
        total: float = 0.0,
        weight: float = 0.0,
    ) -> None:
        self._num_batches = num_batches
        self._accumulate = accumulate
        self._per_round = per_round
        self._num_computed = num_done
        self.total, self.weight = total, weight
        self._step_weight = 0.0

    def end_round(self) -> None:
        """Count the batches of a round, which every rank has computed or is computing."""
        self._num_computed = min(self._num_computed + self._per_round, self._num_batches)

    def add(self, losses: Iterable[LossValue]) -> None:
        """Add batches."""
        for mean, weight in losses:
            self.total += mean * weight
            self.weight += weight
            self._step_weight += weight

    @property
    def are_all(self) -> bool:
        """Whether the rounds have all batches of the epoch."""
        return self._num_computed == self._num_batches

    @property
    def end_step(self) -> bool:
        """Whether a step is due."""
        return self._num_computed % self._accumulate == 0 or self.are_all

    def take_step_weight(self) -> float:
        """Return the weights of the step's losses; the next step begins."""
        weight, self._step_weight = self._step_weight, 0.0
        return weight

    @property
    def mean(self) -> float:
        """The mean over the epoch."""
        return self.total / (self.weight or 1.0)


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


def _messages(pieces: Iterable[tuple[int, Any]]) -> list[list[tuple[int, Any]]]:
    """Divide pieces of what follows batches, each a tuple of arrays, into messages of about PIECE_BYTES."""
    messages: list[list[tuple[int, Any]]] = []
    room = 0
    for number, piece in pieces:
        num_bytes = sum(array.nbytes for array in piece)
        if num_bytes > room:
            messages.append([])
            room = PIECE_BYTES
        messages[-1].append((number, piece))
        room -= num_bytes
    return messages


class GradientSums:
    """Adds up the gradients of a model. Between rounds, no parameter has a gradient, unless this process is alone."""

    def __init__(self, model: nn.Module, group: Group) -> None:
        self._group = group
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self._following = [each for each in model.modules() if isinstance(each, FollowsBatches)]
        self._sums: list[Tensor | None] = [None] * len(self._parameters)
        # Losses of the step; None where a rank had no batch left.
        self._losses: list[LossValue | None] = []
        # Rounds of the step that are sent: facts and gradients, each returned once all ranks sent theirs.
        self._sent: deque[tuple[Callable[[], list[Tensor]], Callable[[], list[Tensor]]]] = deque()

    @contextmanager
    def training(self) -> Iterator[None]:
        """Keep what follows batches from changing within a step, whose batches other ranks compute at the same time."""
        for each in self._following:
            each.hold_batches(True)
        try:
            yield
        finally:
            self._sent.clear()  # after an error: what waits for others would keep the connections to them open
            for each in self._following:
                each.hold_batches(False)

    def add(self, own: LossValue | None) -> None:
        """Add the gradients of a round, those of other ranks when they arrive.

        own: of this rank's batch, whose gradients the parameters have; None: there was none left for it.
        """
        if self._group.is_alone:
            self._losses.append(own)
            self._follow()
            return
        facts = self._group.begin_gather(self._facts(own))
        packed = self._pack()
        self._follow()
        if self._group.stays_on_device(packed):
            # Devices wait for each other where all ranks do: one that has ended is noticed by its facts.
            self._add_round(facts(), self._group.gather_tensors(packed))
            return
        self._sent.append((facts, self._group.begin_gather(packed)))
        # What this rank sends, and what it receives: gloo gathers it in one piece before it is taken apart.
        round_bytes = packed.nbytes * (2 * self._group.ranks.count + 1)
        while (len(self._sent) - 1) * round_bytes > _MOST_WAITING_BYTES:
            self._add_first()

    def finish(self) -> list[LossValue]:
        """Give the sums to the parameters, for a step of the optimiser, and return the losses of its batches."""
        while self._sent:
            self._add_first()
        losses, self._losses = self._losses, []
        for each in self._following:
            each.end_step()
        if not self._group.is_alone:
            for number, parameter in enumerate(self._parameters):
                total, self._sums[number] = self._sums[number], None
                parameter.grad = None if total is None else total.to(parameter.device)
        return [loss for loss in losses if loss is not None]

    def _add_first(self) -> None:
        """Wait for the first round that was sent, and add it."""
        facts, gradients = self._sent.popleft()
        self._add_round(facts(), gradients())

    def _add_round(self, of_ranks: list[Tensor], received: list[Tensor]) -> None:
        """Add a round. of_ranks: what _facts() returned on every rank. received: what _pack() did."""
        for facts, gradients in zip((each.tolist() for each in of_ranks), received, strict=True):
            self._losses.append(LossValue(facts[1], facts[2]) if facts[0] else None)
            if facts[0]:
                self._add(facts[_FACTS:], gradients)

    def _follow(self) -> None:
        """Add the batches of a round to what follows them, a few pieces at a time: learned rows may be large."""
        if not self._following:
            return
        taken = [(number, piece) for number, each in enumerate(self._following) for piece in each.take_batch()]
        for number, piece in chain.from_iterable(self._group.each_of(_messages(taken))):
            self._following[number].add_piece(piece)

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
        return torch.cat(parts) if parts else torch.zeros(0)

    def _add(self, has_gradient: list[float], received: Tensor) -> None:
        gradients = torch.split(received, [each.numel() for each in self._parameters])
        for number, (parameter, gradient) in enumerate(zip(self._parameters, gradients, strict=True)):
            if has_gradient[number]:
                found = gradient.view_as(parameter)
                total = self._sums[number]
                self._sums[number] = found.clone() if total is None else total.add_(found)

"""The passes of a run, and their order: a store that looks ahead begins the next one during the one before."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from diskhop.protocols import Purpose


class RunPass(NamedTuple):
    """A pass over training, validation or test nodes. epoch: that it belongs to, from 0."""

    purpose: Purpose
    epoch: int


def left_of(numbers: Sequence[int], done: Collection[int]) -> Sequence[int]:
    """Return the batches of a pass that are not done, in their order."""
    return [number for number in numbers if number not in done] if done else numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOrder:
    """The order of the passes of a run that is not ended early.

    epochs: of the run.
    eval_every: epochs from one validation to the next; the last epoch is always validated.
    has_valid, has_test: whether there is something to validate on, and to test on.
    """

    epochs: int
    eval_every: int
    has_valid: bool
    has_test: bool

    def is_validated(self, epoch: int) -> bool:
        """Whether an epoch ends with a validation."""
        return self.has_valid and ((epoch + 1) % self.eval_every == 0 or epoch + 1 == self.epochs)

    def after(self, done: RunPass) -> RunPass | None:
        """Return the pass after another one; None after the last."""
        purpose, epoch = done
        if purpose == Purpose.TRAIN and self.is_validated(epoch):
            return RunPass(Purpose.VALID, epoch)
        if purpose != Purpose.TEST and epoch + 1 < self.epochs:
            return RunPass(Purpose.TRAIN, epoch + 1)
        return RunPass(Purpose.TEST, epoch) if self.has_test and purpose != Purpose.TEST else None

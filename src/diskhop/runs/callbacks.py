"""Callbacks: what a run reports while it works, and how it can be ended early.

A run calls, in this order: configured, planned, announced and prepared for work before training, batch_done after every
batch, epoch_done after every committed epoch, and finished. A run that ends by an error calls failed instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import gt
from typing import Any

from diskhop.plans import RunPlan
from diskhop.runs.choices import Choice
from diskhop.runs.patience import IsBetter, is_out_of_patience
from diskhop.runtime.process import ends_in_child


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """The progress of a run after a batch.

    stage: train, valid or test.
    epoch: the current epoch, from 0.
    num_epochs: the maximum number of epochs.
    batch: batches done in this pass.
    num_batches: batches of this pass.
    loss: loss of the batch; None outside training.
    seconds_left: predicted seconds until the last epoch is done; None before there is a basis for it.
    rate: `unit`s per second in this pass.
    unit: batches or edges.
    stall_share: fraction of the pass spent waiting for data.
    hit_rate: fraction of the requested rows found in memory; None where no rows are requested.
    """

    stage: str
    epoch: int
    num_epochs: int
    batch: int
    num_batches: int
    loss: float | None
    seconds_left: float | None
    rate: float
    unit: str
    stall_share: float
    hit_rate: float | None


class Callback:
    """Does nothing; override the methods you need.

    >>> class Losses(diskhop.Callback):
    ...     def epoch_done(self, record):
    ...         print(record["epoch"])
    >>> trained = diskhop.train("my-graph", epochs=2, memory="200MB", callbacks=[Losses()])
    0
    1
    """

    def configured(self, config: Any, choices: Sequence[Choice]) -> None:
        """Called when all options are known. choices: those chosen for the user."""

    def planned(self, plan: RunPlan) -> None:
        """Called with the plan, before any data is read."""

    def announced(self, text: str) -> None:
        """Called before long preparation, with a line about it."""

    def prepared(self, stage: str, done: int, total: int) -> None:
        """Called during preparation: `done` of `total` units of a stage are done."""

    def batch_done(self, progress: BatchProgress) -> None:
        """Called after every batch."""

    def epoch_done(self, record: dict[str, Any]) -> bool:
        """Called after an epoch is committed, with its record in result.json; True ends training."""
        return False

    def finished(self, result: Mapping[str, Any]) -> None:
        """Called at the end, with the content of result.json."""

    def failed(self, error: BaseException) -> None:
        """Called when the run ends by an error or is interrupted, before the caller gets it."""


class Callbacks(Callback):
    """Several callbacks as one; training ends when any of them says so.

    A process that a callback forks does not come back to the run.
    """

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks

    @ends_in_child()
    def configured(self, config: Any, choices: Sequence[Choice]) -> None:
        """See Callback."""
        for callback in self._callbacks:
            callback.configured(config, choices)

    @ends_in_child()
    def planned(self, plan: RunPlan) -> None:
        """See Callback."""
        for callback in self._callbacks:
            callback.planned(plan)

    @ends_in_child()
    def announced(self, text: str) -> None:
        """See Callback."""
        for callback in self._callbacks:
            callback.announced(text)

    @ends_in_child()
    def prepared(self, stage: str, done: int, total: int) -> None:
        """See Callback."""
        for callback in self._callbacks:
            callback.prepared(stage, done, total)

    @ends_in_child()
    def batch_done(self, progress: BatchProgress) -> None:
        """See Callback."""
        for callback in self._callbacks:
            callback.batch_done(progress)

    @ends_in_child()
    def epoch_done(self, record: dict[str, Any]) -> bool:
        """See Callback."""
        # All of them, before any ends the run.
        answers = [callback.epoch_done(record) for callback in self._callbacks]
        return any(answers)

    @ends_in_child()
    def finished(self, result: Mapping[str, Any]) -> None:
        """See Callback."""
        for callback in self._callbacks:
            callback.finished(result)

    @ends_in_child()
    def failed(self, error: BaseException) -> None:
        """See Callback. What goes wrong in a callback becomes a note of the run's error."""
        for callback in self._callbacks:
            try:
                callback.failed(error)
            except Exception as another:
                error.add_note(f"{type(callback).__name__}.failed: {type(another).__name__}: {another}")


class StopWhen(Callback):
    """Ends training after the first epoch for which a function returns true.

    function: called with the epoch's record in result.json.

    >>> enough = diskhop.StopWhen(lambda record: record["valid"] > 0.1)
    >>> trained = diskhop.train("my-graph", epochs=5, memory="200MB", callbacks=[enough])
    >>> len(trained.result["epochs"])
    1
    """

    def __init__(self, function: Callable[[dict[str, Any]], bool]) -> None:
        self._function = function

    def epoch_done(self, record: dict[str, Any]) -> bool:
        """See Callback."""
        return bool(self._function(record))


class Patience(Callback):
    """Ends training by is_out_of_patience().

    history: records of the epochs done so far, when a run resumes. is_better: whether a validation is better than
        another.
    """

    def __init__(self, patience: int, history: Sequence[Mapping[str, Any]] = (), is_better: IsBetter = gt) -> None:
        self._patience = patience
        self._is_better = is_better
        self._values = [record["valid"] for record in history if "valid" in record]

    @property
    def is_exhausted(self) -> bool:
        """Whether training is to end."""
        return is_out_of_patience(self._values, self._patience, self._is_better)

    def epoch_done(self, record: dict[str, Any]) -> bool:
        """See Callback."""
        if "valid" in record:
            self._values.append(record["valid"])
        return self.is_exhausted

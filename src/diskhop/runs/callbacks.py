"""What a run tells while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diskhop.config.embed import EmbedConfig
from diskhop.config.train import TrainConfig
from diskhop.plans import RunPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """Where a run is, after a batch.

    stage: train, valid or test. epoch: counted from 0; of at most num_epochs. batch: done, of num_batches of this pass.
    loss: of the batch, in training. seconds_left: until the last epoch is done; None: nothing to go by yet. rate: of
    this pass so far, a second, of `unit`; stall_share: of its time, waited for data; hit_rate: of the rows that it
    asked for those from memory, None where it asks for none.
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
    """Does nothing; override what you want to show."""

    def configured(self, config: TrainConfig | EmbedConfig, reasons: list[str]) -> None:
        """The options are complete; why those that nobody gave are as they are."""

    def planned(self, plan: RunPlan) -> None:
        """The plan is made; nothing is open yet."""

    def announced(self, text: str) -> None:
        """What is about to be prepared, and what that will take."""

    def prepared(self, stage: str, done: int, total: int) -> None:
        """So much of a stage of preparation is done."""

    def progressed(self, progress: BatchProgress) -> None:
        """A batch is done."""

    def epoch_done(self, record: dict[str, Any]) -> None:
        """An epoch is done and kept; the record is the one in result.json."""


class Callbacks(Callback):
    """Several, each told everything."""

    def __init__(self, watchers: Sequence[Callback]) -> None:
        self._watchers = watchers

    def configured(self, config: TrainConfig | EmbedConfig, reasons: list[str]) -> None:
        """See Callback."""
        for watcher in self._watchers:
            watcher.configured(config, reasons)

    def planned(self, plan: RunPlan) -> None:
        """See Callback."""
        for watcher in self._watchers:
            watcher.planned(plan)

    def announced(self, text: str) -> None:
        """See Callback."""
        for watcher in self._watchers:
            watcher.announced(text)

    def prepared(self, stage: str, done: int, total: int) -> None:
        """See Callback."""
        for watcher in self._watchers:
            watcher.prepared(stage, done, total)

    def progressed(self, progress: BatchProgress) -> None:
        """See Callback."""
        for watcher in self._watchers:
            watcher.progressed(progress)

    def epoch_done(self, record: dict[str, Any]) -> None:
        """See Callback."""
        for watcher in self._watchers:
            watcher.epoch_done(record)

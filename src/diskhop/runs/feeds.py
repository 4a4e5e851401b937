"""Protocols between a dataset and the passes of a run, the same for every way to bring batches.

A *feed* brings a run's batches, one pass after another, and applies the model to them. A *task* has the loss and the
metric. A *prepared run* is everything decided and made before the first batch; opened, it is a feed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from diskhop.config.train import TrainConfig
from diskhop.counters import FetchCounts, WaitSeconds
from diskhop.nn.losses import BatchLoss
from diskhop.plans import HopPlan, SampledPlan
from diskhop.protocols import NodeRows, Purpose
from diskhop.runs.passes import RunPass
from diskhop.runtime.ranks import ONE, Ranks


class Batch(Protocol):
    """A mini-batch, as passes see it."""

    @property
    def number(self) -> int:
        """Number in its epoch; keys the model's random draws."""

    @property
    def nodes(self) -> NodeRows:
        """Rows of the seed nodes in the dataset, int64, one per row of the model's outputs."""

    @property
    def counts(self) -> FetchCounts:
        """Counts of fetching its rows."""

    @property
    def sample_seconds(self) -> float:
        """Seconds spent drawing neighbours."""

    @property
    def waits(self) -> WaitSeconds:
        """Seconds the model waited for this batch."""


class Batches(Protocol):
    """The batches of one pass. Keeping a batch while asking for the next needs memory for one more."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate in the order of training."""

    def __len__(self) -> int:
        """Return the number of batches in the pass."""


class Feed(Protocol):
    """Brings batches. A run opens and closes it; only the feed knows what its batches contain."""

    def train(
        self, epoch: int, share: Ranks = ONE, following: RunPass | None = None, done: Collection[int] = ()
    ) -> AbstractContextManager[Batches]:
        """Open a pass over the training nodes, in the epoch's own order.

        share: the rank that gets its batches.
        following: the pass that will be opened next, which the feed may prepare meanwhile; None if unknown.
        done: numbers of batches that are left out, since the run has been trained on them.
        """

    def measure(
        self, purpose: Purpose, share: Ranks = ONE, following: RunPass | None = None
    ) -> AbstractContextManager[Batches]:
        """Open a pass over validation or test nodes, the same in every epoch so that epochs compare."""

    def forward(self, model: Any, batch: Any) -> Any:
        """Return the model's outputs for the batch, as the run's task takes them.

        On nodes these are float32 (nodes, outputs), of the seed nodes.
        """


class Measure(Protocol):
    """Accumulates a metric over batches, each of which may have been measured in another process."""

    def part(self, outputs: Any, batch: Any) -> Any:
        """Return what the metric needs of a batch, in little memory."""

    def add(self, part: Any) -> None:
        """Add a batch's part. Batches are added in the order of their numbers."""

    def value(self) -> float:
        """Return the metric of everything added."""

    def details(self) -> Mapping[str, Any]:
        """Return other values of everything added, and the protocol of measuring, as in result.json; {} for none."""

    def entries(self) -> Mapping[str, Any]:
        """Return entries of result.json besides the values, such as a confusion matrix; {} for none."""


class Task(Protocol):
    """A learning task: the loss of a batch, and the metric of a pass."""

    def loss(self, outputs: Any, batch: Any) -> BatchLoss:
        """Return the loss of a batch."""

    def measure(self, metric: str, purpose: Purpose) -> Measure:
        """Return a new accumulator for a metric, in validation or test."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedRun:
    """A run that is planned, with everything made that it needs.

    config: all options, with what the plan chose.
    plan: what will run.
    make_model: draws parameters from torch's generator.
    open: opens a feed for the model.
    facts: entries of result.json that only this kind of run has.
    preparation: entries of result.json about work done before training.
    device: where the model computes and batches are delivered; None: in memory.
    """

    config: TrainConfig
    plan: SampledPlan | HopPlan
    make_model: Callable[[], nn.Module]
    open: Callable[[Any], AbstractContextManager[Feed]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    preparation: Mapping[str, Any] = field(default_factory=dict)
    device: torch.device | None = None

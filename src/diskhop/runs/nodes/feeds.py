"""What stands between a dataset and the passes of a run, for every kind of run alike.

A *feed* gives a run's batches, one pass after another, and shows them to the model. A *prepared run* is all that is
decided and made before the first batch; opened, it is a feed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn

from diskhop.config.train import TrainConfig
from diskhop.counters import FetchCounts
from diskhop.plans import HopPlan, SampledPlan
from diskhop.protocols import NodeIds, Purpose


class Batch(Protocol):
    """A mini-batch, as passes see it."""

    @property
    def number(self) -> int:
        """In its epoch: the model's draws are keyed by it."""

    @property
    def nodes(self) -> NodeIds:
        """What scores are for, int64 ids."""

    @property
    def counts(self) -> FetchCounts:
        """Of bringing its rows."""

    @property
    def sample_seconds(self) -> float:
        """Of drawing neighbours."""

    @property
    def stall_seconds(self) -> float:
        """That the model waited for it."""


class Batches(Protocol):
    """Those of one pass. A batch that is held while the next is asked for is one more than what was reserved."""

    def __iter__(self) -> Iterator[Any]:
        """In the order of training."""

    def __len__(self) -> int:
        """Batches in the pass."""


class Feed(Protocol):
    """Opened by a run, and closed by it. Batches are what the feed makes; it alone looks into them."""

    def train(self, epoch: int) -> AbstractContextManager[Batches]:
        """The training nodes, in an epoch's own order."""

    def measure(self, purpose: Purpose) -> AbstractContextManager[Batches]:
        """The nodes of validation or test, the same in every epoch: epochs compare."""

    def forward(self, model: Any, batch: Any) -> Tensor:
        """Scores of the batch's nodes, float32 (nodes, outputs)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedRun:
    """config: with what the plan chose. facts: of the run's kind, for result.json, as are those on its preparation.

    make_model: draws parameters from torch's generator. open: a feed for the model.
    """

    config: TrainConfig
    plan: SampledPlan | HopPlan
    make_model: Callable[[], nn.Module]
    open: Callable[[Any], AbstractContextManager[Feed]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    preparation: Mapping[str, Any] = field(default_factory=dict)

"""A mini-batch, and a batch in flight on its way through the stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop.counters import FetchCounts
from diskhop.plans import SampledPlan
from diskhop.protocols import FeatureStore, NodeIds, SampledBatch

# Batches sampled ahead, beyond those being fetched: enough to hide one slow batch.
SAMPLED_AHEAD = 2


@dataclass(frozen=True, slots=True, eq=False)
class MiniBatch:
    """What the model gets.

    x: (nodes, dim) in the stored dtype, int8 rows as float32; without features, a constant and log(1 + in-degree).
    Its memory is reused once nobody holds it. Where the plan is to read rows where the store has them, x is all that it
    has, `rows` says which are the batch's, int64 (nodes), and they are others' once the next batch is asked for; else
    None. in_degrees: int64 (nodes), in the whole graph, if the run asked for them. prepared: what the run's `prepare`
    made of it.
    """

    sampled: SampledBatch
    x: torch.Tensor
    rows: NDArray[np.int64] | None
    prepared: Any
    in_degrees: torch.Tensor | None
    counts: FetchCounts
    sample_seconds: float
    stall_seconds: float

    @property
    def number(self) -> int:
        """Of the batch in its epoch."""
        return self.sampled.number

    @property
    def nodes(self) -> NodeIds:
        """The seeds."""
        return self.sampled.node_ids[: self.sampled.num_seeds]


@dataclass(slots=True, eq=False)
class InFlightBatch:
    """A batch between its submission and the consumer's release; the bytes are those that it is let in with.

    index: of its submission in this pass. ends_superbatch: it is the last one of its own.
    """

    index: int
    sampled: SampledBatch
    sample_seconds: float
    ends_superbatch: bool
    bytes_on_its_way: int = 0
    bytes_assembled: int = 0
    ticket: Any = None
    x: torch.Tensor | None = None
    rows: NDArray[np.int64] | None = None
    prepared: Any = None
    in_degrees: torch.Tensor | None = None
    counts: FetchCounts | None = None


class BatchSource(Protocol):
    """What a stream needs of the pipeline that it is a pass of."""

    plan: SampledPlan
    store: FeatureStore[Any] | None

    def bytes_on_its_way(self, sampled: SampledBatch, store_bytes: int) -> int:
        """Of a batch for which the store takes so much, until its rows are collected."""

    def bytes_assembled(self, sampled: SampledBatch) -> int:
        """Of a batch as the model gets it."""

    def bring_rows(self, batch: InFlightBatch, with_in_degrees: bool) -> None:
        """Wait for a submitted batch and bring its rows to their places."""

"""The values of a pass: what it should deliver, a batch in flight, and the mini-batch that the model gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop.batches.trace import TraceSettings, hash_seeds
from diskhop.counters import FetchCounts, WaitSeconds
from diskhop.errors import ConfigError
from diskhop.protocols import NodeRows, Purpose, SampledBatch, SamplerSpec, SeedTimes
from diskhop.sampling.links import LinkBatch, Links
from diskhop.sampling.negatives import DrawKey
from diskhop.sampling.seeds import BatchSeeds, batch_seeds, batch_times, count_batches

# Sampled batches that may wait for submission, in addition to one per thread: enough to hide one slow batch.
SAMPLED_AHEAD = 2

# A sampled batch and the seconds that sampling took.
Sampled = tuple[SampledBatch, float]
# Features of the nodes of a graph with types, by node type; a type without features has none.
TypedFeatures = Mapping[str, torch.Tensor]
# Work on a batch and its features while it is prefetched, on a thread of the pipeline: a tensor, or TypedFeatures.
Prepare = Callable[[SampledBatch, Any], Any]


class Staged(Protocol):
    """Rows of a batch that are assembled with others on a device."""

    def assemble(self, addresses: torch.Tensor, copies: Any) -> torch.Tensor:
        """Return features on the device, (nodes, dim). addresses: x of the batch. copies: to the device."""


class Arrives(Protocol):
    """When a batch is on the device that it is delivered on."""

    def wait(self) -> None:
        """Let the device's work wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pass:
    """One pass over seed nodes, or over links. Raises ConfigError for an invalid batch size or batch number.

    seeds: rows, int64 (seeds).
    numbers: the batches to deliver, each at most once; batch n has the seeds from n * batch_size on.
    batch_size: seeds per batch; the last batch has the rest.
    sampler: expands the seeds.
    seed: random seed of the draws.
    purpose: use of the draws.
    epoch: epoch of the draws.
    with_in_degrees: True to deliver the nodes' in-degrees.
    row_starts: see batch_seeds().
    may_repeat: a batch may have a seed repeatedly, which is then sampled once.
    times: of the seeds, in their order; see SeedTimes.
    links: in the order of the pass, `batch_size` of them in a batch, whose ends are the seeds; seeds is then empty.
    first_row: merged row of the first node of the seeds' type, in a graph with types.
    """

    seeds: NodeRows
    numbers: Sequence[int]
    batch_size: int
    sampler: SamplerSpec
    seed: int
    purpose: Purpose
    epoch: int
    with_in_degrees: bool = False
    row_starts: NDArray[np.int64] | None = None
    may_repeat: bool = False
    times: SeedTimes = None
    links: Links | None = None
    first_row: int = 0

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {self.batch_size}; pass batch_size=1000")
        if not self.numbers:
            return
        # A set of a long range would take memory for every batch to come.
        is_range = isinstance(self.numbers, range)
        if not is_range and len(set(self.numbers)) < len(self.numbers):
            raise ConfigError("numbers must name each batch at most once; pass range(n) for the first n batches")
        num_seeds = len(self.seeds) if self.links is None else len(self.links)
        num_batches = count_batches(num_seeds, self.batch_size, row_starts=self.row_starts)
        lowest, highest = min(self.numbers), max(self.numbers)
        if lowest < 0 or highest >= num_batches:
            raise ConfigError(
                f"numbers must be from 0 to {num_batches - 1}, got {lowest} to {highest}; "
                f"pass range({num_batches}) for all batches"
            )

    def seeds_of(self, number: int) -> BatchSeeds:
        """Seeds of one batch, and their times."""
        if self.links is not None:
            batch = self.links_of(number)
            return BatchSeeds(batch.seeds, batch.times)
        rows = batch_seeds(self.seeds, self.batch_size, self.row_starts, number, may_repeat=self.may_repeat)
        return BatchSeeds(rows, batch_times(self.times, self.batch_size, number, self.row_starts))

    def links_of(self, number: int) -> LinkBatch:
        """Links of one batch: the same at every call, so that any stage may ask for them."""
        assert self.links is not None
        return self.links.batch(self.batch_size, DrawKey(self.seed, self.purpose, self.epoch, number))

    def trace_settings(self, dataset_hash: str) -> TraceSettings:
        """Everything that determines the batches, for a trace of them."""
        return TraceSettings(
            dataset_hash=dataset_hash,
            sampler=self.sampler,
            seed=self.seed,
            purpose=self.purpose,
            epoch=self.epoch,
            batch_size=self.batch_size,
            seeds_hash=self._seeds_hash(),
        )

    def _seeds_hash(self) -> str:
        if self.links is not None:
            return self.links.digest()
        if self.row_starts is None:
            return hash_seeds(self.seeds, self.times)
        return hash_seeds(np.concatenate([self.row_starts, self.seeds]), self.times)


@dataclass(frozen=True, slots=True, eq=False)
class MiniBatch:
    """A mini-batch as the model gets it.

    sampled: nodes and edges.
    x: features (nodes, dim) in the stored dtype, int8 as float32. Of a graph without features, made_features.py's.
        Its memory is reused once nothing refers to it. Of a graph with types: see x_by_type.
    x_by_type: of a graph whose types are merged, features of each type's nodes, in their order; None for others.
    rows_by_type: zero-copy, as `rows`: those of each type's nodes in its features. Of types that it lacks: in order.
    first_row: see Pass.
    rows: None, or zero-copy: `rows`, int64 (nodes), indexes this batch in x, which is the store's buffer. Both are then
        valid until the next batch is requested.
    prepared: result of the `prepare` function of the pass.
    in_degrees: int64 (nodes), in the whole graph; None unless requested.
    counts: rows, reads and bytes of fetching it.
    sample_seconds: seconds of sampling it.
    waits: seconds that the consumer waited for it.
    """

    sampled: SampledBatch
    x: torch.Tensor
    rows: NDArray[np.int64] | None
    prepared: Any
    in_degrees: torch.Tensor | None
    counts: FetchCounts
    sample_seconds: float
    waits: WaitSeconds
    x_by_type: TypedFeatures | None = None
    rows_by_type: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    first_row: int = 0

    @property
    def number(self) -> int:
        """Number of the batch in its epoch."""
        return self.sampled.number

    @property
    def stall_seconds(self) -> float:
        """Seconds that the consumer waited for it, for whatever reason."""
        return sum(self.waits)

    @property
    def nodes(self) -> NodeRows:
        """Rows of the seed nodes, among the nodes of their type."""
        rows = self.sampled.node_ids[: self.sampled.num_seeds]
        return NodeRows(rows - self.first_row if self.first_row else rows)


@dataclass(slots=True, eq=False)
class InFlightBatch:
    """A batch between its submission to the store and its release by the consumer.

    index: place of its submission in this pass.
    sampled, sample_seconds, first_row, x, x_by_type, rows, rows_by_type, prepared, in_degrees, counts: see MiniBatch;
        None until known.
    ends_superbatch: True for the last batch of a superbatch.
    sampled_at, collected_at: when it was sampled, and when its rows were collected, on time.perf_counter().
    fetch_bytes: bytes admitted for fetching it.
    assembled_bytes: bytes admitted for its contiguous copy.
    ticket: the store's ticket, None before and after.
    arrival: when it is on the device that it is delivered on; None for one that stays in memory.
    staged: the store's rows, where others lie on the device: x is then their addresses; None for others.
    staged_by_type: the same for types of x_by_type; empty for others.
    """

    index: int
    sampled: SampledBatch
    sample_seconds: float
    ends_superbatch: bool
    first_row: int = 0
    sampled_at: float = 0.0
    collected_at: float = 0.0
    fetch_bytes: int = 0
    assembled_bytes: int = 0
    ticket: Any = None
    x: torch.Tensor | None = None
    x_by_type: TypedFeatures | None = None
    rows: NDArray[np.int64] | None = None
    rows_by_type: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    prepared: Any = None
    in_degrees: torch.Tensor | None = None
    counts: FetchCounts | None = None
    arrival: Arrives | None = None
    staged: Staged | None = None
    staged_by_type: dict[str, Staged] = field(default_factory=dict)

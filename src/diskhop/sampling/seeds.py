"""Seed nodes: the sets that runs start from, and their order in each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop._native import keyed_permutation
from diskhop.protocols import NodeIds, NodeRows, Purpose, SamplerSpec, SeedTimes
from diskhop.sampling.links import Links
from diskhop.sampling.negatives import DrawKey


class BatchSeeds(NamedTuple):
    """Seeds of one batch, int64 (seeds), and their times."""

    rows: NodeIds
    times: SeedTimes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeedSet:
    """The seed nodes of the batches that a run will request, and their sampler.

    purpose: use of the draws.
    seeds: rows, int64 (seeds).
    batch_size: seeds per batch.
    sampler: expands each batch.
    is_shuffled: True if the run shuffles the seeds; False if a batch takes adjacent ones.
    row_starts: see batch_seeds().
    may_repeat: True if a batch may have a seed repeatedly, which is then sampled once.
    times: of the seeds, in their order; see SeedTimes.
    links: links whose ends are the seeds, `batch_size` of them in a batch; seeds is then empty.
    seed: of the negatives of links.
    """

    purpose: Purpose
    seeds: NodeRows
    batch_size: int
    sampler: SamplerSpec
    is_shuffled: bool
    row_starts: NDArray[np.int64] | None = None
    may_repeat: bool = False
    times: SeedTimes = None
    links: Links | None = None
    seed: int = 0

    @property
    def num_batches(self) -> int:
        """Number of batches per epoch."""
        num_seeds = len(self.seeds) if self.links is None else len(self.links)
        return count_batches(num_seeds, self.batch_size, row_starts=self.row_starts)

    def typical_batch(self, number: int) -> BatchSeeds:
        """Return seeds of batch `number`: any seed nodes if they are shuffled, because all orders are alike."""
        if self.links is not None:
            key = DrawKey(self.seed, self.purpose, 0, number)
            positions = self.links.positions(self.batch_size, number)
            if self.is_shuffled:
                positions = np.arange(number, len(self.links), self.num_batches)
            batch = self.links.batch_of(positions, key)
            return BatchSeeds(batch.seeds, batch.times)
        if self.is_shuffled:
            chosen = slice(number, None, self.num_batches)
            seeds = self.seeds[chosen]
            times = None if self.times is None else self.times[chosen]
            return BatchSeeds(distinct_seeds(seeds) if self.may_repeat else seeds, times)
        seeds = batch_seeds(self.seeds, self.batch_size, self.row_starts, number, may_repeat=self.may_repeat)
        return BatchSeeds(seeds, batch_times(self.times, self.batch_size, number, self.row_starts))

    def some_batches(self, count: int) -> Iterator[tuple[int, BatchSeeds]]:
        """Yield about `count` typical batches, as number and seeds."""
        # Spread over the seeds, since those at the front may be of one kind.
        for number in range(0, self.num_batches, max(1, self.num_batches // count)):
            yield number, self.typical_batch(number)


@dataclass(frozen=True, slots=True, eq=False)
class SplitSeeds:
    """Rows of labelled nodes to train on, to select the model by, and to report on. None: no such split."""

    train: NodeRows
    valid: NodeRows | None
    test: NodeRows | None

    @property
    def num_bytes(self) -> int:
        """Bytes of memory of the ids."""
        return sum(ids.nbytes for ids in (self.train, self.valid, self.test) if ids is not None)


def distinct_seeds(seeds: NodeIds) -> NodeIds:
    """Return each seed once, in the order in which they first occur."""
    _, places = np.unique(seeds, return_index=True)
    return seeds if len(places) == len(seeds) else seeds[np.sort(places)]


def batch_seeds(
    seeds: NodeRows, batch_size: int, row_starts: NDArray[np.int64] | None, number: int, *, may_repeat: bool = False
) -> NodeIds:
    """Return the seeds of a batch to sample, int64.

    row_starts: first row of every batch, then the end of the last one, int64 (batches + 1). Batches are then
        consecutive rows, or consecutive seeds if there are some, and `batch_size` is not read.
    may_repeat: a batch may have a seed repeatedly, which is sampled once.
    """
    if row_starts is None:
        chosen = seeds[number * batch_size :][:batch_size]
        return distinct_seeds(chosen) if may_repeat else chosen
    first, end = row_starts[number], row_starts[number + 1]
    return seeds[first:end] if len(seeds) else np.arange(first, end)


def batch_times(
    times: SeedTimes, batch_size: int, number: int, row_starts: NDArray[np.int64] | None = None
) -> SeedTimes:
    """Return the times of a batch's seeds; None if seeds have none. row_starts: see batch_seeds()."""
    if times is None:
        return None
    if row_starts is not None:
        return times[row_starts[number] : row_starts[number + 1]]
    return times[number * batch_size :][:batch_size]


def count_batches(
    num_seeds: int, batch_size: int, max_batches: int = 0, row_starts: NDArray[np.int64] | None = None
) -> int:
    """Number of batches per epoch, the last one possibly smaller.

    max_batches: upper bound, 0 for none. row_starts: see batch_seeds().
    """
    num_batches = -(-num_seeds // batch_size) if row_starts is None else len(row_starts) - 1
    return min(num_batches, max_batches or num_batches)


def shuffled_seeds(train_rows: NodeRows, seed: int, epoch: int) -> NodeRows:
    """Training nodes in the order of an epoch."""
    return NodeRows(train_rows[keyed_permutation(len(train_rows), seed, int(Purpose.TRAIN), epoch)])

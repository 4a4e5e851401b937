"""Seed nodes: the sets that runs start from, and their order in each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from diskhop._native import keyed_permutation
from diskhop.protocols import NodeIds, NodeRows, Purpose, SamplerSpec


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeedSet:
    """The seed nodes of the batches that a run will request, and their sampler.

    purpose: use of the draws.
    seeds: rows, int64 (seeds), unique.
    batch_size: seeds per batch.
    sampler: expands each batch.
    is_shuffled: True if the run shuffles the seeds; False if a batch takes adjacent ones.
    """

    purpose: Purpose
    seeds: NodeRows
    batch_size: int
    sampler: SamplerSpec
    is_shuffled: bool

    def some_batches(self, count: int) -> Iterator[tuple[int, NodeIds]]:
        """Yield about `count` typical batches, as number and seeds."""
        num_batches = count_batches(len(self.seeds), self.batch_size)
        # Spread over the seeds, since those at the front may be of one kind.
        for number in range(0, num_batches, max(1, num_batches // count)):
            if self.is_shuffled:
                yield number, self.seeds[number::num_batches]
            else:
                yield number, self.seeds[number * self.batch_size :][: self.batch_size]


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


def count_batches(num_seeds: int, batch_size: int, max_batches: int = 0) -> int:
    """Number of batches per epoch, the last one possibly smaller. max_batches: upper bound, 0 for none."""
    num_batches = -(-num_seeds // batch_size)
    return min(num_batches, max_batches or num_batches)


def shuffled_seeds(train_rows: NodeRows, seed: int, epoch: int) -> NodeRows:
    """Training nodes in the order of an epoch."""
    return NodeRows(train_rows[keyed_permutation(len(train_rows), seed, int(Purpose.TRAIN), epoch)])

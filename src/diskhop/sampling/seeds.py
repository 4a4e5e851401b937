"""Seed nodes: the sets that runs start from, and their order in each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from diskhop._native import keyed_permutation
from diskhop.protocols import NodeIds, Purpose


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeedSet:
    """Batches that a run will ask for: which seeds, how many a batch, how many neighbours a hop (-1: all).

    is_shuffled: a batch's seeds come from anywhere; else they lie together.
    """

    purpose: Purpose
    seeds: NodeIds
    batch_size: int
    fanouts: tuple[int, ...]
    is_shuffled: bool

    def some_batches(self, count: int) -> Iterator[tuple[int, NodeIds]]:
        """About so many batches like those to come, each with its number: its seeds."""
        num_batches = -(-len(self.seeds) // self.batch_size)
        # Spread over the seeds: those at the front may be of one kind.
        for number in range(0, num_batches, max(1, num_batches // count)):
            if self.is_shuffled:
                yield number, self.seeds[number::num_batches]
            else:
                yield number, self.seeds[number * self.batch_size :][: self.batch_size]


@dataclass(frozen=True, slots=True, eq=False)
class SplitSeeds:
    """Labelled nodes to train on, to choose the best model by, to report on; None: the dataset has no such part."""

    train: NodeIds
    valid: NodeIds | None
    test: NodeIds | None

    @property
    def num_bytes(self) -> int:
        """Memory that the ids take."""
        return sum(ids.nbytes for ids in (self.train, self.valid, self.test) if ids is not None)


def shuffled_seeds(train_ids: NodeIds, seed: int, epoch: int) -> NodeIds:
    """The training nodes in an epoch's order."""
    return train_ids[keyed_permutation(len(train_ids), seed, int(Purpose.TRAIN), epoch)]

"""Negative sampling: each chunk of edges shares its negatives (PBG; Legend, equation 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from diskhop.embedding.partitions.edges import EdgeRows
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.protocols import Purpose


class NegativeSampler:
    """Draws negatives from partitions in memory: uniformly, except for a share by degree.

    Negatives by degree are ends of the batch's edges on the corrupted side.

    partitions: partitions to draw from.
    degree_share: share of the negatives drawn by degree, from 0 to 1.
    seed: random seed.
    ends: number of rows in the first partitions, int64 (partitions); see offsets().
    """

    def __init__(self, layout: PartitionLayout, partitions: Sequence[int], degree_share: float, seed: int) -> None:
        self._partitions = sorted(partitions)
        self._degree_share = degree_share
        self.seed = seed
        counts = [layout.num_rows(partition) for partition in self._partitions]
        self.ends: NDArray[np.int64] = np.cumsum(counts)

    def draw(
        self, shape: tuple[int, int, int], edges: EdgeRows, key: tuple[int, int], base: Callable[[int], int]
    ) -> NDArray[np.int64]:
        """Return rows of negatives, int64 (2, chunks, negatives): for destinations, then for sources.

        shape: (2, chunks, negatives).
        edges: edges of the batch.
        key: epoch and number of the batch.
        base: returns the first row of a partition in the buffer.
        """
        draws = np.random.Generator(np.random.Philox(key=[self.seed, Purpose.NEGATIVES], counter=[0, 0, *key]))
        positions = draws.integers(self.ends[-1], size=shape)
        numbers = np.searchsorted(self.ends, positions, side="right")
        rows: NDArray[np.int64] = positions + self.offsets(base)[numbers]
        num_by_degree = self.num_by_degree(shape[2])
        if num_by_degree:
            chosen = draws.integers(len(edges), size=(*shape[:2], num_by_degree))
            rows[0, :, :num_by_degree] = edges.destinations[chosen[0]]
            rows[1, :, :num_by_degree] = edges.sources[chosen[1]]
        return rows

    def offsets(self, base: Callable[[int], int]) -> NDArray[np.int64]:
        """Return what each partition adds to a position: int64 (partitions).

        Rows start at the partition's base, positions at the total size of the partitions before it.
        """
        bases: NDArray[np.int64] = np.array([base(partition) for partition in self._partitions])
        befores: NDArray[np.int64] = np.concatenate([[0], self.ends[:-1]])
        return np.subtract(bases, befores)

    def num_by_degree(self, num_negatives: int) -> int:
        """Return how many of a chunk's negatives are drawn by degree."""
        return round(self._degree_share * num_negatives)

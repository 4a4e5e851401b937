"""Negatives: nodes drawn for chunks of edges, each chunk's shared by its edges (PBG; Legend, equation 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from diskhop.embedding.partitions.edges import EdgeRows
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.protocols import Purpose


class NegativeSampler:
    """Draws rows of nodes of some partitions that are in memory: each as likely, and a share of them by degree.

    By degree: an end of one of the batch's edges, on the side that is corrupted.
    """

    def __init__(self, layout: PartitionLayout, partitions: Sequence[int], degree_share: float, seed: int) -> None:
        self._partitions = sorted(partitions)
        counts = [layout.num_rows(partition) for partition in self._partitions]
        self._ends = np.cumsum(counts)
        self._degree_share = degree_share
        self._seed = seed

    def draw(
        self, shape: tuple[int, int, int], edges: EdgeRows, key: tuple[int, int], base: Callable[[int], int]
    ) -> NDArray[np.int64]:
        """int64 `shape`: (2, chunks, negatives), for destinations and for sources.

        key: of the batch, as epoch and number in it. base: the row in memory that a partition begins at.
        """
        draws = np.random.Generator(np.random.Philox(key=[self._seed, Purpose.NEGATIVES], counter=[0, 0, *key]))
        places = draws.integers(self._ends[-1], size=shape)
        numbers = np.searchsorted(self._ends, places, side="right")
        # Rows begin at the partition's base; places at what the partitions before it have.
        offsets = np.array([base(partition) for partition in self._partitions]) - np.concatenate([[0], self._ends[:-1]])
        rows: NDArray[np.int64] = places + offsets[numbers]
        num_by_degree = round(self._degree_share * shape[2])
        if num_by_degree:
            chosen = draws.integers(len(edges), size=(*shape[:2], num_by_degree))
            rows[0, :, :num_by_degree] = edges.destinations[chosen[0]]
            rows[1, :, :num_by_degree] = edges.sources[chosen[1]]
        return rows

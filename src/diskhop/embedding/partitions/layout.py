"""Layout of partitions, and the permutation that assigns nodes to them.

A node's *place* is its number after a permutation of the nodes. Partitions are ranges of places; their sizes differ by
at most one. In memory and on disk, a partition is its embeddings, float32 (rows, dim), followed by Adagrad's sums of
squares, float32 (rows, state_dim). Both are padded to a whole number of pages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from diskhop._native import permute_ids
from diskhop.errors import ConfigError

_ITEM_BYTES = 4
# This number of rows of any width is a whole number of 4 KiB pages.
ROWS_STEP = 1024
# An odd number without a pattern (2^64 / golden ratio): consecutive permutations get seeds far from each other.
_SEED_STEP = 0x9E37_79B9_7F4A_7C15


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    """Sizes of partitions.

    num_nodes: number of embeddings.
    num_partitions: number of partitions, from 1 to num_nodes.
    dim: values per embedding.
    state_dim: Adagrad's sums of squares per embedding: 1 (one per row) or dim (one per value).
    """

    num_nodes: int
    num_partitions: int
    dim: int
    state_dim: int

    def __post_init__(self) -> None:
        if not 1 <= self.num_partitions <= self.num_nodes:
            raise ConfigError(
                f"partitions must be from 1 to the {self.num_nodes:,} nodes, got {self.num_partitions}; "
                f"use --partitions {self.num_nodes} or less"
            )

    @property
    def stride_rows(self) -> int:
        """Capacity of each partition in rows."""
        most = -(-self.num_nodes // self.num_partitions)
        return -(-most // ROWS_STEP) * ROWS_STEP

    @property
    def values_bytes(self) -> int:
        """Bytes of one partition's embeddings."""
        return self.stride_rows * self.dim * _ITEM_BYTES

    @property
    def squares_bytes(self) -> int:
        """Bytes of one partition's sums of squares."""
        return self.stride_rows * self.state_dim * _ITEM_BYTES

    @property
    def partition_bytes(self) -> int:
        """Bytes of one partition, in memory and on disk."""
        return self.values_bytes + self.squares_bytes

    def start(self, partition: int) -> int:
        """Return the first place of a partition; num_nodes for num_partitions."""
        return partition * self.num_nodes // self.num_partitions

    def num_rows(self, partition: int) -> int:
        """Return the number of nodes in a partition."""
        return self.start(partition + 1) - self.start(partition)

    def locate(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the partition of each place and the row within the partition."""
        partitions = ((places + 1) * self.num_partitions - 1) // self.num_nodes
        return partitions, places - partitions * self.num_nodes // self.num_partitions


@dataclass(frozen=True, slots=True)
class NodePermutation:
    """A permutation of nodes to places, computed without a table.

    num_nodes: number of nodes.
    assignment: 'input' keeps the nodes' order, 'random' permutes them.
    seed: random seed.
    number: number of the permutation, 0 for the first; each is independent of the others.
    """

    num_nodes: int
    assignment: str
    seed: int
    number: int = 0

    def places(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of nodes, in their shape."""
        return self._permuted(nodes, is_inverse=False)

    def nodes(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the nodes at places, in their shape."""
        return self._permuted(places, is_inverse=True)

    def after(self, number: int) -> NodePermutation:
        """Return the permutation of the same nodes after `number` repartitions."""
        return replace(self, number=number)

    def _permuted(self, ids: NDArray[np.int64], *, is_inverse: bool) -> NDArray[np.int64]:
        permuted = np.array(ids, np.int64, order="C")
        if self.assignment == "random":
            permute_ids(self.num_nodes, step_seed(self.seed, self.number), "ids", permuted.reshape(-1), is_inverse)
        return permuted


def step_seed(seed: int, number: int) -> int:
    """Return the seed of permutation `number`; number 0 has the seed itself."""
    return (seed + number * _SEED_STEP) % (1 << 64)

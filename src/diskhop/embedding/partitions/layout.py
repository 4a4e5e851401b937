"""Which partition a node's embedding lies in, and where in it.

A node's *place* is its number after it is dealt: partitions are ranges of places, as equal as can be. In memory and on
disk a partition is all its embeddings, float32 (rows, dim), then Adagrad's sums of squares, float32 (rows, state_dim),
with rows up to a whole number of pages at the end of each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from diskhop._native import permute_ids
from diskhop.errors import ConfigError

_ITEM_BYTES = 4
# So many rows of any width are whole pages of 4 KiB.
ROWS_STEP = 1024
# An odd number without a pattern: what is dealt next has a seed unlike all that are near.
_SEED_STEP = 0x9E37_79B9_7F4A_7C15


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    """num_nodes embeddings of dim values in num_partitions. state_dim: 1 for a sum a row, dim for one a value."""

    num_nodes: int
    num_partitions: int
    dim: int
    state_dim: int

    def __post_init__(self) -> None:
        if not 1 <= self.num_partitions <= self.num_nodes:
            raise ConfigError(
                f"partitions must be from 1 to the {self.num_nodes:,} nodes, got {self.num_partitions}; "
                "take --partitions less"
            )

    @property
    def stride_rows(self) -> int:
        """Rows that each partition has room for."""
        most = -(-self.num_nodes // self.num_partitions)
        return -(-most // ROWS_STEP) * ROWS_STEP

    @property
    def values_bytes(self) -> int:
        """Of a partition's embeddings."""
        return self.stride_rows * self.dim * _ITEM_BYTES

    @property
    def partition_bytes(self) -> int:
        """Of a partition, in memory and on disk."""
        return self.values_bytes + self.stride_rows * self.state_dim * _ITEM_BYTES

    def start(self, partition: int) -> int:
        """The first place of a partition; of num_partitions, one after the last place."""
        return partition * self.num_nodes // self.num_partitions

    def num_rows(self, partition: int) -> int:
        """Nodes in a partition."""
        return self.start(partition + 1) - self.start(partition)

    def locate(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The partition of each place, and the row in it."""
        partitions = ((places + 1) * self.num_partitions - 1) // self.num_nodes
        return partitions, places - partitions * self.num_nodes // self.num_partitions


@dataclass(frozen=True, slots=True)
class NodePermutation:
    """Which place each of num_nodes nodes has: 'input' keeps ids, 'random' spreads them, without a table.

    number: how often they have been dealt anew, each time all of them, wherever they were.
    """

    num_nodes: int
    assignment: str
    seed: int
    number: int = 0

    def places(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of nodes, an array of any shape."""
        return self._permuted(nodes, is_inverse=False)

    def nodes(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """That have these places."""
        return self._permuted(places, is_inverse=True)

    def anew(self, number: int) -> NodePermutation:
        """The same nodes, dealt so often."""
        return replace(self, number=number)

    def _permuted(self, ids: NDArray[np.int64], *, is_inverse: bool) -> NDArray[np.int64]:
        permuted = np.array(ids, np.int64, order="C")
        if self.assignment == "random":
            permute_ids(self.num_nodes, step_seed(self.seed, self.number), "ids", permuted.reshape(-1), is_inverse)
        return permuted


def step_seed(seed: int, number: int) -> int:
    """A seed for each number; that of 0 is the seed itself."""
    return (seed + number * _SEED_STEP) % (1 << 64)

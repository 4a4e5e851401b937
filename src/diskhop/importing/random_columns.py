"""Features, labels and training nodes for graphs that have none: functions of a seed and the node's id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import feature_rows, node_classes, permute_ids
from diskhop.runtime.blocks import row_ranges

_FEATURE_BLOCK_BYTES = 4 << 20
_NODES_PER_BLOCK = 1 << 16
# Share of nodes to train on, as of generated graphs and in Ginex's paper.
DEFAULT_TRAIN_FRACTION = 0.1


class RandomFeatures:
    """Column of independent standard normal values, a function of the node's id."""

    where = "--random-features"
    dtype: np.dtype[Any] = np.dtype(np.float32)

    def __init__(self, num_nodes: int, dim: int, seed: int = 0) -> None:
        self.shape = (num_nodes, dim)
        self._seed = seed

    @property
    def identity(self) -> str:
        """See Column."""
        return f"random features {self.shape}, seed {self._seed}"

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column."""
        return self.blocks_from(0)

    def blocks_from(self, first_row: int) -> Iterator[NDArray[Any]]:
        """See Seekable."""
        num_nodes, dim = self.shape
        no_means, no_classes = np.empty(0, np.float32), np.empty(0, np.int64)
        for start, stop in row_ranges(num_nodes - first_row, max(1, _FEATURE_BLOCK_BYTES // (4 * dim))):
            rows = np.empty((stop - start, dim), np.float32)
            nodes = np.arange(first_row + start, first_row + stop)
            feature_rows(self._seed, nodes, dim, no_means, no_classes, rows.reshape(-1))
            yield rows


class RandomLabels:
    """Column of classes, each as likely as the others."""

    where = "--random-labels"
    dtype: np.dtype[Any] = np.dtype(np.int64)

    def __init__(self, num_nodes: int, num_classes: int, seed: int) -> None:
        self.shape = (num_nodes,)
        self._num_classes = num_classes
        self._seed = seed

    @property
    def identity(self) -> str:
        """See Column."""
        return f"random labels {self.shape}, {self._num_classes} classes, seed {self._seed}"

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column."""
        for start, stop in row_ranges(self.shape[0], _NODES_PER_BLOCK):
            classes = np.empty(stop - start, np.int64)
            node_classes(self._seed, self._num_classes, np.arange(start, stop), classes)
            yield classes


class RandomSplit:
    """Column of the ids of training nodes, ascending: the first in a random order of all nodes, at least one."""

    where = "--train-fraction"
    dtype: np.dtype[Any] = np.dtype(np.int64)

    def __init__(self, num_nodes: int, fraction: float, seed: int) -> None:
        self.shape = (max(1, round(fraction * num_nodes)),)
        self._num_nodes = num_nodes
        self._seed = seed

    @property
    def identity(self) -> str:
        """See Column."""
        return f"{self.shape} random training nodes of {self._num_nodes}, seed {self._seed}"

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column."""
        for start, stop in row_ranges(self._num_nodes, _NODES_PER_BLOCK):
            places = np.arange(start, stop)
            permute_ids(self._num_nodes, self._seed, "splits", places)
            yield np.flatnonzero(places < self.shape[0]) + start

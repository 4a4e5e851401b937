"""What the nodes of a generated graph have: classes, features and a part of the split, each by its original id.

Features are signal * m[class] + noise, the noise standard normal and the class means m of length 1. The means are rows
of a Hadamard matrix, so that they are orthogonal and no single column tells a class; where there are more classes than
such rows, they come again with the signs of columns turned at random.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import feature_rows, node_classes, permute_ids
from diskhop.dataset.manifest import SPLIT_NAMES
from diskhop.generating.config import GraphConfig, hadamard_width


class GeneratedNodes:
    """Blocks of nodes, start .. stop - 1 in the order of the dataset; any number of threads at once.

    original_ids: of every node, where the dataset is renumbered.
    """

    def __init__(self, config: GraphConfig, original_ids: NDArray[Any] | None = None) -> None:
        self._config = config
        self._original_ids = original_ids
        means = class_means(config.num_classes, config.dim)
        means *= np.float32(config.signal)  # in place: they are reserved once
        self._means = means.reshape(-1)
        self._parts = _part_ranges(config)

    def original_ids(self, start: int, stop: int) -> NDArray[np.int64]:
        """What the nodes are known by."""
        if self._original_ids is None:
            return np.arange(start, stop)
        return self._original_ids[start:stop].astype(np.int64, copy=False)

    def classes(self, start: int, stop: int) -> NDArray[np.int64]:
        """A class each: v mod classes in a stochastic block model, else drawn uniformly."""
        ids = self.original_ids(start, stop)
        if self._config.kind == "sbm":
            return ids % self._config.num_classes
        classes = np.empty(len(ids), np.int64)
        node_classes(self._config.seed, self._config.num_classes, ids, classes)
        return classes

    def features(self, start: int, stop: int) -> NDArray[np.float32]:
        """Rows (nodes, dim)."""
        dim = self._config.dim
        classes = self.classes(start, stop) if self._config.num_classes else np.empty(0, np.int64)
        rows = np.empty((stop - start, dim), np.float32)
        ids = self.original_ids(start, stop)
        feature_rows(self._config.seed, ids, dim, self._means, classes, rows.reshape(-1))
        return rows

    def part(self, name: str, start: int, stop: int) -> NDArray[np.int64]:
        """Those of the nodes that are in a part of the split, as the dataset numbers them."""
        begin, end = self._parts[name]
        places = self.original_ids(start, stop).copy()
        permute_ids(self._config.num_nodes, self._config.seed, "splits", places)
        return np.flatnonzero((places >= begin) & (places < end)) + start

    def part_length(self, name: str) -> int:
        """How many nodes are in a part of the split."""
        begin, end = self._parts[name]
        return end - begin


def class_means(num_classes: int, dim: int) -> NDArray[np.float32]:
    """Rows (classes, dim) of length 1, orthogonal within each group of `width` classes; columns from width on are 0."""
    width = hadamard_width(dim)
    means = np.zeros((num_classes if dim else 0, dim), np.float32)
    columns = np.arange(width)
    turned = np.zeros(width, np.int64)
    for each, mean in enumerate(means):
        group, row = divmod(each, width)
        if row == 0 and group > 0:
            node_classes(group, 2, columns, turned)
        signs = 1 - 2 * ((np.bitwise_count(row & columns) + turned) % 2)
        mean[:width] = signs.astype(np.float32) / np.float32(math.sqrt(width))
    return means


def features_alone_accuracy(num_classes: int, signal: float) -> float:
    """The best accuracy that any classifier of a node's own features can reach, classes being equally likely.

    It is the chance that the projection on the node's own class mean, N(signal, 1), exceeds the num_classes - 1 others,
    N(0, 1): the integral of phi(z - signal) * Phi(z)^(num_classes - 1). The means must be orthogonal.
    """
    # The integrand is smooth and vanishes at both ends, where the trapezoidal rule converges faster than any power.
    points = np.linspace(signal - 12.0, signal + 12.0, 4001)
    density = np.exp(-0.5 * (points - signal) ** 2) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-point / math.sqrt(2)) for point in points])
    return float(np.trapezoid(density * below ** (num_classes - 1), points))


def _part_ranges(config: GraphConfig) -> dict[str, tuple[int, int]]:
    """Each part as a range of the places that nodes take in a random order: at least one node, where one is left."""
    begin = 0
    ranges = {}
    for name, fraction in zip(SPLIT_NAMES, (config.train_fraction, config.eval_share, config.eval_share), strict=True):
        wanted = max(1, round(fraction * config.num_nodes)) if fraction > 0 else 0
        end = min(begin + wanted, config.num_nodes)
        ranges[name] = (begin, end)
        begin = end
    return ranges

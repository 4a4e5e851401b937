"""Classes, features and splits of generated nodes, as functions of a node's original id.

Features are signal * m[class] + noise, with standard normal noise and class means m of length 1. The means are rows of
a Hadamard matrix: they are orthogonal, and no single column identifies a class. With more classes than rows, the rows
are reused with random signs per column.
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
    """Data of nodes start to stop - 1, in the order of the dataset. Safe to call from several threads.

    original_ids: original id of every node; None: the dataset is not renumbered.
    """

    def __init__(self, config: GraphConfig, original_ids: NDArray[Any] | None = None) -> None:
        self._config = config
        self._original_ids = original_ids
        means = class_means(config.num_classes, config.dim)
        means *= np.float32(config.signal)  # in place, because only one copy is reserved
        self._means = means.reshape(-1)
        self._parts = _part_ranges(config)

    def original_ids(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the original ids."""
        if self._original_ids is None:
            return np.arange(start, stop)
        return self._original_ids[start:stop].astype(np.int64, copy=False)

    def classes(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the classes: id mod num_classes in a stochastic block model, else drawn uniformly."""
        ids = self.original_ids(start, stop)
        if self._config.kind == "sbm":
            return ids % self._config.num_classes
        classes = np.empty(len(ids), np.int64)
        node_classes(self._config.seed, self._config.num_classes, ids, classes)
        return classes

    def features(self, start: int, stop: int) -> NDArray[np.float32]:
        """Return features (nodes, dim)."""
        dim = self._config.dim
        classes = self.classes(start, stop) if self._config.num_classes else np.empty(0, np.int64)
        rows = np.empty((stop - start, dim), np.float32)
        ids = self.original_ids(start, stop)
        feature_rows(self._config.seed, ids, dim, self._means, classes, rows.reshape(-1))
        return rows

    def part(self, name: str, start: int, stop: int) -> NDArray[np.int64]:
        """Return the nodes that are in a part of the split, by their numbers in the dataset."""
        begin, end = self._parts[name]
        places = self.original_ids(start, stop).copy()
        permute_ids(self._config.num_nodes, self._config.seed, "splits", places)
        return np.flatnonzero((places >= begin) & (places < end)) + start

    def part_length(self, name: str) -> int:
        """Return the number of nodes in a part of the split."""
        begin, end = self._parts[name]
        return end - begin


def class_means(num_classes: int, dim: int) -> NDArray[np.float32]:
    """Compute the class means (classes, dim), of length 1 and orthogonal within each group of hadamard_width(dim)."""
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
    """Compute the best accuracy of any classifier of a node's own features, with equally likely classes.

    It is the chance that the projection on the node's own class mean, N(signal, 1), exceeds the num_classes - 1 others,
    N(0, 1): the integral of phi(z - signal) * Phi(z)^(num_classes - 1). The means must be orthogonal.
    """
    # The integrand is smooth and vanishes at both ends, where the trapezoidal rule converges faster than any power.
    points = np.linspace(signal - 12.0, signal + 12.0, 4001)
    density = np.exp(-0.5 * (points - signal) ** 2) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-point / math.sqrt(2)) for point in points])
    return float(np.trapezoid(density * below ** (num_classes - 1), points))


def _part_ranges(config: GraphConfig) -> dict[str, tuple[int, int]]:
    """Return each part as a range of places in a random order of the nodes: at least one node, if any is left."""
    begin = 0
    ranges = {}
    for name, fraction in zip(SPLIT_NAMES, (config.train_fraction, config.eval_share, config.eval_share), strict=True):
        wanted = max(1, round(fraction * config.num_nodes)) if fraction > 0 else 0
        end = min(begin + wanted, config.num_nodes)
        ranges[name] = (begin, end)
        begin = end
    return ranges

"""A confusion matrix of bounded size: the largest classes one by one, all others together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.predicting.metrics.counts import Counts, Outputs

# More classes than this cannot be read on one chart.
MOST_CLASSES = 30


def largest_classes(num_nodes: Counts) -> NDArray[np.int64]:
    """Return the MOST_CLASSES classes with the most nodes, ascending. num_nodes: of each class."""
    return np.sort(np.argsort(-num_nodes, kind="stable")[:MOST_CLASSES])


def merge_others(matrix: Counts, shown: NDArray[np.int64]) -> Counts:
    """Keep the rows and columns of some classes, and add up those of the others in a last row and column."""
    group = np.full(len(matrix), len(shown))
    group[shown] = np.arange(len(shown))
    merged = np.zeros((len(shown) + 1, len(shown) + 1), np.int64)
    np.add.at(merged, (group[:, None], group[None, :]), matrix)
    return merged


class Confusion:
    """Counts of nodes by class and predicted class.

    num_classes: all classes. shown: those that have a row and a column; the others share the last ones.
    """

    def __init__(self, num_classes: int, shown: NDArray[np.int64]) -> None:
        self._shown = shown
        self._group = np.full(num_classes, len(shown))
        self._group[shown] = np.arange(len(shown))
        size = len(shown) + (len(shown) < num_classes)
        self._matrix = np.zeros((size, size), np.int64)

    def update(self, outputs: Outputs, labels: NDArray[np.int64]) -> None:
        """Add nodes. The predicted class is the one of the highest output, of equal ones the first."""
        np.add.at(self._matrix, (self._group[labels], self._group[outputs.argmax(axis=1)]), 1)

    def merge(self, other: Confusion) -> None:
        """Add the nodes of another one of the same classes."""
        self._matrix += other._matrix

    def to_dict(self, names: Sequence[str] | None) -> dict[str, Any]:
        """Return the entry of result.json. names: of all classes; None: they have none."""
        titles = [str(each) if names is None else names[each] for each in self._shown.tolist()]
        return {"num_classes": len(self._group), "classes": titles, "counts": self._matrix.tolist()}

"""Connected components by union-find, whose edges come in blocks: edges count in both directions.

Each node has a parent with a lower number, or is a root. Blocks of pairs are joined by array operations: of two roots
the higher one gets the lower one as its parent, which never makes a circle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.statistics.doubling import DoublingHistogram
from diskhop.runtime.blocks import row_ranges

_BLOCK_NODES = 1 << 18


@dataclass(frozen=True, slots=True)
class Components:
    """The components of a graph.

    number: of components; a node without edges is one.
    largest: nodes of the largest one.
    sizes: number of components by size.
    """

    number: int
    largest: int
    sizes: DoublingHistogram


def components_bytes(num_nodes: int) -> int:
    """Return the memory of UnionFind for a number of nodes."""
    return 2 * num_nodes * _dtype(num_nodes).itemsize + 64 * _BLOCK_NODES


def _dtype(num_nodes: int) -> np.dtype[Any]:
    return np.dtype(np.uint32 if num_nodes < 1 << 32 else np.int64)


class UnionFind:
    """Sets of nodes that are joined by edges. num_nodes: number of nodes, each of which is a set at first."""

    def __init__(self, num_nodes: int) -> None:
        self._parents = np.arange(num_nodes, dtype=_dtype(num_nodes))

    def join(self, one: NDArray[Any], other: NDArray[Any]) -> None:
        """Join the ends of edges, (edges) each."""
        one, other = self._roots(one), self._roots(other)
        while True:
            differ = one != other
            if not differ.any():
                return
            one, other = one[differ], other[differ]
            # Of several parents for one root the last one stays; the other pairs still differ in the next round.
            self._parents[np.maximum(one, other)] = np.minimum(one, other)
            one, other = self._roots(one), self._roots(other)

    def count(self) -> Components:
        """Return the components."""
        parents, sizes = self._parents, np.zeros_like(self._parents)
        for start, stop in row_ranges(len(parents), _BLOCK_NODES):
            # Parents are lower: those of earlier blocks are roots already.
            roots = self._roots(parents[start:stop])
            parents[start:stop] = roots
            np.add.at(sizes, roots, 1)
        histogram = DoublingHistogram()
        for start, stop in row_ranges(len(sizes), _BLOCK_NODES):
            block = sizes[start:stop]
            histogram.add(block[block > 0])
        return Components(histogram.num_values, histogram.highest, histogram)

    def _roots(self, nodes: NDArray[Any]) -> NDArray[Any]:
        parents = self._parents
        found: NDArray[Any] = parents[nodes]
        while True:
            above = parents[found]
            if np.array_equal(above, found):
                break
            found = above
        # Shorter paths for the edges to come; a node's root is lower than or equal to its parent.
        parents[nodes] = found
        return found

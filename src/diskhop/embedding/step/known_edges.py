"""Which nodes are known to be right: those that edges of the training set lead to from a node by a relation.

Drawn as negatives, they would be taught to be wrong.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.embedding.partitions.edges import EdgeBlocks

# An edge is kept from both of its ends, as a key and a node; one side's are sorted by an order of their own and copied.
_BYTES_PER_EDGE = 2 * (8 + 8) + 8 + 16


class _Answers(NamedTuple):
    """keys: int64, ascending, of a node and a relation; nodes: int64, ascending where keys are the same."""

    keys: NDArray[np.int64]
    nodes: NDArray[np.int64]


class KnownBatch(NamedTuple):
    """nodes: int64, places of a batch's sources, destinations and negatives. What follows is for either side.

    answers: int64, of all queries; begins, ends: int64 (2, edges), where among them those of an edge are.
    """

    nodes: NDArray[np.int64]
    answers: tuple[NDArray[np.int64], NDArray[np.int64]]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]


class KnownEdges:
    """All edges of the training set, by places. num_relations: 0 without relations."""

    def __init__(self, num_edges: int, num_relations: int, blocks: EdgeBlocks) -> None:
        self._num_relations = max(1, num_relations)
        self._sides = tuple(self._read(num_edges, blocks, side) for side in (0, 1))

    def of_batch(self, nodes: NDArray[np.int64], relations: NDArray[np.int32] | None, num_edges: int) -> KnownBatch:
        """nodes: places of sources, of destinations, of num_edges each, and of negatives."""
        begins, ends = np.empty((2, num_edges), np.int64), np.empty((2, num_edges), np.int64)
        for side, answers in enumerate(self._sides):
            keys = self._keys(nodes[side * num_edges : (side + 1) * num_edges], relations)
            begins[side] = np.searchsorted(answers.keys, keys)
            ends[side] = np.searchsorted(answers.keys, keys, side="right")
        return KnownBatch(nodes, (self._sides[0].nodes, self._sides[1].nodes), begins, ends)

    def _read(self, num_edges: int, blocks: EdgeBlocks, side: int) -> _Answers:
        keys, nodes = np.empty(num_edges, np.int64), np.empty(num_edges, np.int64)
        end = 0
        for sources, relations, destinations in blocks():
            start, end = end, end + len(sources)
            asked, nodes[start:end] = (sources, destinations) if side == 0 else (destinations, sources)
            keys[start:end] = self._keys(asked, relations)
        order = np.lexsort((nodes, keys))
        return _Answers(keys[order], nodes[order])

    def _keys(
        self, nodes: NDArray[np.int64], relations: NDArray[np.int64] | NDArray[np.int32] | None
    ) -> NDArray[np.int64]:
        keys = nodes * self._num_relations
        return keys if relations is None else keys + relations


def known_bytes(num_edges: int) -> int:
    """Memory of KnownEdges, while they are sorted."""
    return num_edges * _BYTES_PER_EDGE

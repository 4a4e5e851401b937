"""Known answers: the nodes that training edges connect to a given node by a given relation.

They are excluded as negatives, since training would otherwise lower the scores of true edges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.embedding.partitions.edges import EdgeBlocks

# Each edge is stored for both sides as a key and a node. Sorting one side takes an order and a copy.
_BYTES_PER_EDGE = 2 * (8 + 8) + 8 + 16


class _Answers(NamedTuple):
    """Known answers for one side.

    keys: the given node and relation of each edge, int64, ascending.
    nodes: the other end of each edge, int64, ascending within a key.
    """

    keys: NDArray[np.int64]
    nodes: NDArray[np.int64]


class KnownBatch(NamedTuple):
    """Known answers of a batch.

    nodes: places of the batch's sources, destinations and negatives, int64.
    answers: known answers of all queries, for destinations and for sources, int64.
    begins: first known answer of each side and edge in `answers`, int64 (2, edges).
    ends: end of the known answers of each side and edge, int64 (2, edges).
    """

    nodes: NDArray[np.int64]
    answers: tuple[NDArray[np.int64], NDArray[np.int64]]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]


class KnownEdges:
    """Known answers of all training edges, by places. num_relations: 0 without relations."""

    def __init__(self, num_edges: int, num_relations: int, blocks: EdgeBlocks) -> None:
        self._num_relations = max(1, num_relations)
        self._sides = tuple(self._read(num_edges, blocks, side) for side in (0, 1))

    def of_batch(self, nodes: NDArray[np.int64], relations: NDArray[np.int32] | None, num_edges: int) -> KnownBatch:
        """Return the known answers of a batch.

        nodes: places of num_edges sources, num_edges destinations, then negatives.
        """
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
            given, nodes[start:end] = (sources, destinations) if side == 0 else (destinations, sources)
            keys[start:end] = self._keys(given, relations)
        order = np.lexsort((nodes, keys))
        return _Answers(keys[order], nodes[order])

    def _keys(
        self, nodes: NDArray[np.int64], relations: NDArray[np.int64] | NDArray[np.int32] | None
    ) -> NDArray[np.int64]:
        keys = nodes * self._num_relations
        return keys if relations is None else keys + relations


def known_bytes(num_edges: int) -> int:
    """Return the memory of KnownEdges in bytes, including sorting."""
    return num_edges * _BYTES_PER_EDGE

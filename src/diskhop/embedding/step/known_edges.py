"""Known answers: the nodes that training edges connect to a given node by a given relation.

They are excluded as negatives, since training would otherwise lower the scores of true edges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from diskhop.embedding.partitions.edges import EdgeBlocks

# Each edge is stored for both sides as a key and a node. Sorting one side takes an order and a copy.
_BYTES_PER_EDGE = 2 * (8 + 8) + 8 + 16


class Answers(NamedTuple):
    """Known answers for one side.

    keys: the given node and relation of each edge, int64, ascending.
    nodes: the other end of each edge, int64, ascending within a key.
    """

    keys: Tensor
    nodes: Tensor


class KnownBatch(NamedTuple):
    """Known answers of a batch, all on the device of its embeddings.

    nodes: places of the batch's sources, destinations and negatives, int64.
    answers: known answers of all queries, for destinations and for sources, int64.
    begins: first known answer of each side and edge in `answers`, int64 (2, edges).
    ends: end of the known answers of each side and edge, int64 (2, edges).
    """

    nodes: Tensor
    answers: tuple[Tensor, Tensor]
    begins: Tensor
    ends: Tensor


class KnownEdges:
    """Known answers of all training edges, by places.

    num_relations: at least 1. tails, heads: answers for destinations and for sources.
    """

    def __init__(self, num_relations: int, tails: Answers, heads: Answers) -> None:
        self._num_relations = num_relations
        self._sides = tails, heads

    @classmethod
    def read(cls, num_edges: int, num_relations: int, blocks: EdgeBlocks) -> KnownEdges:
        """Read all training edges. num_relations: 0 without relations."""
        num_relations = max(1, num_relations)
        tails, heads = (_read(num_edges, num_relations, blocks, side) for side in (0, 1))
        return cls(num_relations, tails, heads)

    def mapped(self, function: Callable[[Tensor], Tensor]) -> KnownEdges:
        """Return the edges with a function applied to each tensor, such as one that copies it to a device."""
        tails, heads = (Answers(function(each.keys), function(each.nodes)) for each in self._sides)
        return KnownEdges(self._num_relations, tails, heads)

    def of_batch(self, nodes: Tensor, relations: Tensor | None, num_edges: int) -> KnownBatch:
        """Return the known answers of a batch.

        nodes: places of num_edges sources, num_edges destinations, then negatives.
        """
        begins, ends = nodes.new_empty(2, num_edges), nodes.new_empty(2, num_edges)
        for side, answers in enumerate(self._sides):
            keys = nodes[side * num_edges : (side + 1) * num_edges] * self._num_relations
            keys = keys if relations is None else keys + relations
            begins[side] = torch.searchsorted(answers.keys, keys)
            ends[side] = torch.searchsorted(answers.keys, keys, right=True)
        return KnownBatch(nodes, (self._sides[0].nodes, self._sides[1].nodes), begins, ends)


def _read(num_edges: int, num_relations: int, blocks: EdgeBlocks, side: int) -> Answers:
    keys, nodes = np.empty(num_edges, np.int64), np.empty(num_edges, np.int64)
    end = 0
    for sources, relations, destinations in blocks():
        start, end = end, end + len(sources)
        given, nodes[start:end] = (sources, destinations) if side == 0 else (destinations, sources)
        keys[start:end] = given * num_relations
        if relations is not None:
            keys[start:end] += relations
    order = np.lexsort((nodes, keys))
    return Answers(torch.from_numpy(keys[order]), torch.from_numpy(nodes[order]))


def known_bytes(num_edges: int) -> int:
    """Return the memory of KnownEdges in bytes, including sorting."""
    return num_edges * _BYTES_PER_EDGE


def device_known_bytes(num_edges: int) -> int:
    """Return the memory of KnownEdges on a device in bytes."""
    return num_edges * 2 * (8 + 8)

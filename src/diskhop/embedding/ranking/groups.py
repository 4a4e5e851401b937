"""Groups of edges that are ranked together, with the candidates that are excluded for them.

A group is bounded by memory: its edges and their known answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.embedding.ranking.protocol import KnownEdgeBlocks, MeasuredEdges

# Memory of a group: per known answer while they are sorted; per edge for its key, number and ranks.
_ANSWER_BYTES, _EDGE_BYTES = 32, 128
_GROUPS_SHARE = 8


class EdgeQueries:
    """Queries of edges for one side, each a given end and a relation, with the known answers to them.

    Edges with the same given end and relation share a *key*, and so their known answers.

    edges: edges to rank.
    side: 0 to predict destinations, 1 to predict sources.
    num_nodes: number of nodes.
    known: edges to filter.
    """

    def __init__(self, edges: MeasuredEdges, side: int, num_nodes: int, known: KnownEdgeBlocks) -> None:
        self._known = known.blocks
        self._side = side
        self._num_nodes = num_nodes
        self._num_relations = max(1, known.num_relations)
        self._own = edges.given(1 - side)
        self._keys, self._numbers = np.unique(self._keys_of(edges.given(side), edges.relations), return_inverse=True)

    def groups(self, dim: int, memory_bytes: int) -> Iterator[EdgeGroup]:
        """Yield groups of edges in order of their keys: the most that fit the memory, at least one edge each."""
        num_answers = np.zeros(len(self._keys), np.int64)
        # Known edges are read once if all answers fit. Otherwise they are read to count them, and again per group.
        room = (memory_bytes - len(self._numbers) * _edge_bytes(dim)) // _ANSWER_BYTES
        found: list[NDArray[np.int64]] = []
        for numbers, answers in self._answers(self._keys):
            num_answers += np.bincount(numbers, minlength=len(num_answers))
            if num_answers.sum() <= room:
                found.append(numbers * self._num_nodes + answers)
            else:
                found.clear()
        order = np.argsort(self._numbers, kind="stable")
        if num_answers.sum() <= room:
            yield self._group(order, found)
            return
        key_numbers = self._numbers[order]
        is_new = np.diff(key_numbers, prepend=-1) > 0
        ends = np.cumsum(_edge_bytes(dim) + _ANSWER_BYTES * np.where(is_new, num_answers[key_numbers], 0))
        start = 0
        while start < len(order):
            repeated_bytes = 0 if is_new[start] else _ANSWER_BYTES * num_answers[key_numbers[start]]
            taken = (ends[start - 1] if start else 0) - repeated_bytes
            stop = max(start + 1, int(np.searchsorted(ends, taken + memory_bytes, side="right")))
            keys = np.unique(self._numbers[order[start:stop]])
            answers_of_keys = self._answers(self._keys[keys])
            yield self._group(
                order[start:stop], [keys[each] * self._num_nodes + answers for each, answers in answers_of_keys]
            )
            start = stop

    def _group(self, numbers: NDArray[np.int64], found: list[NDArray[np.int64]]) -> EdgeGroup:
        """Return a group of edges. found: known answers, each as key number * num_nodes + place."""
        known = np.unique(np.concatenate([*found, np.empty(0, np.int64)]))
        return EdgeGroup(
            numbers, ExcludedCandidates(self._numbers[numbers] * self._num_nodes, self._own[numbers], known)
        )

    def _answers(self, keys: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield the known answers to keys, per block of known edges: position of the key and place of the answer."""
        for sources, relations, destinations in self._known():
            given, answers = (destinations, sources) if self._side else (sources, destinations)
            known_keys = self._keys_of(given, relations)
            numbers = np.minimum(np.searchsorted(keys, known_keys), len(keys) - 1)
            is_match = keys[numbers] == known_keys
            yield numbers[is_match], answers[is_match]

    def _keys_of(self, nodes: NDArray[np.int64], relations: NDArray[np.int64] | None) -> NDArray[np.int64]:
        keys = nodes * self._num_relations
        return keys if relations is None else keys + relations


class EdgeGroup(NamedTuple):
    """Edges that are ranked together.

    numbers: positions of the edges.
    excluded: candidates that are excluded for them.
    """

    numbers: NDArray[np.int64]
    excluded: ExcludedCandidates


class ExcludedCandidates:
    """Candidates that are excluded for edges: their own answers and known answers.

    firsts: number that place 0 has as an answer of each edge, (edges): key number * num_nodes.
    own: place of each edge's own answer, (edges).
    known: known answers as key number * num_nodes + place, ascending.
    """

    def __init__(self, firsts: NDArray[np.int64], own: NDArray[np.int64], known: NDArray[np.int64]) -> None:
        self._firsts = firsts
        self._known = known
        # An own answer that is also a known answer is excluded once: -1 is no place.
        self._own = np.where(np.isin(firsts + own, known), -1, own)

    def mask(self, scores: Tensor, part: slice, places: NDArray[np.int64]) -> Tensor:
        """Set the scores of excluded candidates to -inf and return their number per edge.

        scores: (edges of the part, candidates).
        part: the edges.
        places: places of the candidates, ascending.
        """
        first, stop = places[0], places[-1] + 1
        firsts, own = self._firsts[part], self._own[part]
        begins, ends = np.searchsorted(self._known, firsts + first), np.searchsorted(self._known, firsts + stop)
        rows, answers = _expand(begins, ends)
        in_piece = np.flatnonzero((own >= first) & (own < stop))
        nodes = np.append(self._known[answers] - firsts[rows], own[in_piece])
        rows = np.append(rows, in_piece)
        # A node may be no candidate, where these are drawn.
        which, columns = _expand(np.searchsorted(places, nodes), np.searchsorted(places, nodes, side="right"))
        scores[torch.from_numpy(rows[which]), torch.from_numpy(columns)] = -torch.inf
        return torch.from_numpy(np.bincount(rows[which], minlength=len(scores)))


def group_bytes(budget_bytes: int) -> int:
    """Return the memory for a group of edges from a run's budget, in bytes."""
    return budget_bytes // _GROUPS_SHARE


def largest_group_bytes(num_edges: int, num_known: int, dim: int, memory_bytes: int) -> int:
    """Return the memory of a group in bytes: that of all edges and known answers, up to memory_bytes."""
    return min(num_edges * _edge_bytes(dim) + num_known * _ANSWER_BYTES, memory_bytes)


def _edge_bytes(dim: int) -> int:
    return _EDGE_BYTES + 4 * 4 * dim  # both ends, queries and their inputs


def _expand(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the index i and the number of each element of the ranges from begins[i] to ends[i] (exclusive)."""
    counts = ends - begins
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) + np.repeat(begins - np.cumsum(counts) + counts, counts)

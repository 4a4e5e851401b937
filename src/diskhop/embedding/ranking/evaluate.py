"""Link prediction: ranks edges among candidates by a protocol, which is reported with every metric.

Edges are ranked in *groups* that fit the memory together with their known answers. All candidates are streamed once per
group, in pieces. Memory therefore does not grow with the number of nodes or partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.embedding.partitions.edges import EdgeBlocks
from diskhop.embedding.partitions.store import PIECE_BYTES
from diskhop.embedding.ranking.ranks import Ranks, summarize_ranks
from diskhop.embedding.ranking.reader import EmbeddingReader, NodePiece
from diskhop.embedding.scoring.pairwise import Kind

SIDES = {"both": (0, 1), "tail": (0,), "head": (1,)}
# Edges and candidates that are scored at a time: the matrix of scores stays in the CPU cache.
_EDGES_AT_ONCE, _NODES_AT_ONCE = 512, 1024
# Own scores are the diagonals of products of this number of edges and nodes: they round like candidates' scores.
_OWN_AT_ONCE = 64
# Rows and columns of matrix products are padded to multiples of this; the constants above are multiples.
_BLOCK_ROWS = 16
# Memory of a group: per known answer while they are sorted; per edge for its key, number and ranks.
_ANSWER_BYTES, _EDGE_BYTES = 32, 128
_SCORES_BYTES = _EDGES_AT_ONCE * _NODES_AT_ONCE * (4 + 4)
_GROUPS_SHARE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """Options of ranking.

    filtered: whether known answers (edges of any part) are excluded as candidates.
    candidates: number of random candidates per side, 0 for all nodes.
    sides: ends to predict: 'both', 'tail' or 'head'.
    ties: key in ranks.TIES.
    """

    filtered: bool
    candidates: int
    sides: str
    ties: str

    def to_dict(self, num_edges: int, total: int) -> dict[str, Any]:
        """Return the protocol as written to result.json. total: number of edges in the part."""
        return {
            "filtered": self.filtered,
            "candidates": self.candidates or "all",
            "sides": self.sides,
            "ties": self.ties,
            "edges": f"{num_edges} of {total}",
        }


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredEdges:
    """Edges to rank, by the places of their ends.

    sources: int64 (edges).
    relations: int64 (edges), or None without relations.
    destinations: int64 (edges).
    total: number of edges in the part that these are a sample of.
    """

    sources: NDArray[np.int64]
    relations: NDArray[np.int64] | None
    destinations: NDArray[np.int64]
    total: int

    def __len__(self) -> int:
        return len(self.sources)

    def given(self, side: int) -> NDArray[np.int64]:
        """Return the given ends for a side: sources for side 0, which predicts destinations, else destinations."""
        return self.destinations if side else self.sources

    def take(self, numbers: NDArray[np.int64]) -> MeasuredEdges:
        """Return the edges at positions `numbers`."""
        relations = None if self.relations is None else self.relations[numbers]
        return MeasuredEdges(self.sources[numbers], relations, self.destinations[numbers], self.total)

    def moved(self, moved: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> MeasuredEdges:
        """Return the same edges with their ends at new places. moved: maps old places to new places."""
        return MeasuredEdges(moved(self.sources), self.relations, moved(self.destinations), self.total)


@dataclass(frozen=True, slots=True)
class KnownEdgeBlocks:
    """Known edges, of all parts.

    blocks: yields the edges by places, a block at a time.
    num_relations: number of relations, 0 without relations.
    """

    blocks: EdgeBlocks
    num_relations: int

    def none(self) -> KnownEdgeBlocks:
        """Return no edges, with the same relations."""
        return KnownEdgeBlocks(lambda: iter(()), self.num_relations)


def evaluate(
    reader: EmbeddingReader,
    edges: MeasuredEdges,
    protocol: Protocol,
    known: KnownEdgeBlocks,
    drawn: NDArray[np.int64],
    memory_bytes: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Rank edges and return the metrics and the protocol as written to result.json.

    known: edges to filter.
    drawn: places of random candidates for destinations and sources, (2, candidates); unused with all nodes.
    memory_bytes: memory for a group of edges; the known answers of a single edge may exceed it.
    progress: called with the number of ranks done and their total, over edges and sides.
    Raises ReadError.
    """
    sides = SIDES[protocol.sides]
    ranks = []
    for side in sides:
        query = Query(edges, side, reader.layout.num_nodes, known if protocol.filtered else known.none())
        places = np.sort(drawn[side])
        candidates = [NodePiece(places, reader.gather(places))] if protocol.candidates else None
        for group in query.groups(reader.layout.dim, memory_bytes):
            pieces = _split(reader.pieces() if candidates is None else candidates)
            ranks.append(_rank_group(reader, edges.take(group.numbers), side, group.left_out, pieces))
            progress(sum(len(each.above) for each in ranks), len(sides) * len(edges))
    return {**summarize_ranks(ranks, protocol.ties), "protocol": protocol.to_dict(len(edges), edges.total)}


def group_bytes(budget_bytes: int) -> int:
    """Return the memory for a group of edges from a run's budget, in bytes."""
    return budget_bytes // _GROUPS_SHARE


def evaluation_bytes(num_edges: int, num_known: int, dim: int, candidates: int, memory_bytes: int) -> int:
    """Return the memory of evaluate() in bytes.

    num_edges: number of edges to rank.
    num_known: number of edges to filter.
    dim: values per embedding.
    candidates: number of random candidates, 0 for all nodes.
    memory_bytes: memory for a group of edges.
    """
    all_bytes = num_edges * _edge_bytes(dim) + num_known * _ANSWER_BYTES
    return min(all_bytes, memory_bytes) + 4 * 2 * candidates * dim + _SCORES_BYTES + PIECE_BYTES


def _edge_bytes(dim: int) -> int:
    return _EDGE_BYTES + 4 * 4 * dim  # both ends, queries and their inputs


class Query:
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

    def groups(self, dim: int, memory_bytes: int) -> Iterator[_Group]:
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

    def _group(self, numbers: NDArray[np.int64], found: list[NDArray[np.int64]]) -> _Group:
        """Return a group of edges. found: known answers, each as key number * num_nodes + place."""
        known = np.unique(np.concatenate([*found, np.empty(0, np.int64)]))
        return _Group(numbers, _LeftOut(self._numbers[numbers] * self._num_nodes, self._own[numbers], known))

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


class _Group(NamedTuple):
    """Edges that are ranked together.

    numbers: positions of the edges.
    left_out: candidates that are excluded for them.
    """

    numbers: NDArray[np.int64]
    left_out: _LeftOut


class _LeftOut:
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
        # Random candidates may repeat.
        which, columns = _expand(np.searchsorted(places, nodes), np.searchsorted(places, nodes, side="right"))
        scores[torch.from_numpy(rows[which]), torch.from_numpy(columns)] = -torch.inf
        return torch.from_numpy(np.bincount(rows[which], minlength=len(scores)))


def _expand(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the index i and the number of each element of the ranges from begins[i] to ends[i] (exclusive)."""
    counts = ends - begins
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) + np.repeat(begins - np.cumsum(counts) + counts, counts)


def _rank_group(
    reader: EmbeddingReader,
    edges: MeasuredEdges,
    side: int,
    left_out: _LeftOut,
    pieces: Iterable[NodePiece],
) -> Ranks:
    """Rank edges among the candidates of all pieces."""
    kind = reader.kind
    ends = reader.gather(np.concatenate([edges.given(side), edges.given(1 - side)]))
    queries = reader.queries(side, ends[: len(edges)], edges.relations).contiguous()
    own = _own_scores(reader, queries, ends[len(edges) :])
    parts = [slice(start, start + _EDGES_AT_ONCE) for start in range(0, len(edges), _EDGES_AT_ONCE)]
    ranks = Ranks.zeros(len(edges))
    # Allocated once: repeated allocations of megabytes would fragment the memory.
    memory, scratch = torch.empty(2, _EDGES_AT_ONCE * _NODES_AT_ONCE)
    for places, values in pieces:
        for part in parts:
            scores = _scores(kind, queries[part], values, memory)
            ranks.add(part, scores, own[part], left_out.mask(scores, part, places), scratch)
    return ranks


def _own_scores(reader: EmbeddingReader, queries: Tensor, nodes: Tensor) -> Tensor:
    """Return the score of each query with its own node, (edges)."""
    own, memory = torch.empty(len(queries)), torch.empty(_OWN_AT_ONCE * _OWN_AT_ONCE)
    for start in range(0, len(queries), _OWN_AT_ONCE):
        part = slice(start, start + _OWN_AT_ONCE)
        own[part] = _scores(reader.kind, queries[part], nodes[part], memory).diagonal()
    return own


def _scores(kind: Kind, queries: Tensor, nodes: Tensor, memory: Tensor) -> Tensor:
    """Return the scores (queries, nodes), written to `memory`. A pair's score has the same bits at every position.

    Matrix libraries use other loops, which round differently, for rows and columns after the last whole block. Padding
    to whole blocks avoids them.
    """
    queries_in_blocks, nodes_in_blocks = _in_blocks(queries), _in_blocks(nodes)
    shape = len(queries_in_blocks), len(nodes_in_blocks)
    scores = memory[: shape[0] * shape[1]].view(shape)
    kind.matrix(queries_in_blocks, nodes_in_blocks, scores)
    return scores[: len(queries), : len(nodes)]


def _in_blocks(rows: Tensor) -> Tensor:
    """Return the rows, padded with rows of zeros to whole blocks."""
    num_missing = -len(rows) % _BLOCK_ROWS
    return torch.cat([rows, rows.new_zeros(num_missing, rows.shape[1])]) if num_missing else rows


def _split(pieces: Iterable[NodePiece]) -> Iterator[NodePiece]:
    """Yield pieces of up to _NODES_AT_ONCE nodes."""
    for places, values in pieces:
        for start in range(0, len(places), _NODES_AT_ONCE):
            yield NodePiece(places[start : start + _NODES_AT_ONCE], values[start : start + _NODES_AT_ONCE])

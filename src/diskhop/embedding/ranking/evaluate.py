"""Link prediction: edges ranked among candidates, by a protocol that every figure carries.

Edges are taken in *groups*, as many as memory holds with the known answers to what they ask; past each group all
candidates stream once, piece by piece, so that how many nodes there are, and in how many partitions, takes no memory.
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
# Edges and candidates that are scored at once: a matrix that stays in the cache while it is looked at.
_EDGES_AT_ONCE, _NODES_AT_ONCE = 512, 1024
# Own scores are taken from products of so many edges with as many nodes, so that they round as candidates' do.
_OWN_AT_ONCE = 64
# Of a matrix product, for rows and columns alike; the numbers above are multiples.
_BLOCK_ROWS = 16
# Of a group: each known answer, while they are sorted; an edge's keys, numbers and standings.
_ANSWER_BYTES, _EDGE_BYTES = 32, 128
_SCORES_BYTES = _EDGES_AT_ONCE * _NODES_AT_ONCE * (4 + 4)
_GROUPS_SHARE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How edges are ranked. filtered: nodes that make an edge of any part do not count. candidates: 0 for all nodes.

    sides: 'both', 'tail' or 'head', which end is looked for. ties: see ranking.TIES.
    """

    filtered: bool
    candidates: int
    sides: str
    ties: str

    def to_dict(self, num_edges: int, total: int) -> dict[str, Any]:
        """By the names of result.json."""
        return {
            "filtered": self.filtered,
            "candidates": self.candidates or "all",
            "sides": self.sides,
            "ties": self.ties,
            "edges": f"{num_edges} of {total}",
        }


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredEdges:
    """Edges by the places of their ends, int64 (edges), with relations where there are some. total: of the part."""

    sources: NDArray[np.int64]
    relations: NDArray[np.int64] | None
    destinations: NDArray[np.int64]
    total: int

    def __len__(self) -> int:
        return len(self.sources)

    def asked(self, side: int) -> NDArray[np.int64]:
        """The ends that are given; the others are looked for."""
        return self.destinations if side else self.sources

    def take(self, numbers: NDArray[np.int64]) -> MeasuredEdges:
        """Those of these numbers."""
        relations = None if self.relations is None else self.relations[numbers]
        return MeasuredEdges(self.sources[numbers], relations, self.destinations[numbers], self.total)

    def moved(self, moved: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> MeasuredEdges:
        """The same edges, their ends at other places. moved: the new places of old ones."""
        return MeasuredEdges(moved(self.sources), self.relations, moved(self.destinations), self.total)


@dataclass(frozen=True, slots=True)
class KnownEdgeBlocks:
    """Edges of all parts, by places; num_relations: 0 without relations."""

    blocks: EdgeBlocks
    num_relations: int

    def none(self) -> KnownEdgeBlocks:
        """Without any edge."""
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
    """Ranks of edges, with the protocol, by the names of result.json.

    known: edges that are filtered. drawn: places of candidates (2, candidates), for destinations and sources, where not
    all nodes are. memory_bytes: for groups of edges; a single edge's known answers may take more. progress: is told of
    edges and sides done. Raises ReadError.
    """
    sides = SIDES[protocol.sides]
    standings = []
    for side in sides:
        asked = Query(edges, side, reader.layout.num_nodes, known if protocol.filtered else known.none())
        places = np.sort(drawn[side])
        candidates = [NodePiece(places, reader.gather(places))] if protocol.candidates else None
        for group in asked.groups(reader.layout.dim, memory_bytes):
            pieces = _cut(reader.pieces() if candidates is None else candidates)
            standings.append(_rank_group(reader, edges.take(group.numbers), side, group.left_out, pieces))
            progress(sum(len(each.above) for each in standings), len(sides) * len(edges))
    return {**summarize_ranks(standings, protocol.ties), "protocol": protocol.to_dict(len(edges), edges.total)}


def group_bytes(budget_bytes: int) -> int:
    """Of a run's budget what bounds groups of edges."""
    return budget_bytes // _GROUPS_SHARE


def evaluation_bytes(num_edges: int, num_known: int, dim: int, candidates: int, memory_bytes: int) -> int:
    """Memory that evaluate() takes, of which `memory_bytes` bounds groups of edges. num_known: that are filtered."""
    all_bytes = num_edges * _edge_bytes(dim) + num_known * _ANSWER_BYTES
    return min(all_bytes, memory_bytes) + 4 * 2 * candidates * dim + _SCORES_BYTES + PIECE_BYTES


def _edge_bytes(dim: int) -> int:
    return _EDGE_BYTES + 4 * 4 * dim  # both ends, queries, and what these are made of


class Query:
    """What edges ask for at a side, a given end and a relation, and which nodes make a known edge with that."""

    def __init__(self, edges: MeasuredEdges, side: int, num_nodes: int, known: KnownEdgeBlocks) -> None:
        self._known = known.blocks
        self._side = side
        self._num_nodes = num_nodes
        self._num_relations = max(1, known.num_relations)
        self._own = edges.asked(1 - side)
        self._keys, self._numbers = np.unique(self._keys_of(edges.asked(side), edges.relations), return_inverse=True)

    def groups(self, dim: int, memory_bytes: int) -> Iterator[_Group]:
        """Edges by what they ask for, as many as memory holds with the known answers; at least one."""
        num_answers = np.zeros(len(self._keys), np.int64)
        # Known edges are read once where the answers to all that is asked fit; else to count them, and for each group.
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
        asked = self._numbers[order]
        is_new = np.diff(asked, prepend=-1) > 0
        ends = np.cumsum(_edge_bytes(dim) + _ANSWER_BYTES * np.where(is_new, num_answers[asked], 0))
        start = 0
        while start < len(order):
            again = 0 if is_new[start] else _ANSWER_BYTES * num_answers[asked[start]]
            taken = (ends[start - 1] if start else 0) - again
            stop = max(start + 1, int(np.searchsorted(ends, taken + memory_bytes, side="right")))
            keys = np.unique(self._numbers[order[start:stop]])
            answers_of_keys = self._answers(self._keys[keys])
            yield self._group(
                order[start:stop], [keys[each] * self._num_nodes + answers for each, answers in answers_of_keys]
            )
            start = stop

    def _group(self, numbers: NDArray[np.int64], found: list[NDArray[np.int64]]) -> _Group:
        """found: answers, each with what it is asked by."""
        known = np.unique(np.concatenate([*found, np.empty(0, np.int64)]))
        return _Group(numbers, _LeftOut(self._numbers[numbers] * self._num_nodes, self._own[numbers], known))

    def _answers(self, keys: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Of each block of known edges those that answer one of these keys: its number, and the answer's place."""
        for sources, relations, destinations in self._known():
            given, answers = (destinations, sources) if self._side else (sources, destinations)
            wanted = self._keys_of(given, relations)
            numbers = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            is_asked = keys[numbers] == wanted
            yield numbers[is_asked], answers[is_asked]

    def _keys_of(self, nodes: NDArray[np.int64], relations: NDArray[np.int64] | None) -> NDArray[np.int64]:
        keys = nodes * self._num_relations
        return keys if relations is None else keys + relations


class _Group(NamedTuple):
    """Edges that are ranked together, by their numbers, and what does not count for them."""

    numbers: NDArray[np.int64]
    left_out: _LeftOut


class _LeftOut:
    """Which candidates do not count for edges: their own nodes, and those that make a known edge.

    firsts: (edges), what place 0 is as an answer of an edge; own: (edges), places; known: answers, ascending.
    """

    def __init__(self, firsts: NDArray[np.int64], own: NDArray[np.int64], known: NDArray[np.int64]) -> None:
        self._firsts = firsts
        self._known = known
        # Of edges that are not known themselves; no place where they are.
        self._own = np.where(np.isin(firsts + own, known), -1, own)

    def mask(self, scores: Tensor, part: slice, places: NDArray[np.int64]) -> Tensor:
        """Scores (edges of a part, nodes at these places, ascending) become -inf; how many of each edge."""
        first, stop = places[0], places[-1] + 1
        firsts, own = self._firsts[part], self._own[part]
        begins, ends = np.searchsorted(self._known, firsts + first), np.searchsorted(self._known, firsts + stop)
        rows, answers = _expand(begins, ends)
        alone = np.flatnonzero((own >= first) & (own < stop))
        nodes = np.append(self._known[answers] - firsts[rows], own[alone])
        rows = np.append(rows, alone)
        # What is drawn may be there more than once.
        which, columns = _expand(np.searchsorted(places, nodes), np.searchsorted(places, nodes, side="right"))
        scores[torch.from_numpy(rows[which]), torch.from_numpy(columns)] = -torch.inf
        return torch.from_numpy(np.bincount(rows[which], minlength=len(scores)))


def _expand(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All numbers from begins[i] on, before ends[i], and the i of each."""
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
    """Standings of edges among the candidates of all pieces."""
    kind = reader.kind
    ends = reader.gather(np.concatenate([edges.asked(side), edges.asked(1 - side)]))
    queries = reader.queries(side, ends[: len(edges)], edges.relations).contiguous()
    own = _own_scores(reader, queries, ends[len(edges) :])
    parts = [slice(start, start + _EDGES_AT_ONCE) for start in range(0, len(edges), _EDGES_AT_ONCE)]
    standings = Ranks.of_none(len(edges))
    # Allocated once: what comes and goes by the megabyte leaves holes that nothing fits in.
    memory, scratch = torch.empty(2, _EDGES_AT_ONCE * _NODES_AT_ONCE)
    for places, values in pieces:
        for part in parts:
            asking = queries[part]
            scores = _scores(kind, asking, values, memory)
            standings.add(part, scores, own[part], left_out.mask(scores, part, places), scratch)
    return standings


def _own_scores(reader: EmbeddingReader, queries: Tensor, nodes: Tensor) -> Tensor:
    """(edges): each query's with its own node."""
    own, memory = torch.empty(len(queries)), torch.empty(_OWN_AT_ONCE * _OWN_AT_ONCE)
    for start in range(0, len(queries), _OWN_AT_ONCE):
        part = slice(start, start + _OWN_AT_ONCE)
        own[part] = _scores(reader.kind, queries[part], nodes[part], memory).diagonal()
    return own


def _scores(kind: Kind, queries: Tensor, nodes: Tensor, memory: Tensor) -> Tensor:
    """(queries, nodes), in the memory: a pair's score has the same bits wherever it stands.

    Libraries multiply what is left of a matrix after whole blocks by other loops, which round otherwise; so there is
    nothing left.
    """
    queries_in_blocks, nodes_in_blocks = _in_blocks(queries), _in_blocks(nodes)
    shape = len(queries_in_blocks), len(nodes_in_blocks)
    scores = memory[: shape[0] * shape[1]].view(shape)
    kind.matrix(queries_in_blocks, nodes_in_blocks, scores)
    return scores[: len(queries), : len(nodes)]


def _in_blocks(rows: Tensor) -> Tensor:
    """Rows, and as many of zeros as make whole blocks of them."""
    num_missing = -len(rows) % _BLOCK_ROWS
    return torch.cat([rows, rows.new_zeros(num_missing, rows.shape[1])]) if num_missing else rows


def _cut(pieces: Iterable[NodePiece]) -> Iterator[NodePiece]:
    """Pieces of a few thousand nodes."""
    for places, values in pieces:
        for start in range(0, len(places), _NODES_AT_ONCE):
            yield NodePiece(places[start : start + _NODES_AT_ONCE], values[start : start + _NODES_AT_ONCE])

"""Queries on trained embeddings: the nearest nodes, the likeliest ends of an edge, the rank of an edge.

All are exact: every node is compared, a few MB at a time, so that a query needs little memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.display import Display, Facts, Part, Row
from diskhop.embedding.graph_edges import read_edge_parts
from diskhop.embedding.ranking.evaluate import evaluate
from diskhop.embedding.ranking.groups import group_bytes
from diskhop.embedding.ranking.protocol import KnownEdgeBlocks, MeasuredEdges, Protocol
from diskhop.embedding.ranking.reader import EmbeddingReader, NodePiece
from diskhop.errors import ConfigError
from diskhop.runs.embedding.opened import OpenRun, open_run
from diskhop.runs.embedding.places import Places, relation_names

ANY = "?"
# Returns a score per node of a piece (nodes, dim), compared with one node (1, dim).
Nearness = Callable[[Tensor, Tensor], Tensor]
NEARNESS: dict[str, Nearness] = {
    "cosine": lambda nodes, query: torch.nn.functional.cosine_similarity(nodes, query),
    "dot": lambda nodes, query: (nodes @ query.t())[:, 0],
    "l2": lambda nodes, query: -torch.cdist(nodes, query)[:, 0],
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A node that answers a query.

    name: its name, or its id where it has none.
    score: the higher the better.
    is_known: whether the dataset has the edge that it completes.
    """

    name: str
    score: float
    is_known: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class EdgeScore(Display):
    """The score of an edge.

    score: the higher the likelier.
    tail_rank, head_rank: the rank of each end among the nodes that form no known edge there, from 1; ties get the mean.
    num_nodes: the nodes ranked.
    is_known: whether the dataset has the edge.
    """

    score: float
    tail_rank: float
    head_rank: float
    num_nodes: int
    is_known: bool

    def rows(self) -> list[Row]:
        """Return names and texts of lines for people."""
        among = f"of {self.num_nodes:,}, known edges excluded"
        return [
            ("score", f"{self.score:.4f}"),
            ("rank", f"{self.tail_rank:g} as a tail, {self.head_rank:g} as a head, {among}"),
            ("known", "yes, an edge of the dataset" if self.is_known else "no"),
        ]

    def _title(self) -> str:
        return "Score of an edge"

    def _parts(self) -> Sequence[Part]:
        return [Facts(self.rows())]


def neighbors(run: Path | str | OpenRun, node: str | int, *, top: int = 10, by: str = "cosine") -> list[Answer]:
    """Return the nodes nearest to one by their embeddings, nearest first. by: 'cosine', 'dot' or 'l2'.

    node: its name, or its id in the source where nodes have no names. Raises ConfigError for an unknown node.
    """
    if by not in NEARNESS:
        raise ConfigError(f"unknown nearness '{by}'; use --by {' or --by '.join(NEARNESS)}")
    query = Query(run, top)
    place = query.place(node)
    values = query.reader.gather(np.array([place]))
    return query.answers(lambda piece: NEARNESS[by](piece.values, values), {place})


def complete(
    run: Path | str | OpenRun, head: str | int, relation: str | int | None, tail: str | int, *, top: int = 10
) -> list[Answer]:
    """Return the likeliest ends of an edge, likeliest first. head, tail: one of them is '?', the end to find.

    relation: None where edges have none. Raises ConfigError for unknown names, and unless one end is '?'.
    """
    asked = [isinstance(end, str) and end == ANY for end in (head, tail)]
    if asked[0] == asked[1]:
        raise ConfigError(f"one end must be given: write '{ANY}' for the other one only")
    query = Query(run, top)
    side = 0 if asked[1] else 1
    given, numbers = query.place(tail if side else head), query.relations(relation)
    queries = query.reader.queries(side, query.reader.gather(np.array([given])), numbers)
    answers = query.known_answers(side, given, numbers)
    return query.answers(lambda piece: query.scores(queries, piece.values), set(), answers)


def score(run: Path | str | OpenRun, head: str | int, relation: str | int | None, tail: str | int) -> EdgeScore:
    """Return an edge's score, and its rank among all edges that share one of its ends. See complete()."""
    query = Query(run, 1)
    places, numbers = np.array([query.place(head), query.place(tail)]), query.relations(relation)
    ends = query.reader.gather(places)
    own = float(query.scores(query.reader.queries(0, ends[:1], numbers), ends[1:])[0])
    edge = MeasuredEdges(places[:1], numbers, places[1:], 1)
    none_drawn = np.empty((2, 0), np.int64)

    def rank(sides: str) -> float:
        protocol = Protocol(filtered=True, candidates=0, sides=sides, ties="realistic")
        found = evaluate(query.reader, edge, protocol, query.known, none_drawn, query.group_bytes)
        return float(found["mean_rank"])

    is_known = int(places[1]) in query.known_answers(0, int(places[0]), numbers)
    return EdgeScore(own, rank("tail"), rank("head"), query.reader.layout.num_nodes, is_known)


def require_top(top: int) -> None:
    """Refuse a number of answers that is no number, or below 1."""
    if not isinstance(top, int | np.integer) or top < 1:
        raise ConfigError(f"top must be a whole number of at least 1, got {top!r}; for example 10")


class Query:
    """A query on a run; translates between names, ids and places of nodes. top: the number of answers."""

    def __init__(self, run: Path | str | OpenRun, top: int) -> None:
        require_top(top)
        self._run = run if isinstance(run, OpenRun) else open_run(run)
        self._top = top
        self.reader: EmbeddingReader = self._run.reader
        self._places = Places(self._run.dataset, self._run.permutation)
        self._names = self._places.names()
        self.group_bytes = group_bytes(self._run.config.memory_bytes)

    def place(self, node: str | int) -> int:
        """Return the place of a node. node: its name, or its id where nodes have no names."""
        return int(self._places.of(np.array([self._names.find(node)]))[0])

    def relations(self, relation: str | int | None) -> NDArray[np.int64] | None:
        """Return the number of a relation, as queries need it. relation: its name."""
        names = relation_names(self._run.dataset)
        if not len(names):
            if relation is not None:
                raise ConfigError(f"{self._run.dataset.path}: edges have no relations; name the two ends alone")
            return None
        if relation is None:
            raise ConfigError(f"{self._run.dataset.path}: edges have relations; name one between the ends")
        return np.array([names.find(relation)])

    def scores(self, queries: Tensor, nodes: Tensor) -> Tensor:
        """Return the scores of nodes (nodes, dim) for one query."""
        found = torch.empty(1, len(nodes))
        self.reader.kind.matrix(queries, nodes, found)
        return found[0]

    @cached_property
    def known(self) -> KnownEdgeBlocks:
        """The edges of the dataset."""
        return read_edge_parts(self._run.dataset, self._run.config, self._run.permutation).known

    def known_answers(self, side: int, given: int, relation: NDArray[np.int64] | None) -> set[int]:
        """Return the places that form a known edge with the given end."""
        found: set[int] = set()
        for sources, relations, destinations in self.known.blocks():
            ends = (destinations, sources) if side else (sources, destinations)
            is_asked = ends[0] == given
            if relation is not None and relations is not None:
                is_asked &= relations == relation[0]
            found.update(ends[1][is_asked].tolist())
        return found

    def answers(
        self, scores_of: Callable[[NodePiece], Tensor], left_out: set[int], known: set[int] | None = None
    ) -> list[Answer]:
        """Return the nodes with the best scores. left_out: places to skip. known: places that form a known edge."""
        best, places = torch.empty(0), np.empty(0, np.int64)
        for piece in self.reader.pieces():
            scores = scores_of(piece)
            scores[torch.from_numpy(np.isin(piece.places, list(left_out)))] = -torch.inf
            best, chosen = torch.cat([best, scores]).topk(min(self._top, len(best) + len(scores)))
            places = np.concatenate([places, piece.places])[chosen.numpy()]
        kept = [(int(place), float(each)) for place, each in zip(places, best, strict=True) if place not in left_out]
        names = self._names.of(self._places.ranks(np.array([place for place, _ in kept], np.int64)).tolist())
        known = known or set()
        return [Answer(name, each, place in known) for name, (place, each) in zip(names, kept, strict=True)]

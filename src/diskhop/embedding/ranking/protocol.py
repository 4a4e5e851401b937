"""The protocol of ranking, the edges to rank and the known edges to filter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.embedding.partitions.edges import EdgeBlocks

SIDES = {"both": (0, 1), "tail": (0,), "head": (1,)}


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


def num_candidates(wanted: int, num_nodes: int) -> int:
    """Return the number of random candidates to draw; 0 stands for all nodes, also where as many are wanted."""
    return wanted if wanted < num_nodes else 0


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

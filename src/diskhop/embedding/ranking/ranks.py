"""Ranks of edges among their candidates, and the metrics computed from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

HITS_AT = (1, 3, 10)
_MOST_FLOATS = 1 << 16
# Rank from the number of candidates above and the number of ties. Among ties, the edge is in the middle (realistic),
# first (optimistic) or last (pessimistic).
TIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "realistic": lambda above, ties: 1 + above.double() + ties.double() / 2,
    "optimistic": lambda above, ties: 1 + above.double(),
    "pessimistic": lambda above, ties: 1 + (above + ties).double(),
}


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """Counts of candidates per edge, without the edge's own answer and without filtered known answers.

    above: number of candidates with a higher score, int64 (edges).
    ties: number of candidates with the same score, int64 (edges).
    candidates: number of candidates, int64 (edges).
    """

    above: Tensor
    ties: Tensor
    candidates: Tensor

    @staticmethod
    def zeros(num_edges: int) -> Ranks:
        """Return ranks before any candidate is added."""
        return Ranks(*(torch.zeros(num_edges, dtype=torch.int64) for _ in range(3)))

    def add(self, rows: slice, scores: Tensor, own: Tensor, num_excluded: Tensor, scratch: Tensor) -> None:
        """Add candidates of some edges.

        rows: the edges.
        scores: scores of the candidates, (edges, candidates); -inf excludes a candidate.
        own: scores of the edges themselves, (edges).
        num_excluded: number of excluded candidates, (edges).
        scratch: float32, at least the size of scores. Float sums of ones are exact; sums of booleans allocate copies.
        """
        ones = scratch[: scores.numel()].view(scores.shape)
        self.above[rows] += torch.gt(scores, own[:, None], out=ones).sum(1).long()
        self.ties[rows] += torch.eq(scores, own[:, None], out=ones).sum(1).long()
        self.candidates[rows] += scores.shape[1] - num_excluded


def summarize_ranks(ranks: list[Ranks], ties: str) -> Mapping[str, float]:
    """Return the metrics of result.json: mrr, mean_rank, hits_at_k and auc, over all edges.

    auc is the share of pairs of an edge and a candidate in which the edge scores higher; ties count half.
    ties: key in TIES. No value depends on the order of the edges: counts and halves add up exactly.
    """
    above, tied, candidates = (torch.cat([getattr(each, name) for each in ranks]) for name in Ranks.__slots__)
    positions = TIES[ties](above, tied)
    below = candidates - above - tied.double() / 2
    # A few at a time: as Python's floats all would take four times their memory.
    reciprocals = chain.from_iterable(part.tolist() for part in torch.split(positions.reciprocal(), _MOST_FLOATS))
    return {
        "mrr": math.fsum(reciprocals) / max(1, len(positions)),
        "mean_rank": float(positions.mean()),
        **{f"hits_at_{k}": float((positions <= k).double().mean()) for k in HITS_AT},
        "auc": float((below.sum() / candidates.sum()) if candidates.sum() else 1.0),
    }

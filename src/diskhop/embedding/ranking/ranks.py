"""Where edges' own scores stand among those of their candidates, and what of it is reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

HITS_AT = (1, 3, 10)
# A rank from the candidates above and those that tie: the last of all that tie, halfway, the first.
TIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "realistic": lambda above, ties: 1 + above.double() + ties.double() / 2,
    "optimistic": lambda above, ties: 1 + above.double(),
    "pessimistic": lambda above, ties: 1 + (above + ties).double(),
}


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """Of edges: how many candidates score above them, how many tie, how many there are; int64 (edges).

    An edge's own node is no candidate, nor is one that makes a known edge, where these are filtered.
    """

    above: Tensor
    ties: Tensor
    candidates: Tensor

    @staticmethod
    def of_none(num_edges: int) -> Ranks:
        """Before any candidate."""
        return Ranks(*(torch.zeros(num_edges, dtype=torch.int64) for _ in range(3)))

    def add(self, rows: slice, scores: Tensor, own: Tensor, num_left_out: Tensor, scratch: Tensor) -> None:
        """Count more candidates of some edges: scores (edges, candidates), own (edges); num_left_out: that are -inf.

        scratch: float32, as large as scores at least; sums of ones in it are exact, and sums of booleans copy them.
        """
        ones = scratch[: scores.numel()].view(scores.shape)
        self.above[rows] += torch.gt(scores, own[:, None], out=ones).sum(1).long()
        self.ties[rows] += torch.eq(scores, own[:, None], out=ones).sum(1).long()
        self.candidates[rows] += scores.shape[1] - num_left_out


def summarize_ranks(standings: list[Ranks], ties: str) -> Mapping[str, float]:
    """By the names of result.json: means over all edges. ties: see TIES.

    auc: of pairs of an edge and a candidate the share in which the edge scores higher, ties half.
    """
    above, tied, candidates = (torch.cat([getattr(each, name) for each in standings]) for name in Ranks.__slots__)
    ranks = TIES[ties](above, tied)
    below = candidates - above - tied.double() / 2
    return {
        "mrr": float(ranks.reciprocal().mean()),
        "mean_rank": float(ranks.mean()),
        **{f"hits_at_{k}": float((ranks <= k).double().mean()) for k in HITS_AT},
        "auc": float((below.sum() / candidates.sum()) if candidates.sum() else 1.0),
    }

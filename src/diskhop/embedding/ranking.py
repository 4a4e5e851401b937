"""Where an edge's own score stands among those of its candidates."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

HITS_AT = (1, 3, 10)


def realistic_ranks(scores: Tensor, own: Tensor, is_none: Tensor) -> Tensor:
    """float64 (edges): 1, the candidates above, and half of those that tie. scores: (edges, candidates).

    is_none: (edges, candidates), which do not count: the edge's own node among them.
    """
    scores = scores.masked_fill(is_none, -torch.inf)
    above = (scores > own[:, None]).sum(1)
    ties = ((scores == own[:, None]) & ~is_none).sum(1)
    return 1 + above.double() + ties.double() / 2


def summarize_ranks(ranks: Tensor) -> Mapping[str, float]:
    """By the names of result.json."""
    return {
        "mrr": float(ranks.reciprocal().mean()),
        "mean_rank": float(ranks.mean()),
        **{f"hits_at_{k}": float((ranks <= k).double().mean()) for k in HITS_AT},
    }

"""Memory of the kernels of triton_contrast. It is known without Triton."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Tiles of wider rows do not fit the registers.
MOST_DIM = 128
# Scores that the kernels have, by their numbers there; see triton_edges.py.
SCORES = {"dot": 0, "distmult": 1, "complex": 2, "transe": 3}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workspace:
    """Memory of the kernels for E edges of K negatives each, on their device.

    scores: float32 (2, E, K). queries, query_grads: float32 (2, E, dim).
    sums: float32 (4, 2, E): scores of the edges; what is subtracted from scores; the sum of their powers; the gradient
    of the edges' scores.
    """

    scores: Tensor
    queries: Tensor
    query_grads: Tensor
    sums: Tensor

    @classmethod
    def of(cls, num_edges: int, num_negatives: int, dim: int, device: torch.device) -> Workspace:
        """Take memory for batches of at most num_edges edges."""
        return cls(
            scores=torch.empty(2 * num_edges * num_negatives, device=device),
            queries=torch.empty(2 * num_edges * dim, device=device),
            query_grads=torch.empty(2 * num_edges * dim, device=device),
            sums=torch.empty(8 * num_edges, device=device),
        )


def workspace_bytes(num_edges: int, num_negatives: int, dim: int) -> int:
    """Return the size of a Workspace in bytes."""
    return 4 * 2 * num_edges * (num_negatives + 2 * dim + 4)

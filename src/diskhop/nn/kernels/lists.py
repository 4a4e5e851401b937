"""Neighbour lists on a device, and their transposition, which gradients sum over."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class NeighborLists:
    """Weighted lists of rows. List t sums rows sources[indptr[t] : indptr[t + 1]], each times its weight.

    indptr: int32 (lists + 1).
    sources: int32 (edges).
    weights: float32 (edges), or (edges, heads) for columns in as many equal parts; None: all 1.
    own_weights: float32 (at most lists), factor of each list's own row, which is added last; None: it is not added.
    """

    indptr: Tensor
    sources: Tensor
    weights: Tensor | None = None
    own_weights: Tensor | None = None

    @property
    def num_lists(self) -> int:
        """Number of sums."""
        return len(self.indptr) - 1

    @property
    def num_heads(self) -> int:
        """Number of parts of the columns that have weights of their own."""
        return 1 if self.weights is None or self.weights.dim() == 1 else self.weights.shape[1]

    def list_of_edge(self) -> Tensor:
        """Return the list of each edge, int64 (edges)."""
        lists = torch.arange(self.num_lists, device=self.indptr.device)
        return lists.repeat_interleave(self.indptr.diff(), output_size=len(self.sources))

    def with_means(self) -> NeighborLists:
        """Return the lists with weights that make each sum the mean of its rows, own rows apart."""
        counts = self.indptr.diff()
        return NeighborLists(self.indptr, self.sources, (1 / counts)[self.list_of_edge()], self.own_weights)

    def transposed(self, num_rows: int) -> NeighborLists:
        """Return the lists that read sums and are named by rows: the gradient of a sum over these lists.

        Edges of a row stay in the order of their lists, so that its gradient is added in one order. num_rows: of all
        rows that lists may name.
        """
        # Searches wait for nothing: counts of rows would come to the CPU first.
        ordered, order = torch.sort(self.sources, stable=True)
        rows = torch.arange(num_rows + 1, dtype=ordered.dtype, device=ordered.device)
        indptr = torch.searchsorted(ordered, rows, out_int32=True)
        lists = torch.searchsorted(self.indptr, order.int(), right=True, out_int32=True) - 1
        weights = None if self.weights is None else self.weights[order]
        return NeighborLists(indptr, lists, weights, self.own_weights)


def starts_of(counts: Tensor) -> Tensor:
    """Return the starts of lists with these lengths, and the end of the last, int32 (lists + 1)."""
    starts = torch.zeros(len(counts) + 1, dtype=torch.int32, device=counts.device)
    starts[1:] = counts.cumsum(0)
    return starts

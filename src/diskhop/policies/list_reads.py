"""Reads of neighbour lists on disk that sampling needs, for any size of their cache, from one batch's draws.

The cache has the most useful lists (see neighbor_cache.py), so every list is cached from a certain size on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.policies.coalesce import plan_reads
from diskhop.policies.neighbor_cache import edges_by_usefulness, usefulness


class ListReads(NamedTuple):
    """Reads of a batch, their bytes, and the number of draws that they are for."""

    reads: int
    num_bytes: int
    draws: int


@dataclass(frozen=True, slots=True, eq=False)
class ListCurve:
    """Draws of one batch.

    positions: of the drawn edges in the lists, ascending and distinct, by hop.
    cached_from: edges of the smallest cache that has the list of each, by hop. Equally useful lists are cached in the
        order of the file.
    num_edges: edges of all lists.
    edge_bytes: bytes of an edge.
    """

    positions: Sequence[NDArray[np.int64]]
    cached_from: Sequence[NDArray[np.int64]]
    num_edges: int
    edge_bytes: int

    def reads(self, cache_bytes: int, *, max_gap_bytes: int, alignment: int, max_read_bytes: int) -> ListReads:
        """Return what a batch reads with a cache of this size: draws of a hop are read together."""
        num_reads = num_bytes = num_draws = 0
        for positions, cached_from in zip(self.positions, self.cached_from, strict=True):
            missing = positions[cached_from > cache_bytes // self.edge_bytes]
            if len(missing) == 0:
                continue
            plan = plan_reads(
                missing,
                num_rows=self.num_edges,
                row_bytes=self.edge_bytes,
                row_stride=self.edge_bytes,
                max_gap_bytes=max_gap_bytes,
                alignment=alignment,
                max_read_bytes=max_read_bytes,
            )
            num_reads += plan.num_reads
            num_bytes += plan.total_bytes
            num_draws += len(missing)
        return ListReads(num_reads, num_bytes, num_draws)


def list_curve(
    indptr: NDArray[np.int64],
    out_degrees: NDArray[Any] | None,
    positions: NDArray[np.int64],
    num_drawn: Sequence[int],
    edge_bytes: int,
) -> ListCurve:
    """Find from which size of the cache on each draw of a batch is served from memory.

    indptr: of all lists. out_degrees: how often the node of each list is a neighbour, or of a sample; None: all lists
    are equally useful. positions: of the batch's edges. num_drawn: edges of each hop.
    """
    edges_of_class = np.empty(0, np.int64) if out_degrees is None else edges_by_usefulness(indptr, out_degrees)
    edges_from_class = np.cumsum(edges_of_class[::-1])[::-1]
    num_edges = int(indptr[-1])
    by_hop, cached_from = [], []
    first = 0
    for count in num_drawn:
        own = np.unique(positions[first : first + count])
        first += count
        lists = np.searchsorted(indptr, own, "right") - 1
        ends = indptr[lists + 1]
        by_hop.append(own)
        if out_degrees is None:
            cached_from.append(ends)
            continue
        classes = usefulness(out_degrees[lists], ends - indptr[lists])
        # As if the lists of a class were spread evenly over the file.
        later = edges_of_class[classes] * (1 - ends / num_edges)
        cached_from.append(edges_from_class[classes] - later.astype(np.int64))
    return ListCurve(by_hop, cached_from, num_edges, edge_bytes)

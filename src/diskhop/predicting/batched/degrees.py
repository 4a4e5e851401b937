"""Degrees of the whole graph for layers that normalise by them, which a batch alone does not show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.listed_edges import ListedEdges
from diskhop.protocols import NodeIds
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.jobs import Share, SharedArray
from diskhop.runtime.progress import Progress, silent

_EDGES_AT_ONCE = 1 << 18
_BYTES_PER_NODE = 4


@dataclass(frozen=True, slots=True, eq=False)
class Degrees:
    """Degrees of a block's sources in the whole graph.

    in_degrees: edges into every source, self-loops included, int64 (sources).
    loops: self-loops of every source, int64 (sources).
    """

    in_degrees: Tensor
    loops: Tensor

    @property
    def proper(self) -> Tensor:
        """Edges into every source from other nodes, int64 (sources)."""
        return self.in_degrees - self.loops


class SelfLoops:
    """Number of self-loops of each node; no memory for a graph without any."""

    def __init__(self, counts: NDArray[np.uint32] | None) -> None:
        self._counts = counts

    def of(self, rows: NodeIds) -> Tensor:
        """Return the self-loops of rows, int64 (rows)."""
        counts = np.zeros(len(rows), np.int64) if self._counts is None else self._counts[rows].astype(np.int64)
        return torch.from_numpy(counts)

    def for_workers(self, _share: Share) -> partial[SelfLoops]:
        """See jobs.py: counts go through a file."""
        return partial(_open_again, None if self._counts is None else SharedArray(self._counts))


def _open_again(counts: SharedArray | None) -> SelfLoops:
    return SelfLoops(None if counts is None else counts.array)


def loop_bytes(dataset: Dataset) -> int:
    """Return the memory of the self-loops of a graph, if it has any, and of counting them."""
    return _BYTES_PER_NODE * dataset.num_nodes


@contextmanager
def open_loops(dataset: Dataset, budget: Budget, progress: Progress = silent) -> Iterator[SelfLoops]:
    """Count self-loops in one pass over the lists, and reserve their bytes if there are any. Raises BudgetError."""
    topology = dataset.topology
    edges = ListedEdges(topology, dataset.hash)
    # Until the first loop is found, nothing is counted.
    needed = budget.reserve("self-loops", loop_bytes(dataset))
    with needed:
        counts = None
        for start, stop in row_ranges(topology.num_edges, _EDGES_AT_ONCE):
            sources, destinations = edges.read(start, stop - start)
            looping = destinations[sources == destinations]
            if len(looping):
                counts = np.zeros(topology.num_nodes, np.uint32) if counts is None else counts
                np.add.at(counts, looping, np.uint32(1))
            progress("counting self-loops", stop, topology.num_edges)
        if counts is None:
            needed.release()
        yield SelfLoops(counts)


def normalized_edges(
    edge_index: Tensor, num_rows: int, degrees: Degrees, *, adds_loops: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Normalise the edges of a block as PyG's gcn_norm does on the whole graph.

    edge_index: int64 (2, edges).
    num_rows: destinations, the first of the sources.
    adds_loops: replace self-loops by one of weight 1 for every destination (add_remaining_self_loops).

    Returns edges, and their weights of `dtype`. Where k of a row's d edges were drawn, each stands for d / k of them:
    sums are unbiased.
    """
    sources, targets = edge_index
    counted = degrees.in_degrees
    if adds_loops:
        is_proper = sources != targets
        sources, targets = sources[is_proper], targets[is_proper]
        counted = degrees.proper
    drawn = torch.bincount(targets, minlength=len(counted)).clamp(min=1)
    of_nodes = (counted + 1 if adds_loops else counted).to(dtype)
    scale = of_nodes.pow(-0.5).masked_fill_(of_nodes == 0, 0)
    stands_for = counted.to(dtype) / drawn.to(dtype)
    weights = scale[sources] * scale[targets] * stands_for[targets]
    edges = torch.stack([sources, targets])
    if adds_loops:
        rows = torch.arange(num_rows)
        edges = torch.cat([edges, torch.stack([rows, rows])], dim=1)
        weights = torch.cat([weights, scale[:num_rows].square()])
    return edges, weights

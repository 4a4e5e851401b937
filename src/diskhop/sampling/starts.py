"""Starts of the batches of an epoch, for samplers that choose their own nodes or their own order of seeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop.protocols import NodeRows, Purpose, SeedTimes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EpochKey:
    """An epoch whose batches a sampler arranges.

    num_nodes: nodes of the graph.
    seeds: rows of the nodes to train on, int64 (seeds).
    batch_size: as the user gave it; its meaning is the sampler's.
    seed: random seed of the run.
    purpose: use of the draws.
    epoch: number of the epoch.
    """

    num_nodes: int
    seeds: NodeRows
    batch_size: int
    seed: int
    purpose: Purpose
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Starts:
    """The starts of an epoch's batches: seed nodes, or whatever the sampler makes nodes of, such as clusters.

    seeds: int64 (starts), in the order of the batches.
    batch_size: starts per batch; the last batch has the rest.
    times: int64 (starts), a number per start that the sampler needs; None for none.
    row_starts: first start of every batch, then the end of the last one, int64 (batches + 1); None: by batch_size.
    """

    seeds: NodeRows
    batch_size: int
    times: SeedTimes = None
    row_starts: NDArray[np.int64] | None = None


def numbered_starts(num_batches: int) -> Starts:
    """Return the starts of batches that depend on nothing but their number, which is their only start."""
    return Starts(seeds=NodeRows(np.arange(max(1, num_batches))), batch_size=1)

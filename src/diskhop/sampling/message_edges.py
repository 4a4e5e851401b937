"""Leaving edges out of a sampled batch: those that the batch is scored on must not carry messages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from diskhop.protocols import SampledBatch


def leave_out(
    sampled: SampledBatch,
    sources: NDArray[np.int64],
    destinations: NDArray[np.int64],
    among: NDArray[np.bool_] | None = None,
) -> tuple[SampledBatch, NDArray[np.bool_]]:
    """Return the batch without the edges between some pairs of its seeds, in both directions, and which edges are kept.

    sources, destinations: places among the seeds, int64 (pairs). Nodes stay. among: the edges that may be left out,
    bool (edges); None for all. The second result is bool (edges) of the
    batch as it was.
    """
    num_seeds = sampled.num_seeds
    pairs = np.unique(np.concatenate([sources * num_seeds + destinations, destinations * num_seeds + sources]))
    lengths = np.diff(sampled.indptr)
    targets = np.repeat(np.arange(len(lengths)), lengths)
    # The edges of seeds are first, since lists are in the order of the nodes.
    num_to_seeds = int(sampled.indptr[min(num_seeds, len(lengths))])
    of_seeds = sampled.sources[:num_to_seeds].astype(np.int64)
    numbers = of_seeds * num_seeds + targets[:num_to_seeds]
    is_kept = np.ones(len(sampled.sources), bool)
    is_kept[:num_to_seeds] = (of_seeds >= num_seeds) | ~np.isin(numbers, pairs)
    if among is not None:
        is_kept |= ~among
    if is_kept.all():
        return sampled, is_kept
    num_before = np.concatenate([[0], np.cumsum(is_kept)])
    ends = np.cumsum(sampled.num_sampled_edges)
    weights = sampled.edge_weights
    kept = replace(
        sampled,
        indptr=num_before[sampled.indptr],
        sources=sampled.sources[is_kept],
        edge_positions=sampled.edge_positions[is_kept],
        num_sampled_edges=tuple(np.diff(num_before[np.concatenate([[0], ends])]).tolist()),
        edge_weights=None if weights is None else weights[is_kept],
    )
    return kept, is_kept

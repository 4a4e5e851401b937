"""Seeds that a batch has repeatedly: like PyG's loaders, it has a node for each of them, with its in-edges.

Draws are keyed by the node, so that a repeated seed has the same neighbours each time. Edges from it begin at its first
node.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from diskhop.protocols import NodeIds, SampledBatch


def repeat_seeds(sampled: SampledBatch, seeds: NodeIds) -> tuple[SampledBatch, NDArray[np.int64]]:
    """Return a batch with a node for each seed, and the node of `sampled` that each of its nodes is.

    sampled: has each of the seeds once, in the order in which they first occur.
    """
    _, first, of_seeds = np.unique(seeds, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    # The sampled node of each seed, and the first seed of each sampled node.
    nodes, first_seeds = rank[of_seeds], np.sort(first)
    num_once, num_more = sampled.num_seeds, len(seeds) - sampled.num_seeds
    of_nodes = np.concatenate([nodes, np.arange(num_once, sampled.num_nodes)])
    repeated = replace(
        sampled,
        num_seeds=len(seeds),
        node_ids=sampled.node_ids[of_nodes],
        num_sampled_nodes=(sampled.num_sampled_nodes[0] + num_more, *sampled.num_sampled_nodes[1:]),
    )
    if not sampled.num_sampled_edges:  # Without hops, no node has a list of edges.
        return repeated, of_nodes
    new_place = np.concatenate([first_seeds, np.arange(num_once, sampled.num_nodes) + num_more])

    expanded = np.concatenate([nodes, np.arange(num_once, len(sampled.indptr) - 1)])
    starts, counts = sampled.indptr[expanded], np.diff(sampled.indptr)[expanded]
    indptr = np.concatenate([[0], np.cumsum(counts)])
    edges = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], counts)
    num_added = int(indptr[-1]) - len(sampled.sources)
    weights = sampled.edge_weights
    return replace(
        repeated,
        indptr=indptr,
        sources=new_place[sampled.sources[edges]].astype(np.int32),
        edge_positions=sampled.edge_positions[edges],
        num_sampled_edges=(sampled.num_sampled_edges[0] + num_added, *sampled.num_sampled_edges[1:]),
        edge_weights=None if weights is None else weights[edges],
    ), of_nodes

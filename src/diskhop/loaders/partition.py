"""The partition of a graph by clusters, as PyTorch Geometric's ClusterData has it.

Nodes are sorted by cluster, edges by the place of one end among them, so that the edges of a cluster are consecutive.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.loader.cluster import Partition

# Both ends of an edge, their places, the order of the edges, and the copies that sorting takes.
SORTING_BYTES_PER_EDGE, SORTING_BYTES_PER_NODE = 80, 40
# What stays: an end, the number and the position of each edge; of each node its number and where its edges begin.
KEPT_BYTES_PER_EDGE, KEPT_BYTES_PER_NODE = 24, 16


def partition_of(
    edge_index: NDArray[np.int64], cluster: NDArray[np.int64], num_parts: int, sparse_format: str
) -> Partition:
    """Return the partition of a graph.

    edge_index: (2, edges). cluster: cluster of each node (nodes).
    sparse_format: edges are sorted by source with 'csr', by target with 'csc', then by the other end.
    """
    num_nodes = len(cluster)
    nodes = np.argsort(cluster, kind="stable")
    places = np.empty(num_nodes, np.int64)
    places[nodes] = np.arange(num_nodes)
    by_source = sparse_format == "csr"
    near, far = places[edge_index[0 if by_source else 1]], places[edge_index[1 if by_source else 0]]
    edges = np.lexsort((far, near))
    return Partition(
        indptr=torch.from_numpy(_starts(near, num_nodes)),
        index=torch.from_numpy(far[edges]),
        partptr=torch.from_numpy(_starts(cluster, num_parts)),
        node_perm=torch.from_numpy(nodes),
        edge_perm=torch.from_numpy(edges),
        sparse_format="csr" if by_source else "csc",
    )


def edges_of_part(partition: Partition, number: int) -> tuple[NDArray[np.int64], slice]:
    """Return the edges at the nodes of a cluster, and which of the partition's edges they are.

    An edge is its two ends, int64 (2, edges): the near one as a place in the cluster, the far one as a place in
    partition.node_perm.
    """
    first, stop = partition.partptr[number : number + 2].tolist()
    indptr = partition.indptr[first : stop + 1].numpy()
    near = np.repeat(np.arange(stop - first), np.diff(indptr))
    far = partition.index.numpy()[indptr[0] : indptr[-1]]
    ends = (near, far) if partition.sparse_format == "csr" else (far, near)
    return np.stack(ends), slice(int(indptr[0]), int(indptr[-1]))


def _starts(values: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return where each of `count` values begins once they are sorted (count + 1)."""
    return np.concatenate([[0], np.cumsum(np.bincount(values, minlength=count))])

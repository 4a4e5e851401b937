"""A sampled batch of a merged graph (dataset/type_map.py), split by node type and edge type.

Nodes of a type keep their order: seeds, then hop by hop. Those that were expanded are a prefix, so that a layer needs a
prefix of the nodes and edges of every type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop._native import split_types as split_arrays
from diskhop.dataset.type_map import EdgeEnds, TypeMap
from diskhop.plans import PreparedBytes
from diskhop.protocols import NodeIds, SampledBatch

# Splitting a batch: of each node its row, its place and its place within its type; of each edge its type, ends, place
# and position, then its source and its destination in the block.
SPLIT_BYTES = PreparedBytes(per_node=40, per_edge=48)


@dataclass(frozen=True, slots=True, eq=False)
class NodePart:
    """The nodes of one type.

    node_ids: rows of the type, int64 (nodes).
    places: their places among the nodes of the batch, int64 (nodes), ascending.
    num_sampled_nodes: new nodes per hop, the seeds first (hops + 1).
    """

    node_ids: NodeIds
    places: NDArray[np.int64]
    num_sampled_nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class EdgePart:
    """The edges of one type, grouped by destination.

    indptr: int64 (expanded nodes of the destination type + 1).
    sources: int32 (edges), places among the nodes of the source type.
    edge_positions: int64 (edges), positions among the edges of the type.
    places: their places among the edges of the batch, int64 (edges), ascending.
    num_sampled_edges: edges per hop (hops).
    """

    indptr: NDArray[np.int64]
    sources: NDArray[np.int32]
    edge_positions: NDArray[np.int64]
    places: NDArray[np.int64]
    num_sampled_edges: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TypedBatch:
    """A batch by types; a type without nodes or edges in the batch has empty arrays.

    parts: nodes by type.
    blocks: edges by type, as (source type, relation, destination type).
    by_hop: see SampledBatch.
    """

    parts: Mapping[str, NodePart]
    blocks: Mapping[EdgeEnds, EdgePart]
    by_hop: bool = True


def split_types(sampled: SampledBatch, type_map: TypeMap) -> TypedBatch:
    """Split a batch of merged rows and positions by type."""
    nodes, edges = split_arrays(
        type_map.native(),
        type_map.edge_starts,
        sampled.node_ids,
        sampled.indptr,
        sampled.sources,
        sampled.edge_positions,
    )
    node_bounds, edge_bounds = _bounds(sampled.num_sampled_nodes), _bounds(sampled.num_sampled_edges)
    parts = {
        name: NodePart(node_ids, places, _counts(places, node_bounds))
        for name, (node_ids, places) in zip(type_map.node_types, nodes, strict=True)
    }
    blocks = {
        each.ends: EdgePart(*arrays, num_sampled_edges=_counts(arrays[-1], edge_bounds))
        for each, arrays in zip(type_map.edges, edges, strict=True)
    }
    return TypedBatch(parts, blocks, sampled.by_hop)


def _bounds(counts: tuple[int, ...]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def _counts(places: NDArray[np.int64], bounds: NDArray[np.int64]) -> tuple[int, ...]:
    """Return how many ascending places are between each bound and the next."""
    return tuple(np.diff(np.searchsorted(places, bounds)).tolist())

"""Link prediction: ranks edges among candidates by a protocol, which is reported with every metric.

Edges are ranked in *groups* that fit the memory together with their known answers. All candidates are streamed once per
group, in pieces. Memory therefore does not grow with the number of nodes or partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.embedding.partitions.loaded import PIECE_BYTES
from diskhop.embedding.ranking.groups import EdgeQueries, ExcludedCandidates, largest_group_bytes
from diskhop.embedding.ranking.protocol import SIDES, KnownEdgeBlocks, MeasuredEdges, Protocol
from diskhop.embedding.ranking.ranks import Ranks, summarize_ranks
from diskhop.embedding.ranking.reader import NodePiece, NodeReader
from diskhop.embedding.scoring.pairwise import Similarity

# Edges and candidates that are scored at a time: the matrix of scores stays in the CPU cache.
_EDGES_AT_ONCE, _NODES_AT_ONCE = 512, 1024
# Own scores are the diagonals of products of this number of edges and nodes: they round like candidates' scores.
_OWN_AT_ONCE = 64
# Rows and columns of matrix products are padded to multiples of this; the constants above are multiples.
_BLOCK_ROWS = 16
_SCORES_BYTES = _EDGES_AT_ONCE * _NODES_AT_ONCE * (4 + 4)


def evaluate(
    reader: NodeReader,
    edges: MeasuredEdges,
    protocol: Protocol,
    known: KnownEdgeBlocks,
    drawn: NDArray[np.int64],
    memory_bytes: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Rank edges and return the metrics and the protocol as written to result.json.

    known: edges to filter.
    drawn: places of random candidates for destinations and sources, (2, candidates); unused with all nodes.
    memory_bytes: memory for a group of edges; the known answers of a single edge may exceed it.
    progress: called with the number of ranks done and their total, over edges and sides.
    Raises ReadError.
    """
    ranks = rank_edges(reader, edges, protocol, known, drawn, memory_bytes, progress)
    return summarize(ranks, edges, protocol)


def summarize(ranks: list[Ranks], edges: MeasuredEdges, protocol: Protocol) -> dict[str, Any]:
    """Return the metrics of all edges' ranks, and the protocol, as written to result.json."""
    return {**summarize_ranks(ranks, protocol.ties), "protocol": protocol.to_dict(len(edges), edges.total)}


def rank_edges(
    reader: NodeReader,
    edges: MeasuredEdges,
    protocol: Protocol,
    known: KnownEdgeBlocks,
    drawn: NDArray[np.int64],
    memory_bytes: int,
    progress: Callable[[int, int], None],
) -> list[Ranks]:
    """Rank edges. See evaluate()."""
    sides = SIDES[protocol.sides]
    ranks: list[Ranks] = []
    for side in sides if len(edges) else ():
        queries = EdgeQueries(edges, side, reader.num_nodes, known if protocol.filtered else known.none())
        places = np.sort(drawn[side])
        candidates = [NodePiece(places, reader.gather(places))] if protocol.candidates else None
        for group in queries.groups(reader.dim, memory_bytes):
            pieces = _split(reader.pieces() if candidates is None else candidates)
            ranks.append(_rank_group(reader, edges.take(group.numbers), side, group.excluded, pieces))
            progress(sum(len(each.above) for each in ranks), len(sides) * len(edges))
    return ranks


def evaluation_bytes(num_edges: int, num_known: int, dim: int, candidates: int, memory_bytes: int) -> int:
    """Return the memory of evaluate() in bytes.

    num_edges: number of edges to rank.
    num_known: number of edges to filter.
    dim: values per embedding.
    candidates: number of random candidates, 0 for all nodes.
    memory_bytes: memory for a group of edges.
    """
    group_bytes = largest_group_bytes(num_edges, num_known, dim, memory_bytes)
    return group_bytes + 4 * 2 * candidates * dim + _SCORES_BYTES + PIECE_BYTES


def _rank_group(
    reader: NodeReader,
    edges: MeasuredEdges,
    side: int,
    excluded: ExcludedCandidates,
    pieces: Iterable[NodePiece],
) -> Ranks:
    """Rank edges among the candidates of all pieces."""
    kind = reader.kind
    ends = reader.gather(np.concatenate([edges.given(side), edges.given(1 - side)]))
    queries = reader.queries(side, ends[: len(edges)], edges.relations).contiguous()
    own = _own_scores(reader, queries, ends[len(edges) :])
    parts = [slice(start, start + _EDGES_AT_ONCE) for start in range(0, len(edges), _EDGES_AT_ONCE)]
    ranks = Ranks.zeros(len(edges))
    # Allocated once: repeated allocations of megabytes would fragment the memory.
    memory, scratch = torch.empty(2, _EDGES_AT_ONCE * _NODES_AT_ONCE)
    for places, values in pieces:
        for part in parts:
            scores = _scores(kind, queries[part], values, memory)
            ranks.add(part, scores, own[part], excluded.mask(scores, part, places), scratch)
    return ranks


def _own_scores(reader: NodeReader, queries: Tensor, nodes: Tensor) -> Tensor:
    """Return the score of each query with its own node, (edges)."""
    own, memory = torch.empty(len(queries)), torch.empty(_OWN_AT_ONCE * _OWN_AT_ONCE)
    for start in range(0, len(queries), _OWN_AT_ONCE):
        part = slice(start, start + _OWN_AT_ONCE)
        own[part] = _scores(reader.kind, queries[part], nodes[part], memory).diagonal()
    return own


def _scores(kind: Similarity, queries: Tensor, nodes: Tensor, memory: Tensor) -> Tensor:
    """Return the scores (queries, nodes), written to `memory`. A pair's score has the same bits at every position.

    Matrix libraries use other loops, which round differently, for rows and columns after the last whole block. Padding
    to whole blocks avoids them.
    """
    queries_in_blocks, nodes_in_blocks = _in_blocks(queries), _in_blocks(nodes)
    shape = len(queries_in_blocks), len(nodes_in_blocks)
    scores = memory[: shape[0] * shape[1]].view(shape)
    kind.matrix(queries_in_blocks, nodes_in_blocks, scores)
    return scores[: len(queries), : len(nodes)]


def _in_blocks(rows: Tensor) -> Tensor:
    """Return the rows, padded with rows of zeros to whole blocks."""
    num_missing = -len(rows) % _BLOCK_ROWS
    return torch.cat([rows, rows.new_zeros(num_missing, rows.shape[1])]) if num_missing else rows


def _split(pieces: Iterable[NodePiece]) -> Iterator[NodePiece]:
    """Yield pieces of up to _NODES_AT_ONCE nodes."""
    for places, values in pieces:
        for start in range(0, len(places), _NODES_AT_ONCE):
            yield NodePiece(places[start : start + _NODES_AT_ONCE], values[start : start + _NODES_AT_ONCE])

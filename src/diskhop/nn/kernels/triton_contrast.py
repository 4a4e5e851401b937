"""Kernels of a batch of edges against its negatives: scores, softmax losses and all gradients (Legend, section 6).

embedding.step.gradients.AnyGradients is their reference. A score is a product, or a negative distance (TransE). Rows
are read where they lie. Five kernels run in turn: queries of edges; scores of queries against negatives, and their
softmax; gradients of queries, then of negatives; gradients of edges' ends and relations. What one writes is reused by
the next ones: queries, scores, and each softmax. Each gradient belongs to one program, so that sums have a fixed order.

Products of tiles are made of three products of TF32 numbers, which are as exact as float32 and use the tensor cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from diskhop.nn.kernels.choice import on_device_of
from diskhop.nn.kernels.contrast_workspace import MOST_DIM, SCORES, Workspace
from diskhop.nn.kernels.triton_edges import LEAST_SQUARE, TRANSE, grads_of_edges, make_queries
from diskhop.nn.kernels.triton_known import KnownAnswers, mark_known
from diskhop.nn.kernels.triton_rows import load_rows, store_rows


class _Tile(NamedTuple):
    """Rows of a product's tiles, and how its programs are compiled."""

    EDGES: int
    NEGATIVES: int
    num_warps: int
    num_stages: int = 1


# Of the sizes that were tried on an H100 (docs/log.md), these take the least time.
_SCORES, _OF_QUERIES, _OF_NEGATIVES = _Tile(64, 32, 4), _Tile(64, 32, 4), _Tile(64, 128, 8)
# Edges of a program without products.
_FEW_EDGES = 8
_PRECISION = "tf32x3"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EdgeBatch:
    """A batch of E edges in chunks, each with K negatives for destinations and K for sources. All is on one device.

    score: a name in SCORES. with_positive: whether the softmax includes the edge's own score.
    is_reciprocal: whether queries for sources are made as those for destinations, of another row of relations.
    chunk_size: edges of a chunk. num_negatives: K.
    l2, n3: weights of regularisation; see StepOptions.
    nodes, relations: embeddings, float32 (rows, dim).
    rows: int64, of sources (E), destinations (E), negatives for destinations, for sources (chunks * K each).
    relation_rows: int64 (2E), for destinations and for sources.
    grads: gradients of rows, float32 (rows, dim); filled. relation_grads: of relation_rows; filled.
    workspace: for at least E edges.
    known: answers that are no negatives, besides each edge's own; None: no others.
    """

    score: str
    with_positive: bool
    is_reciprocal: bool
    num_edges: int
    chunk_size: int
    num_negatives: int
    l2: float
    n3: float
    nodes: Tensor
    relations: Tensor
    rows: Tensor
    relation_rows: Tensor
    grads: Tensor
    relation_grads: Tensor
    workspace: Workspace
    known: KnownAnswers | None = None


def gradients_by_triton(batch: EdgeBatch) -> Tensor:
    """Fill the gradients of a batch, and return the losses, float32 (2, E): with other destinations, other sources."""
    assert 0 < batch.nodes.shape[1] <= MOST_DIM, "wider rows are the reference's"
    losses = torch.empty(2, batch.num_edges, device=batch.nodes.device)
    with on_device_of(losses):
        _run_kernels(batch, losses)
    return losses


def _run_kernels(batch: EdgeBatch, losses: Tensor) -> None:
    num_edges, dim, work = batch.num_edges, batch.nodes.shape[1], batch.workspace
    num_chunks = triton.cdiv(num_edges, batch.chunk_size)
    score = {
        "SCORE": SCORES[batch.score],
        "IS_RECIPROCAL": batch.is_reciprocal,
        "EDGES": _FEW_EDGES,
        "HALF": max(16, triton.next_power_of_2((dim + 1) // 2)),
        "DIM": dim,
    }
    # Sizes are constants of the kernels: only then are rows read in wide pieces.
    sizes = {
        "CHUNK_SIZE": batch.chunk_size,
        "NUM_NEGATIVES": batch.num_negatives,
        "BLOCK": max(16, triton.next_power_of_2(dim)),
        "PRECISION": _PRECISION,
        "IS_DISTANCE": SCORES[batch.score] == TRANSE.value,
    }

    def chunks_by(tile: _Tile, num_rows: int, rows_per_tile: int) -> tuple[tuple[int, int], dict[str, Any]]:
        return (2 * num_chunks, triton.cdiv(num_rows, rows_per_tile)), sizes | tile._asdict()

    if batch.known is not None:
        mark_known(
            batch.known, work.scores[: 2 * num_edges * batch.num_negatives].view(2, num_edges, -1), batch.chunk_size
        )
    of_edges = (triton.cdiv(num_edges, _FEW_EDGES),)
    make_queries[of_edges](
        batch.nodes, batch.relations, batch.rows, batch.relation_rows, work.queries, work.sums, num_edges, **score
    )
    grid, constants = chunks_by(_SCORES, batch.chunk_size, _SCORES.EDGES)
    _score_queries[grid](
        batch.nodes,
        batch.rows,
        work.scores,
        work.queries,
        work.sums,
        losses,
        num_edges,
        num_chunks,
        DIM=dim,
        WITH_POSITIVE=batch.with_positive,
        WITH_KNOWN=batch.known is not None,
        **constants,
    )
    grid, constants = chunks_by(_OF_QUERIES, batch.chunk_size, _OF_QUERIES.EDGES)
    # But not here: rows that are read in wide pieces take twice as long to turn into the second factor of a product.
    _grads_of_queries[grid](
        batch.nodes,
        batch.rows,
        work.scores,
        work.queries,
        work.query_grads,
        work.sums,
        num_edges,
        num_chunks,
        dim,
        **constants,
    )
    grid, constants = chunks_by(_OF_NEGATIVES, batch.num_negatives, _OF_NEGATIVES.NEGATIVES)
    _grads_of_negatives[grid](
        batch.nodes,
        batch.rows,
        batch.grads,
        work.scores,
        work.queries,
        work.sums,
        num_edges,
        num_chunks,
        DIM=dim,
        **constants,
    )
    grads_of_edges[of_edges](
        batch.nodes,
        batch.relations,
        batch.rows,
        batch.relation_rows,
        batch.grads,
        batch.relation_grads,
        work.queries,
        work.query_grads,
        work.sums,
        num_edges,
        batch.l2,
        batch.n3,
        **score,
    )


@triton.jit  # type: ignore[untyped-decorator]
def _score_queries(
    nodes: tl.tensor,
    rows: tl.tensor,
    scores: tl.tensor,
    queries: tl.tensor,
    sums: tl.tensor,
    losses: tl.tensor,
    num_edges: tl.tensor,
    num_chunks: tl.tensor,
    WITH_POSITIVE: tl.constexpr,  # noqa: N803
    WITH_KNOWN: tl.constexpr,  # noqa: N803
    CHUNK_SIZE: tl.constexpr,  # noqa: N803
    NUM_NEGATIVES: tl.constexpr,  # noqa: N803
    DIM: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    EDGES: tl.constexpr,  # noqa: N803
    NEGATIVES: tl.constexpr,  # noqa: N803
    PRECISION: tl.constexpr,  # noqa: N803
    IS_DISTANCE: tl.constexpr,  # noqa: N803
) -> None:
    group = tl.program_id(0).to(tl.int64)
    side = group // num_chunks
    in_chunk = tl.program_id(1) * EDGES + tl.arange(0, EDGES)
    edges = group % num_chunks * CHUNK_SIZE + in_chunk
    is_edge = (in_chunk < CHUNK_SIZE) & (edges < num_edges)
    of_edges = side * num_edges + edges
    columns = tl.arange(0, BLOCK)
    in_row = columns < DIM
    query = load_rows(queries, of_edges, columns, is_edge, in_row, DIM)
    positive = tl.load(sums + of_edges, mask=is_edge, other=0.0)
    answer_rows = tl.load(rows + (1 - side) * num_edges + edges, mask=is_edge, other=0)

    # The softmax's largest score and sum of powers so far, as scores come.
    if WITH_POSITIVE:
        most = positive
        of_positive = tl.full((EDGES,), 1.0, tl.float32)
    else:
        most = tl.full((EDGES,), float("-inf"), tl.float32)
        of_positive = tl.zeros((EDGES,), tl.float32)
    total = tl.zeros((EDGES,), tl.float32)
    of_scores = scores + of_edges[:, None] * NUM_NEGATIVES
    of_negatives = rows + 2 * num_edges + group * NUM_NEGATIVES
    for begin in range(0, NUM_NEGATIVES, NEGATIVES):
        places = begin + tl.arange(0, NEGATIVES)
        is_negative = places < NUM_NEGATIVES
        negative_rows = tl.load(of_negatives + places, mask=is_negative, other=0)
        negatives = load_rows(nodes, negative_rows, columns, is_negative, in_row, DIM)
        found = tl.dot(query, tl.trans(negatives), input_precision=PRECISION)
        if IS_DISTANCE:
            squares = tl.sum(query * query, 1)[:, None] - 2 * found + tl.sum(negatives * negatives, 1)[None, :]
            found = -tl.sqrt(tl.maximum(squares, LEAST_SQUARE))
        is_pair = is_edge[:, None] & is_negative[None, :]
        is_left_out = (answer_rows[:, None] == negative_rows[None, :]) | ~is_negative[None, :]
        if WITH_KNOWN:
            is_left_out |= tl.load(of_scores + places[None, :], mask=is_pair, other=0.0) == float("-inf")
        found = tl.where(is_left_out, float("-inf"), found)
        tl.store(of_scores + places[None, :], found, mask=is_pair)
        larger = tl.maximum(most, tl.max(found, 1))
        base = tl.where(larger == float("-inf"), 0.0, larger)
        shrunk = tl.exp(most - base)
        total = total * shrunk + tl.sum(tl.exp(found - base[:, None]), 1)
        of_positive *= shrunk
        most = larger
    base = tl.where(most == float("-inf"), 0.0, most)
    all_powers = total + of_positive
    # All negatives are left out; a sum that is not a number is not.
    is_empty = all_powers <= 0
    divisor = tl.where(is_empty, 1.0, all_powers)
    loss = tl.where(is_empty, positive - positive, base + tl.log(divisor) - positive)
    if WITH_POSITIVE:  # noqa: SIM108 - decided when the kernel is compiled
        positive_grad = -(total / divisor)
    else:
        positive_grad = tl.where(is_empty, 0.0, -1.0)
    tl.store(losses + of_edges, loss, mask=is_edge)
    tl.store(sums + 2 * num_edges + of_edges, base, mask=is_edge)
    tl.store(sums + 4 * num_edges + of_edges, divisor, mask=is_edge)
    tl.store(sums + 6 * num_edges + of_edges, positive_grad, mask=is_edge)


@triton.jit  # type: ignore[untyped-decorator]
def _load_weights(
    scores: tl.tensor,
    sums: tl.tensor,
    of_edges: tl.tensor,
    places: tl.tensor,
    is_edge: tl.tensor,
    is_negative: tl.tensor,
    num_edges: tl.tensor,
    num_negatives: tl.tensor,
    IS_DISTANCE: tl.constexpr,  # noqa: N803
) -> tl.tensor:
    """Return the gradients of scores: each softmax; of distances divided by the score, as half that of its square."""
    base = tl.load(sums + 2 * num_edges + of_edges, mask=is_edge, other=0.0)
    divisor = tl.load(sums + 4 * num_edges + of_edges, mask=is_edge, other=1.0)
    found = tl.load(
        scores + of_edges[:, None] * num_negatives + places[None, :],
        mask=is_edge[:, None] & is_negative[None, :],
        other=float("-inf"),
    )
    weights = tl.exp(found - base[:, None]) / divisor[:, None]
    if IS_DISTANCE:
        weights = weights / found
    return weights


@triton.jit  # type: ignore[untyped-decorator]
def _grads_of_queries(
    nodes: tl.tensor,
    rows: tl.tensor,
    scores: tl.tensor,
    queries: tl.tensor,
    query_grads: tl.tensor,
    sums: tl.tensor,
    num_edges: tl.tensor,
    num_chunks: tl.tensor,
    dim: tl.tensor,
    CHUNK_SIZE: tl.constexpr,  # noqa: N803
    NUM_NEGATIVES: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    EDGES: tl.constexpr,  # noqa: N803
    NEGATIVES: tl.constexpr,  # noqa: N803
    PRECISION: tl.constexpr,  # noqa: N803
    IS_DISTANCE: tl.constexpr,  # noqa: N803
) -> None:
    group = tl.program_id(0).to(tl.int64)
    in_chunk = tl.program_id(1) * EDGES + tl.arange(0, EDGES)
    edges = group % num_chunks * CHUNK_SIZE + in_chunk
    is_edge = (in_chunk < CHUNK_SIZE) & (edges < num_edges)
    of_edges = group // num_chunks * num_edges + edges
    columns = tl.arange(0, BLOCK)
    in_row = columns < dim
    of_negatives = rows + 2 * num_edges + group * NUM_NEGATIVES
    grads = tl.zeros((EDGES, BLOCK), tl.float32)
    totals = tl.zeros((EDGES,), tl.float32)
    for begin in range(0, NUM_NEGATIVES, NEGATIVES):
        places = begin + tl.arange(0, NEGATIVES)
        is_negative = places < NUM_NEGATIVES
        negative_rows = tl.load(of_negatives + places, mask=is_negative, other=0)
        negatives = load_rows(nodes, negative_rows, columns, is_negative, in_row, dim)
        weights = _load_weights(
            scores, sums, of_edges, places, is_edge, is_negative, num_edges, NUM_NEGATIVES, IS_DISTANCE
        )
        grads = tl.dot(weights, negatives, grads, input_precision=PRECISION)
        if IS_DISTANCE:
            totals += tl.sum(weights, 1)
    if IS_DISTANCE:
        grads = totals[:, None] * load_rows(queries, of_edges, columns, is_edge, in_row, dim) - grads
    store_rows(query_grads, of_edges, columns, grads, is_edge, in_row, dim)


@triton.jit  # type: ignore[untyped-decorator]
def _grads_of_negatives(
    nodes: tl.tensor,
    rows: tl.tensor,
    grads: tl.tensor,
    scores: tl.tensor,
    queries: tl.tensor,
    sums: tl.tensor,
    num_edges: tl.tensor,
    num_chunks: tl.tensor,
    CHUNK_SIZE: tl.constexpr,  # noqa: N803
    NUM_NEGATIVES: tl.constexpr,  # noqa: N803
    DIM: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    EDGES: tl.constexpr,  # noqa: N803
    NEGATIVES: tl.constexpr,  # noqa: N803
    PRECISION: tl.constexpr,  # noqa: N803
    IS_DISTANCE: tl.constexpr,  # noqa: N803
) -> None:
    group = tl.program_id(0).to(tl.int64)
    side = group // num_chunks
    chunk = group % num_chunks
    places = tl.program_id(1) * NEGATIVES + tl.arange(0, NEGATIVES)
    is_negative = places < NUM_NEGATIVES
    columns = tl.arange(0, BLOCK)
    in_row = columns < DIM
    found = tl.zeros((NEGATIVES, BLOCK), tl.float32)
    totals = tl.zeros((NEGATIVES,), tl.float32)
    for begin in range(0, CHUNK_SIZE, EDGES):
        in_chunk = begin + tl.arange(0, EDGES)
        edges = chunk * CHUNK_SIZE + in_chunk
        is_edge = (in_chunk < CHUNK_SIZE) & (edges < num_edges)
        of_edges = side * num_edges + edges
        weights = _load_weights(
            scores, sums, of_edges, places, is_edge, is_negative, num_edges, NUM_NEGATIVES, IS_DISTANCE
        )
        query = load_rows(queries, of_edges, columns, is_edge, in_row, DIM)
        found = tl.dot(tl.trans(weights), query, found, input_precision=PRECISION)
        if IS_DISTANCE:
            totals += tl.sum(weights, 0)
    of_negatives = 2 * num_edges + group * NUM_NEGATIVES + places
    if IS_DISTANCE:
        negative_rows = tl.load(rows + of_negatives, mask=is_negative, other=0)
        found = totals[:, None] * load_rows(nodes, negative_rows, columns, is_negative, in_row, DIM) - found
    store_rows(grads, of_negatives, columns, found, is_negative, in_row, DIM)

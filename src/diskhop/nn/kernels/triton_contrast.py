"""Kernels of a batch of edges against its negatives: scores, softmax losses and all gradients (Legend, section 6).

embedding.step.gradients.AnyGradients is their reference. Rows are read where they lie. A program of the first kernel
has some edges of a chunk, both corrupted sides. It makes their queries, scores them, and has the gradients of both ends
and of the relation without another pass. What it writes for the second kernel is reused there: queries, and the
gradients of scores. That one has some negatives of a chunk, so that no gradient is added to by two programs.

Rows are read in two halves: the real and the imaginary parts of ComplEx. Any other score does not mind.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

# Rows of both kernels' tiles: the least that products of tiles take (16), as in the paper.
_EDGES, _NEGATIVES = 16, 32
# Tiles of wider rows do not fit the registers.
MOST_DIM = 128
SCORES = {"dot": 0, "distmult": 1, "complex": 2}


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
    scores: memory, float32 (2, E, K). queries: memory, float32 (2, E, dim).
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
    scores: Tensor
    queries: Tensor


def gradients_by_triton(batch: EdgeBatch) -> Tensor:
    """Fill the gradients of a batch, and return the losses, float32 (2, E): with other destinations, other sources."""
    num_edges, dim = batch.num_edges, batch.nodes.shape[1]
    assert 0 < dim <= MOST_DIM, "wider rows are the reference's"
    losses = torch.empty(2, num_edges, device=batch.nodes.device)
    num_chunks = triton.cdiv(num_edges, batch.chunk_size)
    half = (dim + 1) // 2
    shape = (num_edges, batch.chunk_size, num_chunks, batch.num_negatives, dim, half)
    block = max(16, triton.next_power_of_2(half))
    _score_edges[(num_chunks, triton.cdiv(batch.chunk_size, _EDGES))](
        batch.nodes,
        batch.relations,
        batch.rows,
        batch.relation_rows,
        batch.grads,
        batch.relation_grads,
        batch.scores,
        batch.queries,
        losses,
        *shape,
        batch.l2,
        batch.n3,
        SCORE=SCORES[batch.score],
        WITH_POSITIVE=batch.with_positive,
        IS_RECIPROCAL=batch.is_reciprocal,
        HALF=block,
        EDGES=_EDGES,
        NEGATIVES=_NEGATIVES,
    )
    _grads_of_negatives[(2 * num_chunks, triton.cdiv(batch.num_negatives, _NEGATIVES))](
        batch.grads, batch.scores, batch.queries, *shape, HALF=block, EDGES=_EDGES, NEGATIVES=_NEGATIVES
    )
    return losses


@triton.jit  # type: ignore[untyped-decorator]
def _load(
    table: tl.tensor, rows: tl.tensor, columns: tl.tensor, is_row: tl.tensor, is_column: tl.tensor, dim: tl.tensor
) -> tl.tensor:
    places = rows[:, None] * dim + columns[None, :]
    return tl.load(table + places, mask=is_row[:, None] & is_column[None, :], other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _store(
    table: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    values: tl.tensor,
    is_row: tl.tensor,
    is_column: tl.tensor,
    dim: tl.tensor,
) -> None:
    places = rows[:, None] * dim + columns[None, :]
    tl.store(table + places, values, mask=is_row[:, None] & is_column[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def _score_edges(
    nodes: tl.tensor,
    relations: tl.tensor,
    rows: tl.tensor,
    relation_rows: tl.tensor,
    grads: tl.tensor,
    relation_grads: tl.tensor,
    scores: tl.tensor,
    queries: tl.tensor,
    losses: tl.tensor,
    num_edges: tl.tensor,
    chunk_size: tl.tensor,
    num_chunks: tl.tensor,
    num_negatives: tl.tensor,
    dim: tl.tensor,
    half: tl.tensor,
    l2: tl.tensor,
    n3: tl.tensor,
    SCORE: tl.constexpr,  # noqa: N803 - Triton's habit for constants
    WITH_POSITIVE: tl.constexpr,  # noqa: N803
    IS_RECIPROCAL: tl.constexpr,  # noqa: N803
    HALF: tl.constexpr,  # noqa: N803
    EDGES: tl.constexpr,  # noqa: N803
    NEGATIVES: tl.constexpr,  # noqa: N803
) -> None:
    chunk = tl.program_id(0).to(tl.int64)
    in_chunk = tl.program_id(1) * EDGES + tl.arange(0, EDGES)
    edges = chunk * chunk_size + in_chunk
    is_edge = (in_chunk < chunk_size) & (edges < num_edges)
    first = tl.arange(0, HALF)
    second = half + first
    in_first = first < half
    in_second = second < dim

    source_rows = tl.load(rows + edges, mask=is_edge, other=0)
    destination_rows = tl.load(rows + num_edges + edges, mask=is_edge, other=0)
    source_a = _load(nodes, source_rows, first, is_edge, in_first, dim)
    source_b = _load(nodes, source_rows, second, is_edge, in_second, dim)
    destination_a = _load(nodes, destination_rows, first, is_edge, in_first, dim)
    destination_b = _load(nodes, destination_rows, second, is_edge, in_second, dim)
    source_grad_a = source_a * (l2 + n3 * tl.abs(source_a))
    source_grad_b = source_b * (l2 + n3 * tl.abs(source_b))
    destination_grad_a = destination_a * (l2 + n3 * tl.abs(destination_a))
    destination_grad_b = destination_b * (l2 + n3 * tl.abs(destination_b))

    for side in tl.static_range(2):
        if side == 0:
            given_a, given_b, answer_a, answer_b = source_a, source_b, destination_a, destination_b
            answer_rows = destination_rows
        else:
            given_a, given_b, answer_a, answer_b = destination_a, destination_b, source_a, source_b
            answer_rows = source_rows
        if SCORE == 0:
            query_a, query_b = given_a, given_b
        else:
            numbers = tl.load(relation_rows + side * num_edges + edges, mask=is_edge, other=0)
            relation_a = _load(relations, numbers, first, is_edge, in_first, dim)
            relation_b = _load(relations, numbers, second, is_edge, in_second, dim)
            if SCORE == 1:
                query_a, query_b = given_a * relation_a, given_b * relation_b
            elif side == 0 or IS_RECIPROCAL:
                query_a = given_a * relation_a - given_b * relation_b
                query_b = given_a * relation_b + given_b * relation_a
            else:
                query_a = given_a * relation_a + given_b * relation_b
                query_b = given_b * relation_a - given_a * relation_b
        of_queries = queries + side * num_edges * dim
        _store(of_queries, edges, first, query_a, is_edge, in_first, dim)
        _store(of_queries, edges, second, query_b, is_edge, in_second, dim)
        positive = tl.sum(query_a * answer_a, 1) + tl.sum(query_b * answer_b, 1)

        # The softmax's largest score and sum of powers so far, as scores come.
        if WITH_POSITIVE:
            most = positive
            of_positive = tl.full((EDGES,), 1.0, tl.float32)
        else:
            most = tl.full((EDGES,), float("-inf"), tl.float32)
            of_positive = tl.zeros((EDGES,), tl.float32)
        total = tl.zeros((EDGES,), tl.float32)
        of_scores = scores + (side * num_edges + edges[:, None]) * num_negatives
        of_negatives = rows + 2 * num_edges + (side * num_chunks + chunk) * num_negatives
        begin = 0
        while begin < num_negatives:
            places = begin + tl.arange(0, NEGATIVES)
            is_negative = places < num_negatives
            negative_rows = tl.load(of_negatives + places, mask=is_negative, other=0)
            negative_a = _load(nodes, negative_rows, first, is_negative, in_first, dim)
            negative_b = _load(nodes, negative_rows, second, is_negative, in_second, dim)
            found = tl.dot(query_a, tl.trans(negative_a), input_precision="ieee")
            found += tl.dot(query_b, tl.trans(negative_b), input_precision="ieee")
            is_left_out = (answer_rows[:, None] == negative_rows[None, :]) | ~is_negative[None, :]
            found = tl.where(is_left_out, float("-inf"), found)
            tl.store(of_scores + places[None, :], found, mask=is_edge[:, None] & is_negative[None, :])
            larger = tl.maximum(most, tl.max(found, 1))
            base = tl.where(larger == float("-inf"), 0.0, larger)
            shrunk = tl.exp(most - base)
            total = total * shrunk + tl.sum(tl.exp(found - base[:, None]), 1)
            of_positive *= shrunk
            most = larger
            begin += NEGATIVES
        base = tl.where(most == float("-inf"), 0.0, most)
        all_powers = total + of_positive
        # All negatives are left out; a sum that is not a number is not.
        is_empty = all_powers <= 0
        divisor = tl.where(is_empty, 1.0, all_powers)
        loss = tl.where(is_empty, positive - positive, base + tl.log(divisor) - positive)
        tl.store(losses + side * num_edges + edges, loss, mask=is_edge)
        if WITH_POSITIVE:  # noqa: SIM108 - decided when the kernel is compiled
            positive_grad = -(total / divisor)
        else:
            positive_grad = tl.where(is_empty, 0.0, -1.0)

        query_grad_a = positive_grad[:, None] * answer_a
        query_grad_b = positive_grad[:, None] * answer_b
        # Other threads of the program wrote some of the scores that a thread reads.
        tl.debug_barrier()
        begin = 0
        while begin < num_negatives:
            places = begin + tl.arange(0, NEGATIVES)
            is_negative = places < num_negatives
            negative_rows = tl.load(of_negatives + places, mask=is_negative, other=0)
            negative_a = _load(nodes, negative_rows, first, is_negative, in_first, dim)
            negative_b = _load(nodes, negative_rows, second, is_negative, in_second, dim)
            is_score = is_edge[:, None] & is_negative[None, :]
            found = tl.load(of_scores + places[None, :], mask=is_score, other=float("-inf"))
            weights = tl.exp(found - base[:, None]) / divisor[:, None]
            tl.store(of_scores + places[None, :], weights, mask=is_score)
            query_grad_a += tl.dot(weights, negative_a, input_precision="ieee")
            query_grad_b += tl.dot(weights, negative_b, input_precision="ieee")
            begin += NEGATIVES
        if SCORE == 0:
            given_grad_a, given_grad_b = query_grad_a, query_grad_b
        else:
            if SCORE == 1:
                given_grad_a, given_grad_b = query_grad_a * relation_a, query_grad_b * relation_b
                relation_grad_a, relation_grad_b = query_grad_a * given_a, query_grad_b * given_b
            elif side == 0 or IS_RECIPROCAL:
                given_grad_a = query_grad_a * relation_a + query_grad_b * relation_b
                given_grad_b = query_grad_b * relation_a - query_grad_a * relation_b
                relation_grad_a = query_grad_a * given_a + query_grad_b * given_b
                relation_grad_b = query_grad_b * given_a - query_grad_a * given_b
            else:
                given_grad_a = query_grad_a * relation_a - query_grad_b * relation_b
                given_grad_b = query_grad_a * relation_b + query_grad_b * relation_a
                relation_grad_a = given_a * query_grad_a + given_b * query_grad_b
                relation_grad_b = given_b * query_grad_a - given_a * query_grad_b
            relation_grad_a += n3 * relation_a * tl.abs(relation_a)
            relation_grad_b += n3 * relation_b * tl.abs(relation_b)
            of_relations = relation_grads + side * num_edges * dim
            _store(of_relations, edges, first, relation_grad_a, is_edge, in_first, dim)
            _store(of_relations, edges, second, relation_grad_b, is_edge, in_second, dim)
        if side == 0:
            source_grad_a += given_grad_a
            source_grad_b += given_grad_b
            destination_grad_a += positive_grad[:, None] * query_a
            destination_grad_b += positive_grad[:, None] * query_b
        else:
            destination_grad_a += given_grad_a
            destination_grad_b += given_grad_b
            source_grad_a += positive_grad[:, None] * query_a
            source_grad_b += positive_grad[:, None] * query_b

    _store(grads, edges, first, source_grad_a, is_edge, in_first, dim)
    _store(grads, edges, second, source_grad_b, is_edge, in_second, dim)
    of_destinations = grads + num_edges * dim
    _store(of_destinations, edges, first, destination_grad_a, is_edge, in_first, dim)
    _store(of_destinations, edges, second, destination_grad_b, is_edge, in_second, dim)


@triton.jit  # type: ignore[untyped-decorator]
def _grads_of_negatives(
    grads: tl.tensor,
    scores: tl.tensor,
    queries: tl.tensor,
    num_edges: tl.tensor,
    chunk_size: tl.tensor,
    num_chunks: tl.tensor,
    num_negatives: tl.tensor,
    dim: tl.tensor,
    half: tl.tensor,
    HALF: tl.constexpr,  # noqa: N803
    EDGES: tl.constexpr,  # noqa: N803
    NEGATIVES: tl.constexpr,  # noqa: N803
) -> None:
    group = tl.program_id(0).to(tl.int64)
    side = group // num_chunks
    chunk = group % num_chunks
    places = tl.program_id(1) * NEGATIVES + tl.arange(0, NEGATIVES)
    is_negative = places < num_negatives
    first = tl.arange(0, HALF)
    second = half + first
    in_first = first < half
    in_second = second < dim
    grad_a = tl.zeros((NEGATIVES, HALF), tl.float32)
    grad_b = tl.zeros((NEGATIVES, HALF), tl.float32)
    begin = 0
    while begin < chunk_size:
        in_chunk = begin + tl.arange(0, EDGES)
        edges = chunk * chunk_size + in_chunk
        is_edge = (in_chunk < chunk_size) & (edges < num_edges)
        of_edges = side * num_edges + edges
        # Transposed: a row for each negative.
        weights = tl.load(
            scores + of_edges[None, :] * num_negatives + places[:, None],
            mask=is_negative[:, None] & is_edge[None, :],
            other=0.0,
        )
        grad_a += tl.dot(weights, _load(queries, of_edges, first, is_edge, in_first, dim), input_precision="ieee")
        grad_b += tl.dot(weights, _load(queries, of_edges, second, is_edge, in_second, dim), input_precision="ieee")
        begin += EDGES
    of_negatives = 2 * num_edges + group * num_negatives + places
    _store(grads, of_negatives, first, grad_a, is_negative, in_first, dim)
    _store(grads, of_negatives, second, grad_b, is_negative, in_second, dim)

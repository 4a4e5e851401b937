"""Kernels of edges' queries and gradients, without products of tiles; triton_contrast.py runs them.

Rows are read in two halves: the real and the imaginary parts of ComplEx. Any other score does not mind.
"""

from __future__ import annotations

import triton
import triton.language as tl

from diskhop.nn.kernels.contrast_workspace import SCORES
from diskhop.nn.kernels.triton_rows import load_rows, store_rows

# As embedding.scoring.pairwise clamps squared distances.
LEAST_SQUARE = tl.constexpr(1e-12)
DOT, DISTMULT, COMPLEX, TRANSE = (tl.constexpr(SCORES[name]) for name in ("dot", "distmult", "complex", "transe"))


@triton.jit  # type: ignore[untyped-decorator]
def load_halves(
    table: tl.tensor,
    rows: tl.tensor,
    is_row: tl.tensor,
    HALF: tl.constexpr,  # noqa: N803 - Triton's habit for constants
    DIM: tl.constexpr,  # noqa: N803
) -> tuple[tl.tensor, tl.tensor]:
    """Read rows of DIM columns in two halves, each filled up to HALF columns with zeros."""
    first = tl.arange(0, HALF)
    second = (DIM + 1) // 2 + first
    a = load_rows(table, rows, first, is_row, first < (DIM + 1) // 2, DIM)
    b = load_rows(table, rows, second, is_row, second < DIM, DIM)
    return a, b


@triton.jit  # type: ignore[untyped-decorator]
def store_halves(
    table: tl.tensor,
    rows: tl.tensor,
    a: tl.tensor,
    b: tl.tensor,
    is_row: tl.tensor,
    HALF: tl.constexpr,  # noqa: N803
    DIM: tl.constexpr,  # noqa: N803
) -> None:
    """Write what load_halves() reads."""
    first = tl.arange(0, HALF)
    second = (DIM + 1) // 2 + first
    store_rows(table, rows, first, a, is_row, first < (DIM + 1) // 2, DIM)
    store_rows(table, rows, second, b, is_row, second < DIM, DIM)


@triton.jit  # type: ignore[untyped-decorator]
def make_queries(
    nodes: tl.tensor,
    relations: tl.tensor,
    rows: tl.tensor,
    relation_rows: tl.tensor,
    queries: tl.tensor,
    sums: tl.tensor,
    num_edges: tl.tensor,
    SCORE: tl.constexpr,  # noqa: N803
    IS_RECIPROCAL: tl.constexpr,  # noqa: N803
    EDGES: tl.constexpr,  # noqa: N803
    HALF: tl.constexpr,  # noqa: N803
    DIM: tl.constexpr,  # noqa: N803
) -> None:
    """Write the queries of some edges, and the scores of these edges."""
    edges = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    is_edge = edges < num_edges
    for side in tl.static_range(2):
        of_edges = side * num_edges + edges
        # The end that a query is made of, and the end that is its answer.
        given_rows = tl.load(rows + of_edges, mask=is_edge, other=0)
        answer_rows = tl.load(rows + (1 - side) * num_edges + edges, mask=is_edge, other=0)
        given_a, given_b = load_halves(nodes, given_rows, is_edge, HALF, DIM)
        if SCORE == DOT:
            query_a, query_b = given_a, given_b
        else:
            numbers = tl.load(relation_rows + of_edges, mask=is_edge, other=0)
            relation_a, relation_b = load_halves(relations, numbers, is_edge, HALF, DIM)
            if SCORE == DISTMULT:
                query_a, query_b = given_a * relation_a, given_b * relation_b
            elif SCORE == TRANSE:
                sign = 1.0 if side == 0 or IS_RECIPROCAL else -1.0
                query_a, query_b = given_a + sign * relation_a, given_b + sign * relation_b
            elif side == 0 or IS_RECIPROCAL:
                query_a = given_a * relation_a - given_b * relation_b
                query_b = given_a * relation_b + given_b * relation_a
            else:
                query_a = given_a * relation_a + given_b * relation_b
                query_b = given_b * relation_a - given_a * relation_b
        store_halves(queries, of_edges, query_a, query_b, is_edge, HALF, DIM)
        answer_a, answer_b = load_halves(nodes, answer_rows, is_edge, HALF, DIM)
        if SCORE == TRANSE:
            apart_a, apart_b = query_a - answer_a, query_b - answer_b
            square = tl.sum(apart_a * apart_a, 1) + tl.sum(apart_b * apart_b, 1)
            positive = -tl.sqrt(tl.maximum(square, LEAST_SQUARE))
        else:
            positive = tl.sum(query_a * answer_a, 1) + tl.sum(query_b * answer_b, 1)
        tl.store(sums + of_edges, positive, mask=is_edge)


@triton.jit  # type: ignore[untyped-decorator]
def grads_of_edges(
    nodes: tl.tensor,
    relations: tl.tensor,
    rows: tl.tensor,
    relation_rows: tl.tensor,
    grads: tl.tensor,
    relation_grads: tl.tensor,
    queries: tl.tensor,
    query_grads: tl.tensor,
    sums: tl.tensor,
    num_edges: tl.tensor,
    l2: tl.tensor,
    n3: tl.tensor,
    SCORE: tl.constexpr,  # noqa: N803
    IS_RECIPROCAL: tl.constexpr,  # noqa: N803
    EDGES: tl.constexpr,  # noqa: N803
    HALF: tl.constexpr,  # noqa: N803
    DIM: tl.constexpr,  # noqa: N803
) -> None:
    """Write the gradients of some edges' ends and relations."""
    edges = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    is_edge = edges < num_edges

    source_rows = tl.load(rows + edges, mask=is_edge, other=0)
    destination_rows = tl.load(rows + num_edges + edges, mask=is_edge, other=0)
    source_a, source_b = load_halves(nodes, source_rows, is_edge, HALF, DIM)
    destination_a, destination_b = load_halves(nodes, destination_rows, is_edge, HALF, DIM)
    source_grad_a = source_a * (l2 + n3 * tl.abs(source_a))
    source_grad_b = source_b * (l2 + n3 * tl.abs(source_b))
    destination_grad_a = destination_a * (l2 + n3 * tl.abs(destination_a))
    destination_grad_b = destination_b * (l2 + n3 * tl.abs(destination_b))

    for side in tl.static_range(2):
        if side == 0:
            given_a, given_b, answer_a, answer_b = source_a, source_b, destination_a, destination_b
        else:
            given_a, given_b, answer_a, answer_b = destination_a, destination_b, source_a, source_b
        of_edges = side * num_edges + edges
        positive_grad = tl.load(sums + 6 * num_edges + of_edges, mask=is_edge, other=0.0)
        query_a, query_b = load_halves(queries, of_edges, is_edge, HALF, DIM)
        query_grad_a, query_grad_b = load_halves(query_grads, of_edges, is_edge, HALF, DIM)
        # Of products, what the gradient of the edge's score is multiplied by is the other factor.
        by_query_a, by_query_b, by_answer_a, by_answer_b = answer_a, answer_b, query_a, query_b
        if SCORE == TRANSE:
            positive_grad = positive_grad / tl.load(sums + of_edges, mask=is_edge, other=-1.0)
            by_query_a, by_query_b = query_a - answer_a, query_b - answer_b
            by_answer_a, by_answer_b = answer_a - query_a, answer_b - query_b
        query_grad_a += positive_grad[:, None] * by_query_a
        query_grad_b += positive_grad[:, None] * by_query_b
        if SCORE == DOT:
            given_grad_a, given_grad_b = query_grad_a, query_grad_b
        else:
            numbers = tl.load(relation_rows + of_edges, mask=is_edge, other=0)
            relation_a, relation_b = load_halves(relations, numbers, is_edge, HALF, DIM)
            if SCORE == DISTMULT:
                given_grad_a, given_grad_b = query_grad_a * relation_a, query_grad_b * relation_b
                relation_grad_a, relation_grad_b = query_grad_a * given_a, query_grad_b * given_b
            elif SCORE == TRANSE:
                sign = 1.0 if side == 0 or IS_RECIPROCAL else -1.0
                given_grad_a, given_grad_b = query_grad_a, query_grad_b
                relation_grad_a, relation_grad_b = sign * query_grad_a, sign * query_grad_b
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
            store_halves(relation_grads, of_edges, relation_grad_a, relation_grad_b, is_edge, HALF, DIM)
        if side == 0:
            source_grad_a += given_grad_a
            source_grad_b += given_grad_b
            destination_grad_a += positive_grad[:, None] * by_answer_a
            destination_grad_b += positive_grad[:, None] * by_answer_b
        else:
            destination_grad_a += given_grad_a
            destination_grad_b += given_grad_b
            source_grad_a += positive_grad[:, None] * by_answer_a
            source_grad_b += positive_grad[:, None] * by_answer_b

    store_halves(grads, edges, source_grad_a, source_grad_b, is_edge, HALF, DIM)
    of_destinations = num_edges + edges
    store_halves(grads, of_destinations, destination_grad_a, destination_grad_b, is_edge, HALF, DIM)

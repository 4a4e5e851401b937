"""Batches whose scores are products have autograd's losses and gradients; what does not count is masked."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from diskhop._native import has_product_gradients, mask_scores, product_gradients
from diskhop.embedding.scoring.scores import ProductScore
from diskhop.embedding.step.contrast import LeftOut
from tests.embedding import assert_close
from tests.examples import examples

NO_ROWS = torch.empty(0, dtype=torch.int64)
SEEDS = st.integers(0, 2**20)

needs_products = pytest.mark.skipif(not has_product_gradients(), reason="this build of torch has no MKL")


def some_left_out(
    wanted: torch.Tensor, negatives: torch.Tensor, most_known: int, num_nodes: int, draws: torch.Generator
) -> LeftOut:
    if not most_known:
        return LeftOut(wanted, negatives)
    sizes = torch.randint(most_known + 1, (len(wanted),), generator=draws)
    known = [NO_ROWS, *(torch.randint(num_nodes, (size,), generator=draws).sort().values for size in sizes.tolist())]
    ends = sizes.cumsum(0)
    return LeftOut(wanted, negatives, torch.cat(known), ends - sizes, ends)


def is_left_out(left_out: LeftOut, negatives: torch.Tensor) -> torch.Tensor:
    """negatives: of each row."""
    is_none = left_out.answers[:, None] == negatives
    for row, (begin, end) in enumerate(zip(left_out.begins.tolist(), left_out.ends.tolist(), strict=True)):
        is_none[row] |= torch.isin(negatives[row], left_out.known[begin:end])
    return is_none


def queries_of(
    score: ProductScore, asked: torch.Tensor, relations: torch.Tensor | None, *, is_tail: bool
) -> torch.Tensor:
    """Compute queries by the definition."""
    if relations is None:
        return asked
    if score == "distmult":
        return asked * relations
    numbers, factors = (torch.complex(*each.chunk(2, 1)) for each in (asked, relations))
    found = numbers * (factors if is_tail else factors.conj())
    return torch.cat([found.real, found.imag], 1)


@given(
    num_queries=st.integers(0, 40),
    num_negatives=st.integers(1, 40),
    num_nodes=st.sampled_from([1, 3, 1000]),
    most_known=st.sampled_from([0, 2, 100]),
    seed=SEEDS,
)
def test_scores_that_do_not_count_are_masked(
    num_queries: int, num_negatives: int, num_nodes: int, most_known: int, seed: int
) -> None:
    draws = torch.Generator().manual_seed(seed)
    wanted, negatives = (torch.randint(num_nodes, (count,), generator=draws) for count in (num_queries, num_negatives))
    left_out = some_left_out(wanted, negatives, most_known, num_nodes, draws)
    scores = torch.randn(num_queries, num_negatives, generator=draws)
    masked = scores.masked_fill(is_left_out(left_out, negatives.expand(num_queries, -1)), -torch.inf)
    mask_scores(left_out, scores)
    assert torch.equal(scores, masked)


@needs_products
@examples(25)
# A sum of so many products one after the other rounds by 1e-4.
@example("dot", 1, 1, 20_000, 1, (False, False, 0.0, 0.0), 3, 0, 0)
@given(
    score=st.sampled_from(["dot", "distmult", "complex"]),
    num_edges=st.integers(1, 70),
    chunk_size=st.sampled_from([1, 7, 60, 100]),
    num_negatives=st.one_of(st.integers(1, 40), st.just(20_000)),
    half_dim=st.sampled_from([1, 8, 9, 50]),
    options=st.tuples(st.booleans(), st.booleans(), st.sampled_from([0.0, 0.1]), st.sampled_from([0.0, 0.2])),
    num_nodes=st.sampled_from([1, 3, 1000]),
    most_known=st.sampled_from([0, 2, 100]),
    seed=SEEDS,
)
def test_a_batchs_loss_and_gradients_are_autograds(
    score: ProductScore,
    num_edges: int,
    chunk_size: int,
    num_negatives: int,
    half_dim: int,
    options: tuple[bool, bool, float, float],
    num_nodes: int,
    most_known: int,
    seed: int,
) -> None:
    with_positive, is_reciprocal, l2, n3 = options
    if num_negatives > 100:
        half_dim, chunk_size = 1, 60  # the oracle takes long
    draws, dim, num_relations = torch.Generator().manual_seed(seed), 2 * half_dim, 3
    num_chunks = -(-num_edges // chunk_size)
    # Scores of the size of 1.
    nodes = torch.randn(num_nodes, dim, generator=draws) / dim**0.25
    relations = torch.randn(2 * num_relations, dim, generator=draws)
    if score == "dot":
        relations = torch.empty(0, 0)
    rows = torch.randint(num_nodes, (2 * num_edges + 2 * num_chunks * num_negatives,), generator=draws)
    relation_rows = torch.randint(num_relations, (2, num_edges), generator=draws)
    relation_rows[1] = relation_rows[0] + (num_relations if is_reciprocal else 0)
    numbers = torch.randperm(num_nodes, generator=draws)[rows] * 3
    drawn = numbers[2 * num_edges :].reshape(2, num_chunks, num_negatives)
    of_sides = [
        some_left_out(numbers[(1 - side) * num_edges :][:num_edges], drawn[side, 0], most_known, 3 * num_nodes, draws)
        for side in (0, 1)
    ]
    grads, relation_grads = torch.full((len(rows), dim), 9.0), torch.full((2 * num_edges, dim), 9.0)
    has_relations = score != "dot"
    begins, ends_known = (torch.cat([getattr(each, name) for each in of_sides]) for name in ("begins", "ends"))
    loss = product_gradients(
        score, nodes, relations, rows,
        relation_rows.reshape(-1) if has_relations else NO_ROWS,
        (numbers, of_sides[0].known, of_sides[1].known, begins, ends_known),
        grads, relation_grads if has_relations else torch.empty(0, 0),
        num_edges, chunk_size, num_negatives, with_positive, is_reciprocal, l2, n3, 2,
    )  # fmt: skip

    exact = nodes.double()[rows].requires_grad_()
    by = relations.double()[relation_rows.reshape(-1)].requires_grad_() if has_relations else torch.empty(0, 0)
    ends, others = exact[: 2 * num_edges].view(2, num_edges, dim), exact[2 * num_edges :].view(*drawn.shape, dim)
    total = torch.zeros((), dtype=torch.float64)
    for side in (0, 1):
        of_side = by.view(2, num_edges, dim)[side] if has_relations else None
        queries = queries_of(score, ends[side], of_side, is_tail=side == 0 or is_reciprocal)
        is_none = is_left_out(of_sides[side], drawn[side].repeat_interleave(chunk_size, 0)[:num_edges])
        scores = torch.einsum("ed,ekd->ek", queries, others[side].repeat_interleave(chunk_size, 0)[:num_edges])
        positives = (queries * ends[1 - side]).sum(1)
        candidates = scores.masked_fill(is_none, -torch.inf)
        if with_positive:
            candidates = torch.cat([candidates, positives[:, None]], 1)
        has_any = (candidates > -torch.inf).any(1)
        total = total + (candidates[has_any].logsumexp(1) - positives[has_any]).sum()
    kept_small = l2 / 2 * ends.square().sum() + n3 / 3 * (ends.abs().pow(3).sum() + by.abs().pow(3).sum())
    assert_close(torch.tensor(loss), total.detach())
    wanted = torch.autograd.grad(total + kept_small, (exact, by) if has_relations else (exact,))
    assert_close(grads, wanted[0])
    if has_relations:
        assert_close(relation_grads, wanted[1])

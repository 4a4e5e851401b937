"""Kernels of embeddings are their formulas in float64, with the same bits at any number of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import RowUpdater, contrastive_softmax, distance_scores, distance_scores_backward
from tests.embedding import assert_close

Floats = NDArray[np.float32]
Kind = Literal["l1", "modulus"]

THREADS = (1, 2, 3)
DIMS = st.one_of(st.integers(1, 40), st.sampled_from([64, 100]))
SEEDS = st.integers(0, 2**20)


def assert_same_at_any_threads(compute: Callable[[int], tuple[Floats, ...]]) -> None:
    first = compute(THREADS[0])
    for num_threads in THREADS[1:]:
        for one, other in zip(compute(num_threads), first, strict=True):
            np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))


# -- Adagrad --


@given(
    num_rows=st.integers(1, 50),
    num_named=st.integers(0, 120),
    dim=DIMS,
    by_row=st.booleans(),
    epsilon=st.sampled_from([0.0, 1e-8, 0.1]),
    seed=SEEDS,
)
def test_rows_are_updated_by_the_sum_of_their_gradients(
    num_rows: int, num_named: int, dim: int, by_row: bool, epsilon: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((num_rows, dim), np.float32)
    squares = rng.random((num_rows, 1 if by_row else dim), np.float32) + np.float32(0.01)
    rows = rng.integers(0, num_rows, num_named)
    grads = rng.standard_normal((num_named, dim), np.float32)
    given_grads = grads.copy()

    sums = np.zeros((num_rows, dim))
    np.add.at(sums, rows, grads.astype(np.float64))
    powers = sums**2
    exact_squares = squares + (powers.mean(axis=1, keepdims=True) if by_row else powers)
    exact = values - 0.3 * sums / (np.sqrt(exact_squares) + epsilon)
    RowUpdater(2).update(values, squares, rows, grads, 0.3, epsilon)
    assert_close(squares, exact_squares)
    assert_close(values, exact)
    np.testing.assert_array_equal(grads, given_grads)


def test_element_wise_updates_are_pytorchs() -> None:
    parameter = torch.randn(30, 20).requires_grad_()
    values, squares = parameter.detach().clone(), torch.zeros(30, 20)
    theirs, ours = torch.optim.Adagrad([parameter], lr=0.1, eps=1e-10), RowUpdater(1)
    for _ in range(5):
        rows, grads = torch.randint(30, (50,)), torch.randn(50, 20)
        parameter.grad = torch.zeros(30, 20).index_add(0, rows, grads)
        theirs.step()
        ours.update(values, squares, rows, grads, 0.1, 1e-10)
    torch.testing.assert_close(values, parameter.detach())


@pytest.mark.parametrize("state_columns", [1, 50])
def test_updates_are_the_same_by_any_number_of_threads(state_columns: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((3000, 50), np.float32)
    # Few rows have most gradients.
    rows = (3000 * rng.random(20_000) ** 4).astype(np.int64)
    grads = rng.standard_normal((20_000, 50), np.float32)

    def compute(num_threads: int) -> tuple[Floats, ...]:
        updater, updated, squares = RowUpdater(num_threads), values.copy(), np.zeros((3000, state_columns), np.float32)
        for begin in range(0, 20_000, 5000):
            here = slice(begin, begin + 5000)
            updater.update(updated, squares, rows[here], grads[here], 0.1, 1e-8)
        return updated, squares

    assert_same_at_any_threads(compute)


@pytest.mark.parametrize("state_columns", [1, 20])
def test_a_gradient_of_zero_changes_nothing(state_columns: int) -> None:
    values = np.full((3, 20), -0.0, np.float32)
    squares = np.zeros((3, state_columns), np.float32)
    RowUpdater(1).update(values, squares, np.array([2, 0]), np.zeros((2, 20), np.float32), 0.1, 0.0)
    assert np.signbit(values).all()
    assert not squares.any()


def make_update() -> dict[str, Any]:
    return {
        "values": np.zeros((4, 6), np.float32),
        "squares": np.zeros((4, 6), np.float32),
        "rows": np.array([0, 3, 1]),
        "grads": np.ones((3, 6), np.float32),
    }


BAD_UPDATES: dict[str, tuple[str, Any, str]] = {
    "row too high": ("rows", np.array([0, 4, 1]), "row 4 at position 1 is outside the 4 rows"),
    "row negative": ("rows", np.array([0, 1, -1]), "row -1 at position 2"),
    "rows int32": ("rows", np.array([0, 3, 1], np.int32), "rows must be int64"),
    "rows strided": ("rows", np.zeros(6, np.int64)[::2], "rows must be contiguous"),
    "rows fewer": ("rows", np.array([0, 1]), "row of gradients for each row"),
    "values float64": ("values", np.zeros((4, 6)), "values must be float32"),
    "values strided": ("values", np.zeros((4, 12), np.float32)[:, ::2], "rows must be contiguous"),
    "grads narrower": ("grads", np.ones((3, 5), np.float32), "columns of the values"),
    "grads strided": ("grads", np.ones((6, 6), np.float32)[::2], "rows must be contiguous"),
    "squares fewer": ("squares", np.zeros((3, 6), np.float32), "squares must have"),
    "squares narrower": ("squares", np.zeros((4, 2), np.float32), "squares must have"),
}


@pytest.mark.parametrize("case", BAD_UPDATES)
def test_bad_updates_are_refused_and_change_nothing(case: str) -> None:
    name, bad, words = BAD_UPDATES[case]
    arguments = make_update() | {name: bad.copy() if bad.flags.c_contiguous else bad}
    with pytest.raises(ValueError, match=words):
        RowUpdater(2).update(**arguments, lr=0.1, epsilon=1e-8)
    assert not arguments["values"].any()
    assert not arguments["squares"].any()


# -- softmax --


def run_softmax(
    scores: Floats, positives: Floats, with_positive: bool, num_threads: int = 1
) -> tuple[Floats, Floats, Floats]:
    """Losses, gradients of positives, gradients of negatives."""
    grads, positive_grads, losses = scores.copy(), np.full_like(positives, np.nan), np.full_like(positives, np.nan)
    contrastive_softmax(grads, positives, positive_grads, losses, with_positive, num_threads)
    return losses, positive_grads, grads


@given(
    num_rows=st.integers(0, 20),
    num_negatives=st.one_of(st.integers(1, 70), st.just(1000)),
    scale=st.sampled_from([0.1, 3.0, 300.0]),
    masked=st.sampled_from([0.0, 0.3, 0.95]),
    with_positive=st.booleans(),
    seed=SEEDS,
)
def test_softmax_losses_are_pytorchs(
    num_rows: int, num_negatives: int, scale: float, masked: float, with_positive: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scores = (scale * rng.standard_normal((num_rows, num_negatives))).astype(np.float32)
    positives = (scale * rng.standard_normal(num_rows)).astype(np.float32)
    scores[rng.random(scores.shape) < masked] = -np.inf
    has_terms = np.isfinite(scores).any(axis=1) | with_positive

    exact_scores = torch.from_numpy(scores).double().requires_grad_()
    exact_positives = torch.from_numpy(positives).double().requires_grad_()
    terms = torch.cat([exact_scores, exact_positives[:, None]], dim=1) if with_positive else exact_scores
    exact_losses = torch.where(torch.from_numpy(has_terms), terms.logsumexp(1) - exact_positives, 0.0)
    exact = (exact_losses.detach(), *torch.autograd.grad(exact_losses.sum(), [exact_positives, exact_scores]))
    for ours, theirs in zip(run_softmax(scores, positives, with_positive), exact, strict=True):
        # What is masked in every term has no gradient in PyTorch, not 0.
        assert_close(ours, theirs.nan_to_num())


def test_softmax_is_the_same_by_any_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    scores, positives = rng.standard_normal((300, 501), np.float32), rng.standard_normal(300, np.float32)
    assert_same_at_any_threads(
        lambda num_threads: (
            *run_softmax(scores, positives, False, num_threads),
            *run_softmax(scores, positives, True, num_threads),
        )
    )


@pytest.mark.parametrize("with_positive", [False, True])
def test_rows_of_masked_negatives_have_no_loss(with_positive: bool) -> None:
    losses, positive_grads, grads = run_softmax(
        np.full((2, 20), -np.inf, np.float32), np.array([3, -4], np.float32), with_positive
    )
    assert not losses.any()
    assert not positive_grads.any()
    assert not grads.any()


@pytest.mark.parametrize("with_positive", [False, True])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize("others", [1.0, -np.inf])
def test_scores_that_are_not_finite_show_in_the_loss(others: float, bad: float, with_positive: bool) -> None:
    scores, positives = np.full((3, 20), others, np.float32), np.zeros(3, np.float32)
    scores[0, 3] = scores[1, 18] = positives[2] = bad
    assert not np.isfinite(run_softmax(scores, positives, with_positive)[0]).any()


def test_bad_softmax_arguments_are_refused() -> None:
    scores, row = np.zeros((4, 5), np.float32), np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="one for each row"):
        contrastive_softmax(scores, row, row.copy(), np.zeros(3, np.float32), False, 1)
    with pytest.raises(ValueError, match="scores must be float32"):
        contrastive_softmax(scores.astype(np.float64), row, row.copy(), row.copy(), False, 1)
    with pytest.raises(ValueError, match="rows must be contiguous"):
        contrastive_softmax(scores.T.copy().T, row, row.copy(), row.copy(), False, 1)
    with pytest.raises(ValueError, match="positives must be float32"):
        contrastive_softmax(scores, row.astype(np.float64), row.copy(), row.copy(), False, 1)


# -- distances --


def run_distances(
    queries: Floats, points: Floats, kind: Kind, grads: Floats, num_threads: int = 1
) -> tuple[Floats, Floats, Floats]:
    """Scores, gradients of queries, gradients of points."""
    scores, of_queries, of_points = (np.full_like(array, np.nan) for array in (grads, queries, points))
    distance_scores(queries, points, kind, scores, num_threads)
    distance_scores_backward(queries, points, kind, grads, of_queries, of_points, num_threads)
    return scores, of_queries, of_points


def distances_by_formula(
    queries: Floats, points: Floats, kind: Kind, grads: Floats
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    parts = 1 if kind == "l1" else 2
    # (parts, queries, points, columns)
    differences = queries.astype(np.float64)[:, None] - points.astype(np.float64)
    split = np.stack(np.split(differences, parts, axis=2))
    lengths = np.sqrt((split**2).sum(axis=0))
    directions = np.concatenate(list(split / np.where(lengths == 0, 1, lengths)), axis=2) * grads[:, :, None]
    return -lengths.sum(axis=2), -directions.sum(axis=1), directions.sum(axis=0)


@pytest.mark.parametrize("kind", ["l1", "modulus"])
@given(num_queries=st.integers(1, 20), num_points=st.integers(1, 40), half_dim=DIMS, seed=SEEDS)
def test_distances_are_the_formula(kind: Kind, num_queries: int, num_points: int, half_dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Of few values, so that some differences are 0.
    queries, points = (
        (rng.integers(-4, 5, (num_rows, 2 * half_dim)) / 2).astype(np.float32) for num_rows in (num_queries, num_points)
    )
    grads = rng.standard_normal((num_queries, num_points), np.float32)
    exact = distances_by_formula(queries, points, kind, grads)
    for ours, theirs in zip(run_distances(queries, points, kind, grads), exact, strict=True):
        assert_close(ours, theirs)


@pytest.mark.fast("100", "6")
@pytest.mark.parametrize("kind", ["l1", "modulus"])
@pytest.mark.parametrize("dim", [6, 100, 600])
def test_distances_are_the_same_by_any_number_of_threads(dim: int, kind: Kind) -> None:
    rng = np.random.default_rng(0)
    queries, points, grads = (rng.standard_normal(shape, np.float32) for shape in ((301, dim), (130, dim), (301, 130)))
    assert_same_at_any_threads(lambda num_threads: run_distances(queries, points, kind, grads, num_threads))
    for ours, theirs in zip(
        run_distances(queries, points, kind, grads), distances_by_formula(queries, points, kind, grads), strict=True
    ):
        assert_close(ours, theirs)


@pytest.mark.parametrize("scale", [1e-16, 1e-3, 1e15])
def test_a_modulus_is_right_at_any_size(scale: float) -> None:
    rng = np.random.default_rng(0)
    queries, points = (rng.standard_normal((20, 40), np.float32) * np.float32(scale) for _ in range(2))
    grads = rng.standard_normal((20, 20), np.float32)
    scores, *gradients = run_distances(queries, points, "modulus", grads)
    exact_scores, *exact = distances_by_formula(queries, points, "modulus", grads)
    np.testing.assert_allclose(scores, exact_scores, rtol=1e-5)
    for ours, theirs in zip(gradients, exact, strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize("kind", ["l1", "modulus"])
def test_distances_that_are_no_number_show(kind: Kind) -> None:
    queries, points = np.zeros((2, 4), np.float32), np.zeros((1, 4), np.float32)
    queries[0, 1], queries[1, 2] = np.inf, np.nan
    assert not np.isfinite(run_distances(queries, points, kind, np.ones((2, 1), np.float32))[0]).any()


def test_bad_distance_arguments_are_refused() -> None:
    queries, points, scores = (np.zeros(shape, np.float32) for shape in ((2, 3), (4, 3), (2, 4)))
    with pytest.raises(ValueError, match="kind must be l1 or modulus, got l2"):
        distance_scores(queries, points, "l2", scores, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="complex numbers must have two parts"):
        distance_scores(queries, points, "modulus", scores, 1)
    with pytest.raises(ValueError, match="same number of columns"):
        distance_scores(queries, points[:, :2].copy(), "l1", scores, 1)
    with pytest.raises(ValueError, match="a row for each query"):
        distance_scores(queries, points, "l1", scores.T.copy(), 1)
    with pytest.raises(ValueError, match="scores must be float32"):
        distance_scores(queries, points, "l1", scores.astype(np.float64), 1)
    with pytest.raises(ValueError, match="sizes of what they are gradients of"):
        distance_scores_backward(queries, points, "l1", scores, points.copy(), queries.copy(), 1)

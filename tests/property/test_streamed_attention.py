"""Attention over streamed lists against NumPy in float64: any graph, heads, columns, division into calls, threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import AttendedHead, add_attended_rows, add_attention_norms
from diskhop.errors import FormatError
from tests.examples import examples
from tests.streamed import Lists, block_of, lists

SLOPE = 0.2

Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Scores (sources, heads) and (rows, heads), and values (sources, heads, columns) of each head."""

    source_scores: Floats
    target_scores: Floats
    values: Floats

    @property
    def num_heads(self) -> int:
        return int(self.source_scores.shape[1])

    @property
    def num_columns(self) -> int:
        return int(self.values.shape[2])


def attention_of(case: Lists, num_heads: int, num_columns: int, spread: float = 1.0) -> Attention:
    rng = np.random.default_rng(2)
    return Attention(
        source_scores=spread * rng.standard_normal((case.num_sources, num_heads), np.float32),
        target_scores=spread * rng.standard_normal((case.num_rows, num_heads), np.float32),
        values=rng.standard_normal((case.num_sources, num_heads, num_columns), np.float32),
    )


def norms_of(case: Lists, attention: Attention) -> Floats:
    heads = attention.num_heads
    norms = np.zeros((case.num_rows, 2 * heads + 1), np.float32)[:, : 2 * heads]
    norms[:, :heads] = -np.inf
    # Rows of scores may be any distance apart.
    source_scores = np.hstack([attention.source_scores, attention.source_scores])[:, heads:]
    for rows, indptr, indices, first_edge in case.calls():
        add_attention_norms(
            source_scores,
            attention.target_scores[rows],
            SLOPE,
            indptr,
            indices,
            first_edge,
            norms[rows],
            case.num_threads,
        )
    return norms


def attended_rows(case: Lists, attention: Attention, norms: Floats, heads: list[int], is_padded: bool) -> Floats:
    """Return the sums of these heads' columns, with scores and then the heads' columns in one block."""
    num_scores, num_columns = len(heads), attention.num_columns
    whole_columns = -(-num_columns // 4) * 4
    step = whole_columns if is_padded else num_columns
    first = -(-num_scores // 4) * 4
    width = -(-(first + (len(heads) - 1) * step + whole_columns) // 4) * 4
    block = np.full((case.num_sources, width), np.nan, np.float32)
    attended = []
    for place, head in enumerate(heads):
        column = first + place * step
        block[:, place] = attention.source_scores[:, head]
        block[:, column : column + num_columns] = attention.values[:, head]
        attended.append(
            AttendedHead(
                head=head,
                score_column=place,
                first_column=column,
                num_columns=num_columns,
                out_column=place * num_columns,
            )
        )
    out = np.zeros((case.num_rows, len(heads) * num_columns + 1), np.float32)
    columns = block_of(block)
    for rows, indptr, indices, first_edge in case.calls():
        add_attended_rows(
            columns,
            attended,
            attention.target_scores[rows],
            norms[rows],
            SLOPE,
            indptr,
            indices,
            first_edge,
            out[rows],
            case.num_threads,
        )
    assert not out[:, -1].any()
    return out[:, :-1].reshape(case.num_rows, len(heads), num_columns)


def exact_scores(case: Lists, attention: Attention) -> NDArray[np.float64]:
    """Return scores (edges, heads)."""
    sums = attention.source_scores[case.indices].astype(np.float64) + attention.target_scores[case.targets]
    scores: NDArray[np.float64] = np.maximum(sums, SLOPE * sums)
    return scores


def exact_norms(case: Lists, scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the largest score and the sum of exponentials (rows, heads)."""
    largest = np.full((case.num_rows, scores.shape[1]), -np.inf)
    np.maximum.at(largest, case.targets, scores)
    sums = np.zeros_like(largest)
    np.add.at(sums, case.targets, np.exp(scores - largest[case.targets]))
    return largest, sums


@examples(20)
@given(
    case=lists(),
    num_heads=st.integers(1, 9),
    num_columns=st.one_of(st.integers(1, 20), st.sampled_from([64, 70])),
    spread=st.sampled_from([1.0, 10.0]),
    is_padded=st.booleans(),
    data=st.data(),
)
def test_streamed_attention_equals_attention_in_float64(
    case: Lists, num_heads: int, num_columns: int, spread: float, is_padded: bool, data: st.DataObject
) -> None:
    attention = attention_of(case, num_heads, num_columns, spread)
    scores = exact_scores(case, attention)
    largest, sums = exact_norms(case, scores)
    norms = norms_of(case, attention)
    tolerance = 1e-5 * spread
    np.testing.assert_allclose(norms[:, :num_heads], largest, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(norms[:, num_heads:], sums, rtol=tolerance)

    heads = data.draw(st.lists(st.integers(0, num_heads - 1), min_size=1, max_size=3), label="heads")
    out = attended_rows(case, attention, norms, heads, is_padded)
    for place, head in enumerate(heads):
        weights = np.exp(scores[:, head] - largest[case.targets, head]) / sums[case.targets, head]
        products = weights[:, None] * attention.values[case.indices, head]
        expected = np.zeros((case.num_rows, num_columns))
        sizes = np.zeros_like(expected)
        np.add.at(expected, case.targets, products)
        np.add.at(sizes, case.targets, np.abs(products))
        assert np.all(np.abs(out[:, place] - expected) <= tolerance * sizes)


@examples(20)
@given(case=lists(), num_heads=st.integers(1, 5), num_columns=st.integers(1, 12))
def test_neither_calls_nor_threads_change_a_bit(case: Lists, num_heads: int, num_columns: int) -> None:
    attention = attention_of(case, num_heads, num_columns)
    whole = case.undivided()
    expected = norms_of(whole, attention)
    norms = norms_of(case, attention)
    np.testing.assert_array_equal(norms, expected)
    heads = list(range(num_heads))
    np.testing.assert_array_equal(
        attended_rows(case, attention, norms, heads, True), attended_rows(whole, attention, norms, heads, False)
    )


def with_self_loops(norms: Floats, loops: Floats) -> Floats:
    """Return the norms with a loop of these scores (rows, heads) for every row."""
    largest, sums = np.split(norms, 2, axis=1)
    joint = np.maximum(largest, loops)
    return np.hstack([joint, sums * np.exp(largest - joint) + np.exp(loops - joint)])


@examples(20)
@given(case=lists().filter(lambda case: case.num_sources == case.num_rows), num_heads=st.integers(1, 4))
def test_the_caller_can_add_self_loops(case: Lists, num_heads: int) -> None:
    attention = attention_of(case, num_heads, 6)
    sums = attention.source_scores + attention.target_scores
    loops = np.where(sums > 0, sums, np.float32(SLOPE) * sums)
    norms = with_self_loops(norms_of(case, attention), loops)
    weights = np.exp(loops - norms[:, :num_heads]) / norms[:, num_heads:]
    out = attended_rows(case, attention, norms, list(range(num_heads)), False) + weights[:, :, None] * attention.values

    loop_scores = np.concatenate([exact_scores(case, attention), loops])
    targets = np.concatenate([case.targets, np.arange(case.num_rows)])
    sources = np.concatenate([case.indices.astype(np.int64), np.arange(case.num_rows)])
    exponentials = np.exp(loop_scores)
    totals = np.zeros((case.num_rows, num_heads))
    np.add.at(totals, targets, exponentials)
    products = (exponentials / totals[targets])[:, :, None] * attention.values[sources]
    expected, sizes = np.zeros(out.shape), np.zeros(out.shape)
    np.add.at(expected, targets, products)
    np.add.at(sizes, targets, np.abs(products))
    assert np.all(np.abs(out - expected) <= 1e-5 * sizes)


@examples(20)
@given(
    case=lists(),
    bad=st.sampled_from([np.nan, np.inf, -np.inf]),
    where=st.sampled_from(["source_scores", "target_scores", "values"]),
)
def test_bad_values_reach_their_rows_and_no_others(case: Lists, bad: float, where: str) -> None:
    attention = attention_of(case, 2, 5)
    getattr(attention, where)[0, 1] = bad
    norms = norms_of(case, attention)
    out = attended_rows(case, attention, norms, [0, 1], False)
    is_bad = np.zeros(case.num_rows, np.bool_)
    if where == "target_scores":
        is_bad[0] = case.indptr[1] > 0
    else:
        is_bad[case.targets[case.indices == 0]] = True
    assert np.isfinite(out[:, 0]).all()
    if where == "source_scores" and bad == -np.inf:
        # No attention for this source, unless the row has no other.
        is_bad[case.targets[case.indices != 0]] = False
    assert np.array_equal(~np.isfinite(out[:, 1]).all(axis=1), is_bad)


def test_bad_arguments_are_refused() -> None:
    scores, norms = np.zeros((2, 3), np.float32), np.zeros((2, 6), np.float32)
    sources = np.zeros((5, 3), np.float32)
    indptr, indices = np.array([0, 1, 2]), np.array([0, 5], np.uint32)
    with pytest.raises(FormatError, match="comes from node 5, must be less than 5"):
        add_attention_norms(sources, scores, SLOPE, indptr, indices, 0, norms, 1)
    with pytest.raises(ValueError, match="norms must have two"):
        add_attention_norms(sources, scores, SLOPE, indptr, indices, 0, norms[:, :5], 1)
    with pytest.raises(ValueError, match="rows of the lists"):
        add_attention_norms(sources, scores[:1], SLOPE, indptr, indices, 0, norms, 1)
    with pytest.raises(ValueError, match="columns must be contiguous"):
        add_attention_norms(sources[:, ::2], scores[:, :2], SLOPE, indptr, indices, 0, norms[:, :4], 1)

    block, out = block_of(np.zeros((5, 8), np.float32)), np.zeros((2, 3), np.float32)

    def attend(**changed: int) -> None:
        columns = {"head": 2, "score_column": 0, "first_column": 4, "num_columns": 3, "out_column": 0}
        head = AttendedHead(**{**columns, **changed})
        add_attended_rows(block, [head], scores, norms, SLOPE, indptr, indices, 0, out, 1)

    with pytest.raises(FormatError, match="comes from node 5, must be less than 5"):
        attend()
    with pytest.raises(ValueError, match="one of the target scores"):
        attend(head=3)
    with pytest.raises(ValueError, match="score's column"):
        attend(score_column=8)
    with pytest.raises(ValueError, match="must be in the block"):
        attend(first_column=5)
    with pytest.raises(ValueError, match="must be in out"):
        attend(out_column=1)

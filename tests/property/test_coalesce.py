"""Claims about read plans: they cover what is wanted, stay in bounds, and cost as little as any plan can."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.policies.coalesce import ReadPlan, plan_reads


@st.composite
def tables_and_ids(draw: st.DrawFn, max_ids: int = 40) -> tuple[list[int], int, int, int]:
    """Sorted ids, num_rows, row_bytes, row_stride."""
    row_bytes = draw(st.integers(1, 40))
    row_stride = row_bytes + draw(st.sampled_from([0, 0, 1, 24, 100]))
    num_rows = draw(st.integers(1, 200))
    ids = draw(st.sets(st.integers(0, num_rows - 1), max_size=max_ids))
    return sorted(ids), num_rows, row_bytes, row_stride


def plan(
    case: tuple[list[int], int, int, int], max_gap_bytes: int, alignment: int, max_read_bytes: int = 2**40
) -> ReadPlan:
    ids, num_rows, row_bytes, row_stride = case
    return plan_reads(
        np.array(ids, np.int64),
        num_rows=num_rows,
        row_bytes=row_bytes,
        row_stride=row_stride,
        max_gap_bytes=max_gap_bytes,
        alignment=alignment,
        max_read_bytes=max_read_bytes,
    )


def aligned_span(first: int, last: int, row_bytes: int, row_stride: int, alignment: int) -> tuple[int, int]:
    begin = first * row_stride // alignment * alignment
    return begin, -(-(last * row_stride + row_bytes) // alignment) * alignment


@given(
    case=tables_and_ids(),
    max_gap_bytes=st.sampled_from([-1, 0, 1, 8, 64, 500, 10**6]),
    alignment=st.sampled_from([1, 8, 64, 512]),
    max_read_bytes=st.sampled_from([1, 64, 512, 1024, 2**40]),
)
def test_a_plan_is_that_of_the_rule(
    case: tuple[list[int], int, int, int], max_gap_bytes: int, alignment: int, max_read_bytes: int
) -> None:
    ids, num_rows, row_bytes, row_stride = case
    groups: list[list[int]] = []
    for row in ids:
        if groups and max_gap_bytes >= 0:
            begin, end = aligned_span(groups[-1][0], groups[-1][-1], row_bytes, row_stride, alignment)
            row_begin, row_end = aligned_span(row, row, row_bytes, row_stride, alignment)
            if row_begin - end <= max_gap_bytes and row_end - begin <= max(max_read_bytes, end - begin):
                groups[-1].append(row)
                continue
        groups.append([row])
    reads = plan(case, max_gap_bytes, alignment, max_read_bytes)
    assert reads.num_wanted.tolist() == [len(group) for group in groups]
    assert reads.first_wanted.tolist() == [0, *np.cumsum(reads.num_wanted)][: len(groups)]
    spans = [aligned_span(group[0], group[-1], row_bytes, row_stride, alignment) for group in groups]
    assert reads.offsets.tolist() == [begin for begin, _ in spans]
    assert reads.num_bytes.tolist() == [end - begin for begin, end in spans]
    # Never past the table's last block, and never content with less than what exists.
    table_bytes = num_rows * row_stride
    assert all(end <= -(-table_bytes // alignment) * alignment for _, end in spans)
    assert reads.required_bytes.tolist() == [min(end, table_bytes) - begin for begin, end in spans]


@given(
    case=tables_and_ids(max_ids=9),
    overhead_bytes=st.integers(0, 400),
    alignment=st.sampled_from([1, 16, 64]),
)
def test_no_way_of_merging_costs_less(
    case: tuple[list[int], int, int, int], overhead_bytes: int, alignment: int
) -> None:
    ids, _, row_bytes, row_stride = case
    # In units of one byte's time a read costs overhead_bytes + its bytes: that many are the break-even gap.
    reads = plan(case, overhead_bytes, alignment)
    cost = overhead_bytes * reads.num_reads + reads.total_bytes
    cheapest = float("inf") if ids else 0.0
    for cuts in itertools.product((False, True), repeat=max(0, len(ids) - 1)):
        bounds = [0, *(place + 1 for place, cut in enumerate(cuts) if cut), len(ids)]
        spans = [
            aligned_span(ids[first], ids[after - 1], row_bytes, row_stride, alignment)
            for first, after in itertools.pairwise(bounds)
            if ids
        ]
        cheapest = min(cheapest, sum(overhead_bytes + end - begin for begin, end in spans))
    assert cost == cheapest


@pytest.mark.parametrize("ids", [[10], [-1], [3, 11], [2**62]])
def test_ids_outside_the_table_are_refused(ids: list[int]) -> None:
    with pytest.raises(IndexError, match=f"row {ids[-1]} is outside the table of 10 rows"):
        plan((ids, 10, 4, 4), 0, 1)


@pytest.mark.parametrize("ids", [[3, 3], [4, 2]])
def test_ids_that_do_not_ascend_are_refused(ids: list[int]) -> None:
    with pytest.raises(ValueError, match="must ascend strictly"):
        plan((ids, 10, 4, 4), 0, 1)


@pytest.mark.parametrize(
    ("row_bytes", "row_stride", "alignment", "max_read_bytes"),
    [(0, 4, 1, 9), (5, 4, 1, 9), (4, 4, 3, 9), (4, 4, 0, 9), (4, 4, 1, 0), (4, 2**63, 1, 9)],
)
def test_layouts_that_cannot_be_are_refused(
    row_bytes: int, row_stride: int, alignment: int, max_read_bytes: int
) -> None:
    with pytest.raises(ValueError, match=r"must be|exceeds"):
        plan(([1], 10, row_bytes, row_stride), 0, alignment, max_read_bytes)

"""Rows divided among workers."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from diskhop.predicting.streamed.workers import shares_of
from tests.examples import examples


@examples(200)
@given(
    costs=st.lists(st.integers(0, 50), min_size=1, max_size=200),
    part_rows=st.integers(1, 20),
    count=st.integers(1, 5),
    data=st.data(),
)
def test_shares_are_whole_parts_of_similar_costs(
    costs: list[int], part_rows: int, count: int, data: st.DataObject
) -> None:
    start = part_rows * data.draw(st.integers(0, (len(costs) - 1) // part_rows))
    stop = len(costs)
    before = list(accumulate(costs, initial=0))
    shares = shares_of(start, stop, part_rows, count, lambda row: float(before[row]))
    assert 1 <= len(shares) <= count
    assert [first for first, _ in shares] == [start, *(last for _, last in shares[:-1])]
    assert shares[-1][1] == stop
    assert all(first < last and (first - start) % part_rows == 0 for first, last in shares)
    # A share costs too much by one part at most.
    dearest_part = max(before[min(row + part_rows, stop)] - before[row] for row in range(start, stop, part_rows))
    fair = (before[stop] - before[start]) / count
    assert all(before[last] - before[first] <= fair + dearest_part for first, last in shares)


def test_a_part_is_never_divided() -> None:
    assert shares_of(0, 10, 16, 4, float) == [(0, 10)]

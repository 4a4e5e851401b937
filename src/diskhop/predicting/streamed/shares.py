"""Rows divided among workers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise


def shares_of(start: int, stop: int, part_rows: int, count: int, cost: Callable[[int], float]) -> list[tuple[int, int]]:
    """Divide rows start to stop into at most count shares of whole parts that cost about the same.

    cost: returns what all rows before one cost.
    """
    parts = range(start, stop, part_rows)
    before, total = cost(start), cost(stop) - cost(start)
    wanted = (before + total * number / count for number in range(1, count))
    cuts = (min(stop, start + part_rows * bisect_left(parts, each, key=cost)) for each in wanted)
    return [(first, last) for first, last in pairwise([start, *cuts, stop]) if first < last]

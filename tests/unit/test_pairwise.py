"""Pairwise cases leave no pair of values out, and are few."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests.pairwise import cover_pairs


@pytest.mark.parametrize("sizes", [(3,), (4, 3), (4, 8, 8), (2, 2, 2, 2), (5, 1, 3)])
def test_every_pair_is_chosen_and_few_cases_are(sizes: tuple[int, ...]) -> None:
    cases = list(product(*map(range, sizes)))
    chosen = [cases[position] for position in cover_pairs(cases)]
    for first, second in combinations(range(len(sizes)), 2):
        found = {(case[first], case[second]) for case in chosen}
        assert found == set(product(range(sizes[first]), range(sizes[second])))
    if len(sizes) == 3:
        assert len(chosen) <= 1.5 * max(x * y for x, y in combinations(sizes, 2))

"""Few cases of a product that have every pair of values; the others are slow, so that only `make test-all` runs them.

A test marked `pairwise` has several parameters, and claims the same bits whatever their values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import combinations

import pytest

Case = Sequence[Hashable]


def cover_pairs(cases: Sequence[Case]) -> list[int]:
    """Choose positions of cases in which every two values occur together that do in all; greedy, so not the fewest."""
    missing = set().union(*map(pairs, cases))
    chosen = []
    while missing:
        best = max(range(len(cases)), key=lambda position: len(missing & pairs(cases[position])))
        chosen.append(best)
        missing -= pairs(cases[best])
    return sorted(chosen)


def mark_beyond_pairs(items: Sequence[pytest.Item]) -> None:
    """Mark as slow what a test marked `pairwise` has beyond every pair of its parameters' values."""
    cases: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("pairwise"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for functions in cases.values():
        chosen = cover_pairs([tuple(map(repr, each.callspec.params.values())) for each in functions])
        for position in set(range(len(functions))) - set(chosen):
            functions[position].add_marker("slow")


def pairs(case: Case) -> set[tuple[Hashable, Hashable]]:
    """Return every two values of a case with their positions."""
    return set(combinations(enumerate(case), 2))

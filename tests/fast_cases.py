"""Tests of many cases of one claim: `make test` runs a few of them, `make test-all` all.

`@pytest.mark.fast(3)`: three cases with as many values of the parameters as three can have.
`@pytest.mark.fast("packed", "direct")`: cases whose ids have one of these parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import pytest

from tests.pairwise import pairs

Case = Sequence[Hashable]


def spread(cases: Sequence[Case], count: int) -> list[int]:
    """Choose positions of up to `count` cases: each has the most values and pairs of values that others lack."""
    chosen: list[int] = []
    values: set[tuple[int, Hashable]] = set()
    together: set[tuple[Hashable, Hashable]] = set()
    while len(chosen) < min(count, len(cases)):
        best = max(
            (position for position in range(len(cases)) if position not in chosen),
            key=lambda position: (
                len(set(enumerate(cases[position])) - values),
                len(pairs(cases[position]) - together),
            ),
        )
        chosen.append(best)
        values |= set(enumerate(cases[best]))
        together |= pairs(cases[best])
    return sorted(chosen)


def named(ids: Sequence[str], parts: Sequence[str]) -> list[int]:
    """Return positions of ids that have one of the parts between hyphens; all of them if none has."""
    found = [position for position, each in enumerate(ids) if any(f"-{part}-" in f"-{each}-" for part in parts)]
    return found or list(range(len(ids)))


def mark_slow_cases(items: Sequence[pytest.Item]) -> None:
    """Mark as slow the cases that a test marked `fast` has beyond those it names or counts."""
    tests: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if (
            isinstance(item, pytest.Function)
            and item.get_closest_marker("fast")
            and not item.get_closest_marker("slow")
        ):
            tests[item.nodeid.partition("[")[0]].append(item)
    for functions in tests.values():
        marker = functions[0].get_closest_marker("fast")
        assert marker is not None
        if isinstance(marker.args[0], int):
            chosen = spread([tuple(map(repr, each.callspec.params.values())) for each in functions], marker.args[0])
        else:
            chosen = named([each.callspec.id for each in functions], marker.args)
        for position in set(range(len(functions))) - set(chosen):
            functions[position].add_marker("slow")

"""Fast cases have as many values as their number allows, and a name that no case has leaves none out."""

from __future__ import annotations

from itertools import product

import pytest

from tests.fast_cases import named, spread


@pytest.mark.parametrize("sizes", [(5,), (4, 3), (2, 2, 6)])
def test_as_many_cases_as_a_parameter_has_values_have_every_value(sizes: tuple[int, ...]) -> None:
    cases = list(product(*map(range, sizes)))
    chosen = [cases[position] for position in spread(cases, max(sizes))]
    assert len(chosen) == max(sizes)
    assert [len(set(values)) for values in zip(*chosen, strict=True)] == list(sizes)


def test_no_more_cases_are_chosen_than_there_are() -> None:
    assert spread([("a",), ("b",)], 3) == [0, 1]
    assert spread([("a",), ("b",), ("c",)], 2) == [0, 1]


def test_parts_of_ids_name_cases() -> None:
    ids = ["packed-1", "direct-1", "direct-16", "belady packed-1"]
    assert named(ids, ["packed"]) == [0]
    assert named(ids, ["packed", "direct-1"]) == [0, 1]
    assert named(ids, ["16"]) == [2]
    assert named(ids, ["absent"]) == [0, 1, 2, 3]

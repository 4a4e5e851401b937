"""Batches shared out among processes: each once, as many for each, the last round filled from the first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.errors import ConfigError
from diskhop.loaders.shares import LoaderShare, PassNumbers
from diskhop.runtime.ranks import ONE, Ranks


def shares_of(num_batches: int, count: int) -> list[PassNumbers]:
    return [PassNumbers.of(Ranks(rank, count, 0, 1), num_batches) for rank in range(count)]


@given(num_batches=st.integers(0, 40), count=st.integers(1, 9))
def test_all_processes_get_as_many_batches_and_together_each_batch(num_batches: int, count: int) -> None:
    shares = shares_of(num_batches, count)
    lengths = {len(share) for share in shares}
    assert lengths == {-(-num_batches // count)}
    taken = [share.at(range(len(share))) for share in shares]
    # Round after round, as training does: first all batches in their order, then the first ones again.
    in_rounds = [numbers[place] for place in range(lengths.pop()) for numbers in taken]
    assert in_rounds == [number % num_batches for number in range(len(in_rounds))]


@given(num_batches=st.integers(1, 40), count=st.integers(1, 9))
def test_a_pass_that_was_suspended_continues_at_its_place(num_batches: int, count: int) -> None:
    for share in shares_of(num_batches, count):
        numbers = list(share.at(range(len(share))))
        assert [share.place_of(number) for number in numbers] == list(range(len(numbers)))
        for place in range(len(numbers) + 1):
            assert list(share.at(range(place, len(numbers)))) == numbers[place:]
            assert list(share.at([each for each in range(len(numbers)) if each != place])) == [
                number for number in numbers if share.place_of(number) != place
            ]


def test_numbers_of_a_process_alone_take_no_memory() -> None:
    assert PassNumbers.of(ONE, 10**9).at(range(5, 10**9)) == range(5, 10**9)


def test_replicas_are_those_of_torch() -> None:
    assert LoaderShare("NeighborLoader", None, None).ranks == ONE
    share = LoaderShare("NeighborLoader", 3, 2)
    assert (share.ranks.rank, share.ranks.count, share.peers) == (2, 3, None)
    assert LoaderShare("NeighborLoader", 1, None).ranks == ONE


@pytest.mark.parametrize(("num_replicas", "rank"), [(0, 0), (2, 2), (2, -1), ("2", 0), (2, None), (None, 0)])
def test_replicas_that_cannot_be_are_refused(num_replicas: object, rank: object) -> None:
    with pytest.raises(ConfigError, match=r"num_replicas|rank"):
        LoaderShare("NeighborLoader", num_replicas, rank)

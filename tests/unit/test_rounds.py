"""Schedules of ranks: every bucket once, by a rank that has it, and never one partition in two ranks at a time."""

from __future__ import annotations

from itertools import accumulate, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.errors import ConfigError
from diskhop.policies.orderings import State, searched_states
from diskhop.policies.rounds import group_rounds, meeting_states, schedule_ranks
from diskhop.policies.schedule import Schedule, buckets_of_ranks, prefetchable_share, schedule_of_pass


def schedule(num_ranks: int, group: int, capacity: int) -> Schedule:
    owned = 2 * group
    order = [tuple(range(owned))] if owned <= capacity else searched_states(owned, capacity)
    return schedule_ranks(num_ranks * owned, num_ranks, min(capacity, owned), order)


def held_in_round(states: tuple[State, ...], start: int, end: int) -> set[int]:
    return {partition for state in states[start:end] for partition in state}


def assert_trains_all_once(found: Schedule, num_partitions: int, capacity: int) -> None:
    assert len({len(states) for states in found.states}) == 1
    assert all(len(set(state)) == len(state) <= capacity for states in found.states for state in states)
    ends = list(accumulate(found.rounds))
    for start, end in zip([0, *ends], ends, strict=False):
        held = [held_in_round(states, start, end) for states in found.states]
        assert sum(map(len, held)) == len(set().union(*held)) == num_partitions
    trained = []
    for states, by_state in zip(found.states, buckets_of_ranks(found), strict=True):
        for state, buckets in zip(states, by_state, strict=True):
            trained += [*buckets.leaving, *buckets.staying]
            assert {end for bucket in (*buckets.leaving, *buckets.staying) for end in bucket} <= set(state)
    assert sorted(trained) == list(product(range(num_partitions), repeat=2))


@given(num_ranks=st.integers(1, 7), group=st.integers(1, 4), capacity=st.integers(2, 6), number=st.integers(0, 3))
def test_every_bucket_is_trained_once_and_no_partition_is_in_two_ranks(
    num_ranks: int, group: int, capacity: int, number: int
) -> None:
    found = schedule(num_ranks, group, capacity)
    assert_trains_all_once(found, 2 * group * num_ranks, capacity)
    assert_trains_all_once(schedule_of_pass(found, number, seed=3), 2 * group * num_ranks, capacity)


@pytest.mark.parametrize("num_ranks", range(1, 17))
def test_two_groups_meet_in_one_round_and_ranks_keep_one_group(num_ranks: int) -> None:
    rounds = group_rounds(num_ranks)
    met = [tuple(sorted(pair)) for pairs in rounds for pair in pairs]
    assert len(rounds) == 2 * num_ranks - 1
    assert len(met) == len(set(met)) == num_ranks * (2 * num_ranks - 1)
    for before, after in pairwise(rounds):
        assert all(kept in pair for pair, (kept, _) in zip(before, after, strict=True))


@given(kept=st.integers(1, 8), loaded=st.integers(1, 8), capacity=st.integers(2, 9))
def test_two_groups_meet_with_one_swap_a_state(kept: int, loaded: int, capacity: int) -> None:
    one, other = range(kept), range(kept, kept + loaded)
    states = meeting_states(one, other, capacity)
    assert {pair for state in states for pair in product(state, repeat=2)} >= set(product(one, other))
    assert all(len(set(before) - set(after)) == 1 for before, after in pairwise(states))
    assert set(states[0]) >= set(range(min(kept, capacity - 1)))


def test_a_pass_starts_with_what_each_rank_has_in_memory() -> None:
    found = schedule(3, 2, 3)
    passes = [schedule_of_pass(found, number, seed=5) for number in range(4)]
    for before, after in pairwise(passes):
        for ended, started in zip(before.states, after.states, strict=True):
            assert set(ended[-1]) <= set(started[0])
    assert len({each.states for each in passes}) == 4


def test_ranks_wait_for_each_other_between_rounds_alone() -> None:
    """Two ranks of two groups of two: three states, then two rounds of two; half of the swaps are within rounds."""
    found = schedule(2, 2, 3)
    assert found.rounds == (3, 2, 2)
    assert found.round_ends == {2, 4, 6}
    assert prefetchable_share(found) <= 4 / 6


@pytest.mark.parametrize(("num_partitions", "fits"), [(3, 4), (6, 8), (1, 4)])
def test_partitions_that_ranks_cannot_share_are_refused(num_partitions: int, fits: int) -> None:
    with pytest.raises(ConfigError, match=f"a multiple of 4 partitions.*use --partitions {fits}"):
        schedule_ranks(num_partitions, 2, 2, [])

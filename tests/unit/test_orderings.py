"""Claims about orders of partitions: all buckets once, one swap a state, the papers' counts, swaps with work beside."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest

from diskhop.errors import ConfigError
from diskhop.policies.orderings import (
    ORDERS,
    State,
    beta_states,
    cover_states,
    legend_states,
    search_states,
    searched_states,
)
from diskhop.policies.schedule import (
    Schedule,
    StateBuckets,
    buckets_of_ranks,
    prefetchable_share,
    schedule_of_pass,
    staying_share,
)

EVERY_COUNT = range(4, 65)
# DESIGN, section 7.
LOWER_BOUNDS = {6: 7, 8: 14, 10: 22, 12: 33, 14: 45, 16: 60, 20: 95}
BETA_COUNTS = {6: 8, 8: 15, 10: 24, 12: 35, 14: 48, 16: 63, 20: 99}
LEGEND_COUNTS = {6: 8, 8: 16, 10: 24, 12: 36, 14: 50, 16: 66}
# By lines 16 and 17 of Algorithm 1 a partition that was just loaded leaves once.
LEGEND_LEAVES_AT_ONCE = {14, 38, 47}
SEARCHED_AT_MOST = {6: 8, 8: 14, 10: 22, 12: 33, 14: 47, 16: 63, 20: 100}


def fewest_states(num_partitions: int) -> int:
    """A lower bound for a buffer of three: a swap brings at most two new pairs."""
    return 1 + -(-(num_partitions * (num_partitions - 1) // 2 - 3) // 2)


def density_that_hides_io(dim: int, buffer_bytes: float, seconds_per_edge: float, bytes_per_second: float) -> float:
    """Edges over nodes squared, from which training takes longer than the swaps (Legend, Theorem 3)."""
    return 96 * dim**2 / (buffer_bytes * seconds_per_edge * bytes_per_second)


def buckets_by_state(states: Sequence[State]) -> list[StateBuckets]:
    return buckets_of_ranks(Schedule.of_one(states))[0]


def share_of(states: list[State]) -> float:
    return prefetchable_share(Schedule.of_one(states))


def states_of_pass(states: list[State], number: int, seed: int) -> list[State]:
    return list(schedule_of_pass(Schedule.of_one(states), number, seed).states[0])


def assert_covers(states: list[State], num_partitions: int, capacity: int) -> None:
    assert all(len(set(state)) == len(state) == capacity for state in states)
    assert {each for state in states for each in state} == set(range(num_partitions))
    met = {pair for state in states for pair in combinations(sorted(state), 2)}
    assert len(met) == num_partitions * (num_partitions - 1) // 2


def assert_one_swap_a_state(states: list[State]) -> None:
    assert all(len(set(before) - set(after)) == 1 for before, after in pairwise(states))


def count_leaving_at_once(states: list[State]) -> int:
    """Return how often a partition that was just loaded is the next to leave."""
    triples = zip(states, states[1:], states[2:], strict=False)
    return sum(not set(second) - set(first) <= set(third) for first, second, third in triples)


@pytest.mark.fast(30)
@pytest.mark.parametrize("name", ["legend", "searched"])
@pytest.mark.parametrize("num_partitions", EVERY_COUNT)
def test_orders_for_three_meet_every_rule(name: str, num_partitions: int) -> None:
    states = ORDERS[name](num_partitions, 3)
    assert_covers(states, num_partitions, 3)
    assert_one_swap_a_state(states)
    assert count_leaving_at_once(states) == (name == "legend" and num_partitions in LEGEND_LEAVES_AT_ONCE)
    assert len(states) >= fewest_states(num_partitions)


@pytest.mark.parametrize("num_partitions", EVERY_COUNT)
@pytest.mark.parametrize("capacity", [2, 3, 4])
def test_beta_covers_with_one_swap_a_state(num_partitions: int, capacity: int) -> None:
    states = beta_states(num_partitions, capacity)
    assert_covers(states, num_partitions, capacity)
    assert_one_swap_a_state(states)
    if capacity == 3 and num_partitions % 2 == 0:
        assert len(states) == num_partitions**2 // 4 - 1


def test_counts_are_those_of_the_papers() -> None:
    assert {count: fewest_states(count) for count in LOWER_BOUNDS} == LOWER_BOUNDS
    assert {count: len(beta_states(count)) for count in BETA_COUNTS} == BETA_COUNTS
    assert {count: len(legend_states(count)) for count in LEGEND_COUNTS} == LEGEND_COUNTS
    for count, most in SEARCHED_AT_MOST.items():
        assert len(searched_states(count)) <= most


def test_every_swap_of_ours_is_prefetchable_where_it_must_be() -> None:
    assert all(share_of(searched_states(count)) == 1 for count in (8, 10, 12))


def test_legend_has_few_swaps_that_are_not_prefetchable() -> None:
    """4 of 36 with 12 partitions, says section 4; BETA trains half as much while partitions are read."""
    assert share_of(legend_states(12)) >= 32 / 36
    legend, beta = (Schedule.of_one(states) for states in (legend_states(12), beta_states(12)))
    assert staying_share(beta) < 0.55 * staying_share(legend)
    assert prefetchable_share(beta) < 2 / 3


@pytest.mark.parametrize(("num_partitions", "num_states"), [(4, 1), (16, 20), (64, 336)])
def test_cover_brings_each_pair_together_once(num_partitions: int, num_states: int) -> None:
    states = cover_states(num_partitions)
    assert_covers(states, num_partitions, 4)
    assert len(states) == num_states
    pairs = [pair for state in states for pair in combinations(state, 2)]
    assert len(pairs) == len(set(pairs))
    assert sum(map(len, states)) == 4 * num_states  # 80 loads with 16


@pytest.mark.parametrize("capacity", [2, 4, 5])
@pytest.mark.parametrize("num_partitions", [5, 6, 9, 16])
def test_any_buffer_has_an_order(num_partitions: int, capacity: int) -> None:
    states = searched_states(num_partitions, capacity)
    assert_covers(states, num_partitions, capacity)
    assert_one_swap_a_state(states)
    assert searched_states(num_partitions, capacity) == states


@pytest.mark.parametrize("num_partitions", [2, 3, 4, 5])
def test_a_buffer_for_all_needs_no_swap(num_partitions: int) -> None:
    assert searched_states(num_partitions, num_partitions) == [tuple(range(num_partitions))]


def test_more_attempts_never_give_a_longer_order() -> None:
    lengths = [len(search_states(13, 3, attempts)) for attempts in (1, 5, 25)]
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("name", ORDERS)
def test_every_bucket_is_trained_once_by_a_state_that_has_it(name: str) -> None:
    states = ORDERS[name](16, 4 if name == "cover" else 3)
    by_state = buckets_by_state(states)
    buckets = [bucket for each in by_state for bucket in (*each.leaving, *each.staying)]
    assert sorted(buckets) == [(i, j) for i in range(16) for j in range(16)]
    for state, each in zip(states, by_state, strict=True):
        assert {end for bucket in (*each.leaving, *each.staying) for end in bucket} <= set(state)
    for (state, next_state), each in zip(pairwise(states), by_state, strict=False):
        gone = set(state) - set(next_state)
        assert all(gone & set(bucket) for bucket in each.leaving)
        assert not any(gone & set(bucket) for bucket in each.staying)


def test_buckets_wait_for_a_state_in_which_less_is_trained_while_a_partition_is_read() -> None:
    first, second, third = buckets_by_state([(0, 1, 2), (0, 2, 3), (0, 2, 4)])
    assert first.leaving == ((0, 1), (1, 0), (1, 1), (1, 2), (2, 1))
    assert first.staying == ((0, 0), (2, 2))
    assert second.leaving == ((0, 3), (2, 3), (3, 0), (3, 2), (3, 3))
    assert second.staying == ((0, 2), (2, 0))
    assert third.staying == ((0, 4), (2, 4), (4, 0), (4, 2), (4, 4))


@pytest.mark.parametrize("num_partitions", [8, 10, 12, 14, 16])
def test_something_is_trained_during_every_read_of_legends_order(num_partitions: int) -> None:
    """As long as two buckets take, says the proof of Theorem 3; trained where they meet first, some reads had none."""
    by_state = buckets_by_state(legend_states(num_partitions))[:-1]
    num_staying = [len(each.staying) for each in by_state]
    assert min(num_staying) >= (2 if num_partitions in (8, 10) else 1)
    assert sum(each >= 2 for each in num_staying) >= len(by_state) - 2
    assert max(num_staying) <= 3
    assert sum(num_staying) / num_partitions**2 >= 0.54


@pytest.mark.parametrize(
    ("name", "capacity"), [("searched", 3), ("searched", 2), ("legend", 3), ("beta", 3), ("cover", 4)]
)
def test_every_epoch_begins_with_what_is_in_memory_and_has_other_roles(name: str, capacity: int) -> None:
    order = ORDERS[name](16, capacity)
    epochs = [states_of_pass(order, number, seed=5) for number in range(6)]
    for before, after in pairwise(epochs):
        assert set(before[-1]) == set(after[0])
        assert_covers(after, 16, capacity)
        assert list(map(len, after)) == list(map(len, order))
    assert len({tuple(states) for states in epochs}) == 6
    assert states_of_pass(order, 3, seed=5) == epochs[3] != states_of_pass(order, 3, seed=6)


def test_theorem_3_at_the_papers_own_figures() -> None:
    """15 GB, 100 dimensions, 1e-7 s an edge, 2 and 3 GB/s: about 1e-7."""
    assert density_that_hides_io(100, 15e9, 1e-7, 5e9) == pytest.approx(1.28e-7)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (lambda: cover_states(12), "order 'cover' is for 4, 16 or 64 partitions, got 12"),
        (lambda: searched_states(2), "a buffer of 3 needs at least 3 partitions, got 2; use --buffer 2"),
        (lambda: searched_states(8, 1), "a buffer must have at least 2 partitions, got 1; use --buffer 2"),
    ],
)
def test_what_has_no_order_is_refused(order: object, message: str) -> None:
    assert callable(order)
    with pytest.raises(ConfigError, match=message):
        order()

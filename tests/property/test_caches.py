"""Cache policies against brute force and against each other, on any trace."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop._native import NEVER_USED, BeladyCache, NextUses
from diskhop.policies.belady import CacheChanges, plan_span
from diskhop.policies.static import most_accessed
from diskhop.protocols import NodeIds
from tests.examples import examples
from tests.replays import replay_belady, replay_static

NUM_ROWS = 7
PAPER_LIKE = [[0, 1, 2], [3, 4], [0, 5], [1, 3], [2, 4], [5, 0], [6, 1]]


def as_trace(batches: list[list[int]]) -> list[NodeIds]:
    return [np.array(batch, np.int64) for batch in batches]


def traces(num_rows: int = NUM_ROWS, most_batches: int = 6) -> st.SearchStrategy[list[list[int]]]:
    batch = st.lists(st.integers(0, num_rows - 1), unique=True, max_size=num_rows)
    return st.lists(batch, max_size=most_batches)


def next_use(trace: list[list[int]], row: int, after: int) -> float:
    return next((number for number in range(after + 1, len(trace)) if row in trace[number]), float("inf"))


def fewest_misses(trace: list[list[int]], held: frozenset[int], capacity: int) -> int:
    """Find the fewest misses by trying every choice of rows to hold after each batch."""
    reached = {held: 0}
    for batch in trace:
        after: dict[frozenset[int], int] = {}
        for state, misses in reached.items():
            now = misses + len(set(batch) - state)
            candidates = state | set(batch)
            for count in range(min(capacity, len(candidates)) + 1):
                for kept in map(frozenset, combinations(sorted(candidates), count)):
                    after[kept] = min(after.get(kept, now), now)
        reached = after
    return min(reached.values())


def simulated(trace: list[list[int]], capacity: int, fills: bool) -> list[set[int]]:
    """Return the rows that Belady's rule holds before the first batch and after each, by sorting all candidates."""

    def chosen(candidates: set[int], held: set[int], number: int) -> set[int]:
        used = [row for row in candidates if next_use(trace, row, number) != float("inf")]
        order = sorted(used, key=lambda row: (next_use(trace, row, number), row not in held, row))
        return set(order[:capacity])

    states = [chosen(set(range(NUM_ROWS)), set(), -1) if fills else set()]
    for number, batch in enumerate(trace):
        states.append(chosen(states[-1] | set(batch), states[-1], number))
    return states


def lru_misses(trace: list[list[int]], first: set[int], capacity: int) -> int:
    held = OrderedDict.fromkeys(sorted(first))
    misses = 0
    for batch in trace:
        for row in batch:
            misses += row not in held
            held[row] = None
            held.move_to_end(row)
            if len(held) > capacity:
                held.popitem(last=False)
    return misses


def lfu_misses(trace: list[list[int]], first: set[int], capacity: int) -> int:
    held, counts, misses = set(first), dict.fromkeys(range(NUM_ROWS), 0), 0
    for batch in trace:
        for row in batch:
            misses += row not in held
            counts[row] += 1
            held.add(row)
            if len(held) > capacity:
                held.remove(min(held, key=lambda each: (counts[each], each)))
    return misses


@pytest.mark.parametrize(("capacity", "misses"), [(2, 9), (3, 7), (4, 5)])
def test_the_known_trace(capacity: int, misses: int) -> None:
    counts = replay_belady(as_trace(PAPER_LIKE), NUM_ROWS, capacity, span=len(PAPER_LIKE), fills=True)
    assert (counts.misses, counts.filled) == (misses, capacity)


@examples(60)
@given(traces(5, 5), st.integers(0, 4), st.booleans())
def test_misses_are_the_fewest_of_all_ways(trace: list[list[int]], capacity: int, fills: bool) -> None:
    counts = replay_belady(as_trace(trace), NUM_ROWS, capacity, span=max(1, len(trace)), fills=fills)
    first = frozenset(simulated(trace, capacity, fills)[0])
    assert counts.misses == fewest_misses(trace, first, capacity)
    assert counts.filled == len(first)


@given(traces(NUM_ROWS, 12), st.integers(0, NUM_ROWS))
def test_a_fill_costs_what_it_saves(trace: list[list[int]], capacity: int) -> None:
    """Reads are as many with it as without."""
    with_fill, without = (
        replay_belady(as_trace(trace), NUM_ROWS, capacity, span=max(1, len(trace)), fills=fills)
        for fills in (True, False)
    )
    assert with_fill.rows_read == without.rows_read


def changes_of(cache: BeladyCache, trace: list[NodeIds], num_rows: int, fills: bool) -> Iterator[CacheChanges]:
    return plan_span(cache, trace.__getitem__, len(trace), num_rows, fills=fills, next_uses=[])


@given(traces(NUM_ROWS, 12), st.integers(1, NUM_ROWS), st.booleans())
def test_rows_that_are_held_are_those_of_the_rule(trace: list[list[int]], capacity: int, fills: bool) -> None:
    cache = BeladyCache(NUM_ROWS, capacity)
    held: set[int] = set()
    batches = [list(range(NUM_ROWS)), *trace]
    useful = simulated(trace, capacity, fills)
    for number, change in enumerate(changes_of(cache, as_trace(trace), NUM_ROWS, fills)):
        coming = {batches[number][position] for position in change.in_positions}
        gone = set(change.out_ids.tolist())
        assert change.num_hits == len(held & set(batches[number]))
        assert gone <= held
        assert not coming & held
        held = (held - gone) | coming
        # Others are held only where there is room, and are not used again.
        assert useful[number] <= held
        assert all(next_use(trace, row, number - 1) == float("inf") for row in held - useful[number])
        assert len(cache) == len(held) <= capacity
        # What goes makes room.
        assert not gone or len(held) == capacity


@given(traces(NUM_ROWS, 12), st.integers(1, NUM_ROWS))
def test_no_other_policy_misses_less(trace: list[list[int]], capacity: int) -> None:
    first = simulated(trace, capacity, True)[0]
    belady = replay_belady(as_trace(trace), NUM_ROWS, capacity, span=max(1, len(trace)), fills=True)
    assert belady.misses <= lru_misses(trace, first, capacity)
    assert belady.misses <= lfu_misses(trace, first, capacity)
    for held in combinations(range(NUM_ROWS), capacity):
        static = replay_static(as_trace(trace), np.array(held, np.int64))
        assert belady.rows_read <= static.rows_read


@given(traces(NUM_ROWS, 12))
def test_misses_never_rise_with_capacity(trace: list[list[int]]) -> None:
    counts = [
        replay_belady(as_trace(trace), NUM_ROWS, capacity, span=max(1, len(trace)), fills=False)
        for capacity in range(NUM_ROWS + 1)
    ]
    assert all(more.misses <= fewer.misses for fewer, more in pairwise(counts))


@given(traces(NUM_ROWS, 12), st.integers(0, NUM_ROWS), st.integers(1, 5), st.booleans())
def test_the_cache_goes_along_from_span_to_span(trace: list[list[int]], capacity: int, span: int, fills: bool) -> None:
    """Only rows that are not held are read: shorter spans can cost reads, but never read a row twice in one span."""
    counts = replay_belady(as_trace(trace), NUM_ROWS, capacity, span=span, fills=fills)
    assert counts.hits + counts.misses == sum(map(len, trace))
    whole = replay_belady(as_trace(trace), NUM_ROWS, capacity, span=max(1, len(trace)), fills=fills)
    assert whole.rows_read <= counts.rows_read
    if capacity == NUM_ROWS:
        assert counts.rows_read == len({row for batch in trace for row in batch})


def test_random_traces_of_many_rows_are_as_sorting_says() -> None:
    """Large enough for every branch: buckets that go whole, in part, rows given and held."""
    generator = np.random.default_rng(0)
    num_rows, capacity = 300, 60
    weights = 1 / np.arange(1, num_rows + 1)
    trace = [
        generator.choice(num_rows, 80, replace=False, p=weights / weights.sum()).astype(np.int64) for _ in range(40)
    ]
    lists = [batch.tolist() for batch in trace]
    held: set[int] = set()
    cache = BeladyCache(num_rows, capacity)
    changes = changes_of(cache, trace, num_rows, True)
    next(changes)
    uses = {
        row: [number for number, batch in enumerate(lists) if row in batch] + [NEVER_USED] for row in range(num_rows)
    }
    order = sorted(range(num_rows), key=lambda row: (uses[row][0], row))
    held = {row for row in order[:capacity] if uses[row][0] != NEVER_USED}
    for number, change in enumerate(changes):
        after = {row: next(use for use in uses[row] if use > number) for row in range(num_rows)}
        candidates = [row for row in held | set(lists[number]) if after[row] != NEVER_USED]
        wanted = set(sorted(candidates, key=lambda row: (after[row], row not in held, row))[:capacity])
        coming = {lists[number][position] for position in change.in_positions}
        held = (held | coming) - set(change.out_ids.tolist())
        assert wanted <= held
        assert all(after[row] == NEVER_USED for row in held - wanted)


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 15))
def test_most_accessed_is_a_sort(counts: list[int], capacity: int) -> None:
    order = sorted((row for row in range(len(counts)) if counts[row]), key=lambda row: (-counts[row], row))
    assert most_accessed(np.array(counts, np.int64), capacity).tolist() == sorted(order[:capacity])


def test_what_breaks_a_rule_is_refused() -> None:
    uses = NextUses(4, 2)
    with pytest.raises(IndexError, match="row 4 is outside the table of 4 rows"):
        uses.look_back(np.array([0, 4]))
    last = uses.look_back(np.array([0, 1]))
    first = uses.look_back(np.array([1, 2]))
    assert last.tolist() == [NEVER_USED, NEVER_USED]
    assert first.tolist() == [1, NEVER_USED]
    with pytest.raises(RuntimeError, match="looked back over"):
        uses.look_back(np.array([3]))
    cache = BeladyCache(4, 2)
    cache.begin(uses, 2, True)
    with pytest.raises(ValueError, match="same length"):
        cache.step(np.array([1, 2]), first[:1])
    with pytest.raises(ValueError, match="later batch of the span"):
        cache.step(np.array([1, 2]), np.array([0, 1], np.uint32))
    with pytest.raises(ValueError, match="earlier next uses"):
        cache.step(np.array([2]), first[1:])
    assert cache.step(np.array([1, 2]), first)[2] == 2
    cache.step(np.array([0, 1]), last)
    with pytest.raises(RuntimeError, match="stepped over"):
        cache.step(np.array([0, 1]), last)

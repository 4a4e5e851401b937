"""Schedules of partitions: the states that each rank goes through in a pass, and the buckets that it trains in them.

One process is one rank with one round. With several ranks, a pass is a sequence of *rounds* (rounds.py): within a round
no partition belongs to two ranks, and ranks wait for each other between rounds. States and buckets: see orderings.py.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations_with_replacement, pairwise

from diskhop.policies.orderings import Bucket, State


@dataclass(frozen=True, slots=True)
class Schedule:
    """States of all ranks in a pass.

    states: states of each rank in the order of training; as many for every rank.
    rounds: number of states of each round.
    """

    states: tuple[tuple[State, ...], ...]
    rounds: tuple[int, ...]

    @staticmethod
    def of_one(states: Sequence[State]) -> Schedule:
        """Return the schedule of one rank."""
        return Schedule((tuple(states),), (len(states),))

    @property
    def num_states(self) -> int:
        """Number of states per rank."""
        return sum(self.rounds)

    @property
    def round_ends(self) -> frozenset[int]:
        """Numbers of the states that end a round."""
        return frozenset(end - 1 for end in accumulate(self.rounds))

    @property
    def num_loads(self) -> int:
        """Partitions that all ranks load during a pass, besides those of their first states."""
        return sum(len(set(after) - set(before)) for states in self.states for before, after in pairwise(states))


@dataclass(frozen=True, slots=True)
class StateBuckets:
    """Buckets that a state trains.

    leaving: buckets with a partition that is not in the next state; trained first.
    staying: the other buckets.
    """

    leaving: tuple[Bucket, ...]
    staying: tuple[Bucket, ...]


def schedule_of_pass(schedule: Schedule, number: int, seed: int) -> Schedule:
    """Return a schedule with other roles for the partitions in every pass; ranks start with those in their memory.

    With the same roles an edge would meet the same partitions in every pass, and negatives from no others.
    """
    partitions = sorted({partition for states in schedule.states for state in states for partition in state})
    roles: dict[int, int] = {}
    for each in range(number + 1):
        draws = random.Random(f"{seed} {each}")
        residents = [[roles[partition] for partition in states[-1]] if roles else [] for states in schedule.states]
        others = [partition for partition in partitions if not any(partition in resident for resident in residents)]
        for resident in residents:
            draws.shuffle(resident)
        draws.shuffle(others)
        # The first roles of a rank go to the partitions in its memory.
        first = [
            role for states, kept in zip(schedule.states, residents, strict=True) for role in states[0][: len(kept)]
        ]
        first += [
            role for states, kept in zip(schedule.states, residents, strict=True) for role in states[0][len(kept) :]
        ]
        first += [partition for partition in partitions if partition not in first]
        roles = dict(zip(first, [*(one for resident in residents for one in resident), *others], strict=True))
    return Schedule(
        tuple(tuple(tuple(roles[role] for role in state) for state in states) for states in schedule.states),
        schedule.rounds,
    )


def buckets_of_ranks(schedule: Schedule) -> list[list[StateBuckets]]:
    """Return the buckets that each rank trains in each state, every bucket once.

    Two partitions may be in memory together for several states. Their buckets are trained in one in which both stay
    while another partition is read, if there is one, and there in the state with the fewest such buckets. Legend's
    Algorithm 2 trains them in the last one, others in the first one: both leave some reads without training meanwhile.
    """
    trained: set[Bucket] = set()
    found: list[list[StateBuckets]] = [[] for _ in schedule.states]
    end = 0
    for length in schedule.rounds:
        start, end = end, end + length
        # Ranks of a round have no partition in common, so one after the other finds what all find at once.
        for states, buckets in zip(schedule.states, found, strict=True):
            buckets += _buckets_of_round(states, start, end, trained)
    return found


def prefetchable_share(schedule: Schedule) -> float:
    """Return the share of swaps that are prefetchable; 1 if there are no swaps. Those between rounds are not."""
    ends = schedule.round_ends
    swaps = [
        bool(buckets.staying) and number not in ends
        for by_state in buckets_of_ranks(schedule)
        for number, buckets in enumerate(by_state[:-1])
    ]
    return sum(swaps) / len(swaps) if swaps else 1.0


def staying_share(schedule: Schedule) -> float:
    """Return the share of all buckets that are trained without partitions that leave, while others are prefetched."""
    ends = schedule.round_ends
    by_state = [
        buckets
        for of_rank in buckets_of_ranks(schedule)
        for number, buckets in enumerate(of_rank[:-1])
        if number not in ends
    ]
    num_partitions = len({each for states in schedule.states for state in states for each in state})
    return sum(len(buckets.staying) for buckets in by_state) / num_partitions**2


def _buckets_of_round(states: Sequence[State], start: int, end: int, trained: set[Bucket]) -> list[StateBuckets]:
    """Return the buckets of each state of a round that are not trained yet, and add them to `trained`.

    Pairs of partitions that stay together less often are assigned first.
    """
    meetings: dict[Bucket, list[int]] = {}
    for number in range(start, end):
        for pair in combinations_with_replacement(sorted(states[number]), 2):
            if pair not in trained:
                meetings.setdefault(pair, []).append(number)
    trained.update(meetings)
    # Nothing is read at the end of a round.
    staying = {
        pair: [n for n in meetings[pair] if n + 1 < end and set(pair) <= set(states[n + 1])] for pair in meetings
    }
    num_staying = [0] * (end - start)
    chosen: list[list[Bucket]] = [[] for _ in range(start, end)]
    for pair in sorted(meetings, key=lambda pair: len(staying[pair])):
        buckets = [pair] if pair[0] == pair[1] else [pair, pair[::-1]]
        number = min(staying[pair], key=lambda n: num_staying[n - start], default=meetings[pair][0])
        if staying[pair]:
            num_staying[number - start] += len(buckets)
        chosen[number - start] += buckets
    found = []
    for number, buckets in enumerate(chosen, start):
        next_state = states[number + 1] if number + 1 < len(states) else states[number]
        leaving = tuple(sorted(bucket for bucket in buckets if not set(bucket) <= set(next_state)))
        found.append(StateBuckets(leaving, tuple(sorted(set(buckets).difference(leaving)))))
    return found

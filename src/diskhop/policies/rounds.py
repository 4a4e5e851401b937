"""Schedules for several ranks, which train buckets without a common partition at once (PyTorch-BigGraph's rule).

PyTorch-BigGraph hands out buckets first come, first served, so no two runs train alike. Here the schedule is known in
advance, a round-robin tournament: partitions form two *groups* per rank, and in each of 2 W - 1 rounds every rank gets
two groups, until any two groups have met. A rank passes the partitions of its two groups through its buffer by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from diskhop.errors import ConfigError
from diskhop.policies.orderings import State
from diskhop.policies.schedule import Schedule

Pair = tuple[int, int]


def require_partitions(num_partitions: int, num_ranks: int) -> None:
    """Refuse a number of partitions that does not give every rank two groups of equal size."""
    if num_ranks > 1 and num_partitions % (2 * num_ranks):
        fits = -(-num_partitions // (2 * num_ranks)) * 2 * num_ranks
        raise ConfigError(
            f"{num_ranks} processes need a multiple of {2 * num_ranks} partitions, so that no two hold the same one, "
            f"got {num_partitions}; use --partitions {fits}"
        )


def schedule_ranks(num_partitions: int, num_ranks: int, capacity: int, order: Sequence[State]) -> Schedule:
    """Return the schedule of a pass in which every two partitions meet once, in the memory of one rank.

    capacity: partitions in a rank's memory at once.
    order: states of the first round, in which any two of a rank's partitions meet: those of num_partitions / num_ranks
        partitions from 0 on.
    """
    require_partitions(num_partitions, num_ranks)
    size = num_partitions // (2 * num_ranks)
    members = [tuple(range(group * size, (group + 1) * size)) for group in range(2 * num_ranks)]
    states: list[list[State]] = [[] for _ in range(num_ranks)]
    rounds = []
    for number, pairs in enumerate(group_rounds(num_ranks)):
        for rank, (kept, loaded) in enumerate(pairs):
            if number == 0:
                both = members[kept] + members[loaded]
                new = [tuple(both[each] for each in state) for state in order]
            else:
                resident = states[rank][-1]
                staying = sorted(members[kept], key=lambda each, resident=resident: each not in resident)  # type: ignore[misc]
                new = meeting_states(staying, members[loaded], capacity)
            states[rank] += new
        rounds.append(len(new))
    return Schedule(tuple(map(tuple, states)), tuple(rounds))


def group_rounds(num_ranks: int) -> list[list[Pair]]:
    """Return the two groups of each rank in each round, (rounds)(ranks): the one it keeps, then the one it loads.

    Any two of the 2 * num_ranks groups meet in one round (the circle method). In the first round all are loaded.
    """
    last = 2 * num_ranks - 1
    rounds: list[list[Pair]] = []
    for number in range(last):
        others = [((number + each) % last, (number - each) % last) for each in range(1, num_ranks)]
        pairs = [(last, number), *others]
        rounds.append(_keeping_one(rounds[-1], pairs) if rounds else pairs)
    return rounds


def _keeping_one(before: Sequence[Pair], pairs: Sequence[Pair]) -> list[Pair]:
    """Assign the pairs of a round to ranks, so that each keeps one group of its pair before.

    Two rounds form cycles in which pairs of either alternate. Along a cycle every rank takes the next pair.
    """
    partner = {one: other for pair in pairs for one, other in (pair, pair[::-1])}
    before_partner = {one: other for pair in before for one, other in (pair, pair[::-1])}
    rank_of = {group: rank for rank, pair in enumerate(before) for group in pair}
    found: dict[int, Pair] = {}
    for start, (kept, _) in enumerate(before):
        rank = start
        while rank not in found:
            loaded = partner[kept]
            found[rank] = (kept, loaded)
            rank, kept = rank_of[loaded], before_partner[loaded]
    return [found[rank] for rank in range(len(before))]


def meeting_states(kept: Sequence[int], loaded: Sequence[int], capacity: int) -> list[State]:
    """Return states in which each partition of one group meets each of another; they start with the first of `kept`.

    Some of `kept` stay in memory while all of `loaded` pass, there and back for the next ones; one swap per state.
    """
    if len(kept) + len(loaded) <= capacity:
        return [(*kept, *loaded)]
    width = min(capacity - 1, len(kept))
    strip, passing = list(kept[:width]), list(loaded)
    window = passing[: capacity - width]
    states = [(*strip, *window)]
    for first in range(0, len(kept), width):
        if first:
            passing.reverse()
            for place, partition in enumerate(kept[first : first + width]):
                strip[place] = partition
                states.append((*strip, *window))
        for number, partition in enumerate(passing[len(window) :]):
            window[number % len(window)] = partition
            states.append((*strip, *window))
    return states

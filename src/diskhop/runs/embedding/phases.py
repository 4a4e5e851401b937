"""Phases of a pass: the buckets that are trained together while partitions move."""

from __future__ import annotations

from dataclasses import dataclass

from diskhop.policies.orderings import Bucket
from diskhop.policies.schedule import Schedule, buckets_of_ranks


@dataclass(frozen=True, slots=True)
class Phase:
    """Buckets that are trained together.

    number: in the pass, unlike that of any other rank's phase.
    buckets: their edges are trained.
    partitions: negatives are drawn from them.
    gone: partitions that are being written; those that negatives are drawn from must not change.
    """

    number: int
    buckets: tuple[Bucket, ...]
    partitions: tuple[int, ...]
    gone: tuple[int, ...]


def phases_of(schedule: Schedule, rank: int, *, reuses_slots: bool) -> list[tuple[Phase, Phase]]:
    """Return two phases per state of a rank: the buckets of partitions that are evicted after it, and the others.

    reuses_slots: the slots of evicted partitions are read into during the second phase, which therefore draws negatives
    from the other partitions only.
    """
    states, num_ranks = schedule.states[rank], len(schedule.states)
    found = []
    for number, buckets in enumerate(buckets_of_ranks(schedule)[rank]):
        state = states[number]
        next_state = states[number + 1] if number + 1 < len(states) else state
        gone = tuple(partition for partition in state if partition not in next_state)
        in_memory = tuple(each for each in state if each not in gone) if reuses_slots else state
        first = 2 * (number * num_ranks + rank)
        found.append((Phase(first, buckets.leaving, state, ()), Phase(first + 1, buckets.staying, in_memory, gone)))
    return found

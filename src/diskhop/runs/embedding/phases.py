"""Phases of a pass: the buckets that are trained together while partitions move."""

from __future__ import annotations

from dataclasses import dataclass

from diskhop.policies.orderings import Bucket, State, buckets_by_state


@dataclass(frozen=True, slots=True)
class Phase:
    """Buckets that are trained together.

    number: in the pass.
    buckets: their edges are trained.
    partitions: negatives are drawn from them.
    gone: partitions that are being written and must not change.
    """

    number: int
    buckets: tuple[Bucket, ...]
    partitions: tuple[int, ...]
    gone: tuple[int, ...]


def phases_of(states: list[State]) -> list[tuple[Phase, Phase]]:
    """Return two phases per state: the buckets of partitions that are evicted after it, and the others."""
    found = []
    for number, buckets in enumerate(buckets_by_state(states)):
        state = states[number]
        next_state = states[number + 1] if number + 1 < len(states) else state
        gone = tuple(partition for partition in state if partition not in next_state)
        found.append(
            (Phase(2 * number, buckets.leaving, state, ()), Phase(2 * number + 1, buckets.staying, state, gone))
        )
    return found

"""Orders in which partitions of embeddings pass through a buffer, and buckets of edges through training.

A *bucket* (i, j) has the edges from partition i to partition j. A *state* is the partitions in the buffer at one time.
An order is a sequence of states in which any two partitions meet, and the buckets between them are trained there. From
one state to the next partitions *leave* and others are *loaded*, one of each except in COVER. A swap is *prefetchable*
if some bucket can be trained meanwhile, without the partitions that are swapped (Legend, section 4).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise, product

from diskhop.errors import ConfigError
from diskhop.policies.found_orders import FOUND_ORDERS

State = tuple[int, ...]
Bucket = tuple[int, int]

# Number of attempts of a search: fewer for more partitions, so that a search takes a second at most.
_MOST_ATTEMPTS, _ATTEMPTS_TIMES_PAIRS = 200, 10_000
_FIRST = ord("a")  # stands for partition 0


def beta_states(num_partitions: int, capacity: int = 3) -> list[State]:
    """Return Marius' order: all but one place keep their partition until it has met those passing the last place."""
    _check(num_partitions, capacity)
    buffer, outside = list(range(capacity)), list(range(capacity, num_partitions))
    states = [tuple(buffer)]
    while outside:
        for number, partition in enumerate(outside):
            outside[number], buffer[-1] = buffer[-1], partition
            states.append(tuple(buffer))
        for place in range(min(capacity - 1, len(outside))):
            buffer[place] = outside.pop(0)
            states.append(tuple(buffer))
    return states


def cover_states(num_partitions: int, capacity: int = 4) -> list[State]:
    """Return GE2's order for 4, 16 or 64 partitions and a buffer of 4: pairs meet once, all partitions are swapped.

    The states are the lines of an affine space over the field of four elements.
    """
    _check_capacity("cover", capacity, 4)
    length = {4: 1, 16: 2, 64: 3}.get(num_partitions)
    if length is None:
        raise ConfigError(f"order 'cover' is for 4, 16 or 64 partitions, got {num_partitions}; use --partitions 16")
    times = ((0, 0, 0, 0), (0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2))
    states = []
    for direction in product(range(4), repeat=length):
        if next((part for part in direction if part), 0) != 1:
            continue
        seen: set[int] = set()
        for point in product(range(4), repeat=length):
            line = [
                sum(
                    (start ^ times[step][part]) << 2 * place
                    for place, (start, part) in enumerate(zip(point, direction, strict=True))
                )
                for step in range(4)
            ]
            if line[0] not in seen:
                seen.update(line)
                states.append(tuple(sorted(line)))
    return states


def legend_states(num_partitions: int, capacity: int = 3) -> list[State]:
    """Return Legend's order for a buffer of three (Algorithm 1): one partition meets all others, then the next does.

    The loaded partition makes the most new pairs, then has the fewest left, then is next in the algorithm's order. The
    number of states is the paper's in Table 8. By lines 16 and 17 a partition that was just loaded may leave when the
    next column begins, as it does once with 14 partitions: that swap is not prefetchable.
    """
    _check_capacity("legend", capacity, 3)
    _check(num_partitions, capacity)
    pairs = _Pairs(num_partitions)
    buffer = [0, 1, 2]
    states = [tuple(buffer)]
    pairs.meet(buffer)

    def swap(leaves: int, loads: int) -> None:
        buffer.remove(leaves)
        buffer.append(loads)
        pairs.meet(buffer)
        states.append(tuple(buffer))

    for partition in range(3, num_partitions):
        swap(partition - 2, partition)
    column = 0
    while pairs.num_left:
        others = [each for each in buffer[:-1] if each != column] or [each for each in buffer if each != column]
        if pairs.left_of(column) == 0:
            was_loaded = buffer[-1]
            before, column = column, next(each for each in range(column + 1, num_partitions) if pairs.left_of(each))
            if column not in buffer:
                is_free = before in buffer and before != was_loaded
                swap(before if is_free else next(each for each in buffer if each != was_loaded), column)
                if pairs.left_of(column) == 0:
                    continue
            others = [each for each in buffer if each != column]
        leaves = min(others)
        (stays,) = (each for each in buffer if each not in (leaves, column))
        first = stays + column + 2
        outside = [each % num_partitions for each in range(first, first + num_partitions)]
        loads = max(
            (each for each in outside if each not in buffer and pairs.is_left(each, column)),
            key=lambda each: (pairs.is_left(each, stays), -pairs.left_of(each)),
        )
        swap(leaves, loads)
    return states


def searched_states(num_partitions: int, capacity: int = 3) -> list[State]:
    """Return the shortest of many random orders, each step of which makes the most new pairs (our own).

    With a buffer of three, swaps are prefetchable while pairs are left to meet. FOUND_ORDERS has the orders for up to
    24 partitions. Others are searched for within about a second, always with the same result.
    """
    _check(num_partitions, capacity)
    if capacity == 3 and num_partitions in FOUND_ORDERS:
        return list(_unfold(FOUND_ORDERS[num_partitions]))
    num_attempts = max(3, min(_MOST_ATTEMPTS, _ATTEMPTS_TIMES_PAIRS // num_partitions**2))
    return search_states(num_partitions, capacity, num_attempts)


def search_states(num_partitions: int, capacity: int, num_attempts: int) -> list[State]:
    """Return the shortest order of n attempts."""
    draws = random.Random(num_partitions)
    best: list[State] | None = None
    bound = num_partitions**2  # some attempts never end
    while best is None or num_attempts > 0:
        num_attempts -= 1
        best = _attempt(num_partitions, capacity, draws, bound) or best
        bound = bound if best is None else len(best)
    return best


# Each takes the number of partitions and how many are in memory at once.
ORDERS: dict[str, Callable[[int, int], list[State]]] = {
    "beta": beta_states,
    "cover": cover_states,
    "legend": legend_states,
    "searched": searched_states,
}


class _Pairs:
    """Pairs of partitions that have not met: one bit set per partition."""

    def __init__(self, num_partitions: int) -> None:
        everyone = (1 << num_partitions) - 1
        self._left = [everyone & ~(1 << each) for each in range(num_partitions)]
        self.num_left = num_partitions * (num_partitions - 1) // 2

    def meet(self, partitions: list[int]) -> None:
        for one, other in combinations(partitions, 2):
            if self.is_left(one, other):
                self._left[one] &= ~(1 << other)
                self._left[other] &= ~(1 << one)
                self.num_left -= 1

    def is_left(self, one: int, other: int) -> bool:
        return bool(self._left[one] >> other & 1)

    def left_of(self, partition: int) -> int:
        return self._left[partition].bit_count()

    def new_with(self, partition: int, others: int) -> int:
        """Return those of others (bits) that the partition has not met."""
        return self._left[partition] & others


def _attempt(num_partitions: int, capacity: int, draws: random.Random, bound: int) -> list[State] | None:
    """Return an order with steps that make the most new pairs; None if it is not shorter than the bound.

    Ties are broken by weights that are random per attempt: how many pairs the partition that leaves and the one that is
    loaded have left, and noise.
    """
    pairs = _Pairs(num_partitions)
    buffer = list(range(capacity))
    pairs.meet(buffer)
    states = [tuple(buffer)]
    loaded_weight, leaves_weight, noise = draws.uniform(-4, 2), draws.uniform(-4, 4), draws.uniform(0, 8)
    kept = 0  # bits of the partition just loaded, and of the only one that it had not met
    while pairs.num_left:
        if len(states) + 1 >= bound:
            return None
        outside = [each for each in range(num_partitions) if each not in buffer]
        best: tuple[float, int, int] | None = None
        for leaves in (each for each in buffer if not kept >> each & 1):
            stay = sum(1 << each for each in buffer if each != leaves)
            offset = leaves_weight * pairs.left_of(leaves)
            for loads in outside:
                num_new = pairs.new_with(loads, stay).bit_count()
                # If no new pair can meet, a partition with many pairs left helps the steps that follow.
                weight = loaded_weight if num_new else 3
                score = 100 * num_new + offset + weight * pairs.left_of(loads) + noise * draws.random()
                if best is None or score > best[0]:
                    best = (score, leaves, loads)
        assert best is not None, "some partition of the buffer may leave"
        _, leaves, loads = best
        buffer.remove(leaves)
        new = pairs.new_with(loads, sum(1 << each for each in buffer))
        kept = 1 << loads if capacity > 2 else 0
        if new.bit_count() == 1 and capacity > 2:
            kept |= new
        buffer.append(loads)
        pairs.meet(buffer)
        states.append(tuple(buffer))
    return states


def fold(states: list[State]) -> str:
    """Return an order as text, as in FOUND_ORDERS."""
    swaps = []
    for before, after in pairwise(states):
        (leaves,), (loads,) = set(before) - set(after), set(after) - set(before)
        swaps.append(chr(_FIRST + leaves) + chr(_FIRST + loads))
    return "".join(swaps)


def _unfold(swaps: str) -> Iterator[State]:
    buffer = [0, 1, 2]
    yield tuple(buffer)
    for leaves, loads in zip(swaps[::2], swaps[1::2], strict=True):
        buffer.remove(ord(leaves) - _FIRST)
        buffer.append(ord(loads) - _FIRST)
        yield tuple(buffer)


def _check_capacity(order: str, capacity: int, wanted: int) -> None:
    if capacity != wanted:
        raise ConfigError(
            f"order '{order}' is for a buffer of {wanted} partitions, got {capacity}; use --buffer {wanted}"
        )


def _check(num_partitions: int, capacity: int) -> None:
    if capacity < 2:
        raise ConfigError(f"a buffer must have at least 2 partitions, got {capacity}; use --buffer 2")
    if num_partitions < capacity:
        raise ConfigError(
            f"a buffer of {capacity} needs at least {capacity} partitions, got {num_partitions}; "
            f"use --buffer {num_partitions}"
        )

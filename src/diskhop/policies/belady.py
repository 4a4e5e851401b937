"""Belady's rule with bypass: of all caches that know the future, the one with the fewest reads (Ginex, section 3.3).

A *span* is the batches whose future is known together. Within it, what a cache of some rows should hold after each
batch follows from when each row is used next, found by walking over the span backwards (belady.hpp tells how).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BeladyCache
from diskhop._native import NextUses as NativeNextUses
from diskhop.protocols import NodeIds


@dataclass(frozen=True, slots=True, eq=False)
class CacheChanges:
    """What a batch changes: rows that come in, by their positions in it, int64; rows that go, int64."""

    in_positions: NDArray[np.int64]
    out_ids: NodeIds
    num_hits: int


class NextUses(Protocol):
    """A stack of next uses, one array a batch: a list is one, and so is a file."""

    def append(self, next_uses: NDArray[np.uint32], /) -> None:
        """Put an array on top."""

    def pop(self) -> NDArray[np.uint32]:
        """Take the top one off."""


def plan_span(
    cache: BeladyCache,
    node_ids: Callable[[int], NodeIds],
    num_batches: int,
    num_rows: int,
    *,
    fills: bool,
    next_uses: NextUses,
) -> Iterator[CacheChanges]:
    """What to change before the span's first batch (positions are ids there), then after each batch.

    cache: what is held from the span before; it goes along. node_ids: of each of the span's batches, asked for twice.
    fills: whether rows are read before the first batch. next_uses: empty, for use in between.
    """
    uses = NativeNextUses(num_rows, num_batches)
    for number in reversed(range(num_batches)):
        next_uses.append(uses.look_back(node_ids(number)))
    yield CacheChanges(*cache.begin(uses, num_batches, fills))
    for number in range(num_batches):
        yield CacheChanges(*cache.step(node_ids(number), next_uses.pop()))


def belady_misses(
    trace: Sequence[NDArray[Any]], num_rows: int, capacity: int, *, spans: Sequence[int]
) -> Iterator[tuple[NodeIds, list[NodeIds]]]:
    """Of each span the rows that are read before its first batch, and those that each of its batches misses.

    spans: how many batches each has whose future is known together. Holds 7 bytes a row of the table.
    """
    cache = BeladyCache(num_rows, capacity)
    is_held = np.zeros(num_rows, np.bool_)
    first = 0
    for span in spans:
        batches = [ids.astype(np.int64) for ids in trace[first : first + span]]
        first += span
        changes = plan_span(cache, batches.__getitem__, len(batches), num_rows, fills=True, next_uses=[])
        begin = next(changes)
        is_held[begin.out_ids] = False
        is_held[begin.in_positions] = True
        misses = []
        for ids, change in zip(batches, changes, strict=True):
            misses.append(ids[~is_held[ids]])
            is_held[change.out_ids] = False
            is_held[ids[change.in_positions]] = True
        yield begin.in_positions, misses

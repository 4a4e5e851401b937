"""In-neighbour lists with edges added and removed, in one pass over the old lists.

Added edges are sorted as an import sorts: by destination, source, and order in the delta; they come after equal old
ones. So the lists are those of an import of the old edges and the added ones. A removed pair of ends leaves out all its
parallel edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import SourceError
from diskhop.updating.splice import Splice, spliced

Int64s = NDArray[np.int64]
# Memory per edge of a delta while lists are merged: ends, order, list, place, and what sorting takes.
EDGE_BYTES = 96


@dataclass(frozen=True, slots=True, eq=False)
class SortedPairs:
    """Ends of edges in the order of the lists.

    numbers: place of each edge in the delta.
    sources, destinations: rows of the nodes.
    """

    numbers: Int64s
    sources: Int64s
    destinations: Int64s

    @classmethod
    def of(
        cls,
        sources: Int64s,
        destinations: Int64s,
        *,
        both_ways: bool,
        drop_loops: bool = False,
        drop_repeats: bool = False,
    ) -> SortedPairs:
        """Sort edges. both_ways: each in both directions, a loop once."""
        numbers = np.arange(len(sources))
        if both_ways:
            numbers = np.repeat(numbers, 2)
            sources, destinations = _interleaved(sources, destinations), _interleaved(destinations, sources)
            is_kept = (sources != destinations) | (np.arange(len(sources)) % 2 == 0)
            numbers, sources, destinations = numbers[is_kept], sources[is_kept], destinations[is_kept]
        order = np.lexsort((sources, destinations))
        sources, destinations = sources[order], destinations[order]
        is_kept = np.ones(len(order), np.bool_)
        if drop_loops:
            is_kept &= sources != destinations
        if drop_repeats:
            is_kept[1:] &= (sources[1:] != sources[:-1]) | (destinations[1:] != destinations[:-1])
        return cls(numbers[order][is_kept], sources[is_kept], destinations[is_kept])

    def __len__(self) -> int:
        return len(self.numbers)

    def only(self, is_kept: NDArray[np.bool_]) -> SortedPairs:
        """Return some of the edges."""
        return SortedPairs(self.numbers[is_kept], self.sources[is_kept], self.destinations[is_kept])

    def are_in(self, others: SortedPairs) -> NDArray[np.bool_]:
        """Check for each edge whether the others have one between the same ends."""
        found = np.zeros(len(self), np.bool_)
        if not len(others):
            return found
        sources, destinations = (
            np.concatenate([mine, theirs])
            for mine, theirs in ((self.sources, others.sources), (self.destinations, others.destinations))
        )
        order = np.lexsort((sources, destinations))
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (np.diff(sources[order]) != 0) | (np.diff(destinations[order]) != 0)
        pair = np.cumsum(begins) - 1
        is_other = order >= len(self)
        are_in = np.zeros(int(pair[-1]) + 1, np.bool_)
        are_in[pair[is_other]] = True
        found[order[~is_other]] = are_in[pair[~is_other]]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The old list of the destination of each of some sorted edges: positions begins to ends - 1."""

    begins: Int64s
    ends: Int64s

    @classmethod
    def find(cls, pairs: SortedPairs, starts: Iterable[Int64s], num_edges: int) -> Places:
        """Find the lists. starts: the old indptr in blocks. Nodes that are new have an empty list at the end."""
        begins, ends = (np.full(len(pairs), num_edges) for _ in range(2))
        first = 0
        for block in starts:
            for found, wanted in ((begins, pairs.destinations), (ends, pairs.destinations + 1)):
                here = slice(*np.searchsorted(wanted, [first, first + len(block)]))
                found[here] = block[wanted[here] - first]
            first += len(block)
        return cls(begins, ends)


class ListMerge:
    """The merged lists of a graph.

    num_edges: number of old edges. starts: opens the old indptr, in blocks. unknown: returns the error for an edge to
    remove, by its place in the delta, that the graph does not have. drop_repeats: whether an added edge that the graph
    has is left out.
    """

    def __init__(
        self,
        added: SortedPairs,
        removed: SortedPairs,
        *,
        num_edges: int,
        starts: Callable[[], Iterable[Int64s]],
        drop_repeats: bool,
        unknown: Callable[[int], SourceError],
    ) -> None:
        self._added, self._removed = added, removed
        self._num_edges = num_edges
        self._starts = starts
        self._unknown = unknown
        self._of_added = Places.find(added, starts(), num_edges)
        self._of_removed = Places.find(removed, starts(), num_edges)
        self._num_equal = np.zeros(len(removed), np.int64)
        self._may_repeat = ~added.are_in(removed) if drop_repeats else np.zeros(len(added), np.bool_)
        self._is_kept = np.ones(len(added), np.bool_)
        self.splice = Splice(np.empty(0, np.int64), np.empty(0, np.int64))
        self.kept = added

    def indices(self, old: Iterable[NDArray[Any]], dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        """Yield the new sources. old: the old ones in blocks. `splice` and `kept` are valid once all are taken.

        Raises SourceError for an edge to remove that the graph does not have.
        """
        inserted_at, removed_at = [], []
        first = taken = 0
        last_source = -1
        for block in old:
            removed = self._find_removed(block, first)
            stop = self._count_decided(block, first, taken)
            places = self._find_places(block, first, slice(taken, stop), last_source)
            is_kept = self._is_kept[taken:stop]
            places, sources = places[is_kept], self._added.sources[taken:stop][is_kept]
            yield spliced(block.astype(dtype, copy=False), places, sources, removed)
            inserted_at.append(places + first)
            removed_at.append(removed + first)
            taken, last_source = stop, int(block[-1])
            first += len(block)
        if not (self._num_equal > 0).all():
            raise self._unknown(int(self._removed.numbers[np.argmin(self._num_equal > 0)]))
        if taken < len(self._added):
            yield self._added.sources[taken:].astype(dtype)
            inserted_at.append(np.full(len(self._added) - taken, first))
        self.kept = self._added.only(self._is_kept)
        self.splice = Splice(_joined(inserted_at), _joined(removed_at))

    def indptr(self, num_nodes: int) -> Iterator[Int64s]:
        """Yield the new indptr. num_nodes: number of nodes, the new ones too. Call after indices() is exhausted."""
        removed = np.repeat(self._removed.destinations, self._num_equal)
        first = 0
        for block in self._starts():
            yield block + _before(self.kept.destinations, first, len(block)) - _before(removed, first, len(block))
            first += len(block)
        if first <= num_nodes:
            rest = _before(self.kept.destinations, first, num_nodes + 1 - first)
            yield self._num_edges - len(removed) + rest

    def _count_decided(self, block: NDArray[Any], first: int, taken: int) -> int:
        """Return the number of added edges whose place is known from the blocks up to this one.

        They are those of lists that end in it, and those before its last edge.
        """
        end = first + len(block)
        whole = max(taken, int(np.searchsorted(self._of_added.ends, end, side="right")))
        begun = max(whole, int(np.searchsorted(self._of_added.begins, end)))
        return whole + int(np.searchsorted(self._added.sources[whole:begun], block[-1]))

    def _find_places(self, block: NDArray[Any], first: int, which: slice, last_source: int) -> Int64s:
        """Return the places in a block before which some added edges go, and note those that repeat an old one."""
        begins, sources = self._of_added.begins[which] - first, self._added.sources[which]
        low = np.maximum(begins, 0)
        places = _bounds(block, low, np.minimum(self._of_added.ends[which] - first, len(block)), sources, after=True)
        may_repeat = self._may_repeat[which]
        if may_repeat.any():
            before = np.where(places > 0, block[np.maximum(places - 1, 0)].astype(np.int64), last_source)
            self._is_kept[which] = ~(may_repeat & (places > begins) & (before == sources))
        return places

    def _find_removed(self, block: NDArray[Any], first: int) -> Int64s:
        """Return the places in a block of edges to remove, ascending."""
        begin = int(np.searchsorted(self._of_removed.ends, first, side="right"))
        stop = int(np.searchsorted(self._of_removed.begins, first + len(block)))
        here = slice(begin, max(begin, stop))
        low = np.maximum(self._of_removed.begins[here] - first, 0)
        high = np.minimum(self._of_removed.ends[here] - first, len(block))
        sources = self._removed.sources[here]
        firsts = _bounds(block, low, high, sources, after=False)
        counts = _bounds(block, firsts, high, sources, after=True) - firsts
        self._num_equal[here] += counts
        ends = np.cumsum(counts)
        return np.repeat(firsts - (ends - counts), counts) + np.arange(counts.sum())


def _interleaved(first: Int64s, second: Int64s) -> Int64s:
    return np.stack([first, second], axis=1).reshape(-1)


def _joined(parts: list[Int64s]) -> Int64s:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _bounds(values: NDArray[Any], low: Int64s, high: Int64s, wanted: Int64s, *, after: bool) -> Int64s:
    """Search sorted ranges [low, high) of values, one for each wanted value: the first place at or after equal ones."""
    low, high = low.copy(), high.copy()
    while (is_open := low < high).any():
        middle = (low + high) // 2
        found = values[np.minimum(middle, len(values) - 1)].astype(np.int64)
        goes_up = is_open & ((found <= wanted) if after else (found < wanted))
        low[goes_up] = middle[goes_up] + 1
        goes_down = is_open & ~goes_up
        high[goes_down] = middle[goes_down]
    return low


def _before(nodes: Int64s, first: int, count: int) -> Int64s:
    """Count, for each of the nodes first, first + 1, ..., the sorted nodes below it."""
    begin, end = np.searchsorted(nodes, [first, first + count])
    here = np.bincount(nodes[begin:end] - first, minlength=count)
    counted: Int64s = begin + np.cumsum(here) - here
    return counted

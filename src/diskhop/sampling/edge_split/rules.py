"""Rules that say which part of the split an edge is in: drawn by shares, or given as lists of edges.

An edge and its opposite form a *pair* and are always in the same part. Edges from a node to itself are in no part that
is held out. Drawn: each pair has a random key of 64 bits, and a part has the pairs below a bound. The bounds are exact,
so a share of .1 holds out a tenth of the edges, and no table of edges is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.edge_lists import EdgeLists
from diskhop.errors import ConfigError
from diskhop.protocols import NodeIds
from diskhop.sampling.edge_split.blocks import EdgeBlock, read_edges
from diskhop.sampling.keyed import GOLDEN, mix_words

TRAIN, VALID, TEST = range(3)
PARTS = ("train", "valid", "test")
_BIN_BITS = 16
_MOST_NODES = 1 << 32


class SplitRule(Protocol):
    """Says in which part edges are."""

    @property
    def num_bytes(self) -> int:
        """Bytes of memory that the rule keeps."""

    def parts(self, block: EdgeBlock) -> NDArray[np.uint8]:
        """Return the part of each edge, TRAIN, VALID or TEST (edges)."""


@dataclass(frozen=True, slots=True)
class DrawnRule:
    """A random split.

    key: of the draws.
    valid_below: bound of the keys of validation pairs.
    test_below: bound of those of test pairs, from valid_below on.
    """

    key: int
    valid_below: int
    test_below: int

    @property
    def num_bytes(self) -> int:
        """See SplitRule."""
        return 0

    def parts(self, block: EdgeBlock) -> NDArray[np.uint8]:
        """See SplitRule."""
        keys = pair_keys(block, self.key)
        parts = np.full(len(block), TRAIN, np.uint8)
        parts[keys < np.uint64(self.test_below)] = TEST
        parts[keys < np.uint64(self.valid_below)] = VALID
        parts[block.is_loop] = TRAIN
        return parts


class GivenRule:
    """A split with given edges held out.

    valid, test: both ends of each edge, int64 (2, edges), by row.
    """

    def __init__(self, num_nodes: int, valid: NDArray[np.int64], test: NDArray[np.int64]) -> None:
        if num_nodes > _MOST_NODES:
            raise ConfigError(f"--link-split FOLDER is for up to {_MOST_NODES} nodes; give shares, as .8,.1,.1")
        self._num_nodes = num_nodes
        self._pairs = {part: np.unique(self._numbers(*ends)) for part, ends in ((VALID, valid), (TEST, test))}

    @property
    def num_bytes(self) -> int:
        """See SplitRule."""
        return sum(pairs.nbytes for pairs in self._pairs.values())

    def parts(self, block: EdgeBlock) -> NDArray[np.uint8]:
        """See SplitRule."""
        numbers = self._numbers(block.sources, block.destinations)
        parts = np.full(len(block), TRAIN, np.uint8)
        for part, pairs in self._pairs.items():
            if len(pairs):
                places = np.minimum(np.searchsorted(pairs, numbers), len(pairs) - 1)
                parts[pairs[places] == numbers] = part
        parts[block.is_loop] = TRAIN
        return parts

    def require_edges(
        self, lists: EdgeLists, names: Sequence[str], ids_of: Callable[[NodeIds], NDArray[np.int64]]
    ) -> None:
        """Refuse loops, pairs that are no edge of the graph, and pairs in both parts.

        names: of the files, for errors. ids_of: returns the source's ids of rows, for errors.
        """
        both = np.intersect1d(self._pairs[VALID], self._pairs[TEST])
        if len(both):
            raise ConfigError(f"{names[0]} and {names[1]} share {len(both)} edges: leave them out of one of the files")
        found = {part: np.zeros(len(pairs), bool) for part, pairs in self._pairs.items()}
        for block in read_edges(lists):
            numbers = self._numbers(block.sources, block.destinations)[~block.is_loop]
            for part, pairs in self._pairs.items():
                if len(pairs):
                    places = np.minimum(np.searchsorted(pairs, numbers), len(pairs) - 1)
                    found[part][places[pairs[places] == numbers]] = True
        for (part, is_found), name in zip(found.items(), names, strict=True):
            if not is_found.all():
                rows = divmod(int(self._pairs[part][np.argmin(is_found)]), self._num_nodes)
                # Nodes of two types may have the same id.
                first, second = sorted(ids_of(np.array(rows)).tolist())
                if rows[0] == rows[1]:
                    raise ConfigError(
                        f"{name}: has an edge from node {first} to itself, which is never held out; leave it out"
                    )
                raise ConfigError(
                    f"{name}: the nodes {first} and {second} have no edge in the graph; import the graph with the "
                    "edges of all parts, or leave the edge out"
                )

    def _numbers(self, sources: NDArray[np.int64], destinations: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return a number for each pair, whichever way its edge goes."""
        low, high = np.minimum(sources, destinations), np.maximum(sources, destinations)
        return low.astype(np.uint64) * np.uint64(self._num_nodes) + high.astype(np.uint64)


def pair_keys(block: EdgeBlock, key: int) -> NDArray[np.uint64]:
    """Return a random number for each edge, uint64 (edges): an edge and its opposite have the same."""
    low = np.minimum(block.sources, block.destinations).astype(np.uint64)
    high = np.maximum(block.sources, block.destinations).astype(np.uint64)
    step = np.uint64(GOLDEN)
    return mix_words(mix_words((low ^ np.uint64(key)) + step) + high + step)


def draw_rule(lists: EdgeLists, shares: tuple[float, float, float], key: int) -> DrawnRule:
    """Draw a split. Reads all edges twice; memory does not grow with their number.

    shares: of training, validation and test, which sum to 1. Loops count as no edges.
    """
    counts = np.zeros(1 << _BIN_BITS, np.int64)
    shift = np.uint64(64 - _BIN_BITS)
    for block in read_edges(lists):
        keys = pair_keys(block, key)[~block.is_loop]
        counts += np.bincount((keys >> shift).astype(np.int64), minlength=len(counts))
    num_edges, ends = int(counts.sum()), np.cumsum(counts)
    # A share as 0.1 of 20 edges is 2, whatever is lost in rounding.
    wanted = [int(num_edges * share + 1e-6) for share in (shares[VALID], shares[VALID] + shares[TEST])]
    bins = [int(np.searchsorted(ends, count, side="right")) for count in wanted]
    found: list[NDArray[np.uint64]] = []
    for block in read_edges(lists):
        keys = pair_keys(block, key)[~block.is_loop]
        found.append(keys[np.isin((keys >> shift).astype(np.int64), bins)])
    in_bins = np.sort(np.concatenate([*found, np.empty(0, np.uint64)]))
    bounds = []
    for count, number in zip(wanted, bins, strict=True):
        if number == len(counts):
            bounds.append(2**64 - 1)
            continue
        # A pair's edges share their key: the bound is the key of the first pair that is one edge too many.
        keys = in_bins[(in_bins >> shift) == np.uint64(number)]
        bounds.append(int(keys[count - (int(ends[number - 1]) if number else 0)]))
    return DrawnRule(key, *bounds)


def pair_sum(lists: EdgeLists) -> int:
    """Return a sum over the pairs of all edges, of 64 bits, which lists of other pairs have another of."""
    total = 0
    for block in read_edges(lists):
        total = (total + int(pair_keys(block, 0).sum())) % 2**64
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeCounts:
    """Numbers of edges by their split.

    is_undirected: whether every edge has its opposite. Pairs then count once as positives.
    edges: of each part.
    positives: of each part: edges to learn or to measure.
    """

    is_undirected: bool
    edges: tuple[int, int, int]
    positives: tuple[int, int, int]

    @property
    def num_edges(self) -> int:
        """Number of all edges."""
        return sum(self.edges)


def is_positive(block: EdgeBlock, *, is_undirected: bool) -> NDArray[np.bool_]:
    """Return which edges are positives (edges): loops never are, and of a pair the one from the lower row is."""
    return block.sources < block.destinations if is_undirected else ~block.is_loop


def count_edges(lists: EdgeLists, rule: SplitRule) -> EdgeCounts:
    """Count edges by their split, in one pass.

    A graph is undirected if the edges from lower to higher rows are the opposites of those from higher to lower ones:
    sums of a number per pair, of 64 bits, tell without a table.
    """
    edges, up = np.zeros(3, np.int64), np.zeros(3, np.int64)
    loops, sums = 0, [0, 0]
    for block in read_edges(lists):
        parts = rule.parts(block)
        is_up = block.sources < block.destinations
        is_loop = block.is_loop
        keys = pair_keys(block, 0)
        for number, chosen in enumerate((is_up, ~is_up & ~is_loop)):
            sums[number] = (sums[number] + int(keys[chosen].sum())) % 2**64
        edges += np.bincount(parts, minlength=3)
        up += np.bincount(parts[is_up], minlength=3)
        loops += int(is_loop.sum())
    both = edges.sum() - loops == 2 * up.sum()
    is_undirected = bool(both and sums[0] == sums[1])
    positives = up if is_undirected else edges - np.array([loops, 0, 0])
    as_counts = [(int(each[0]), int(each[1]), int(each[2])) for each in (edges, positives)]
    return EdgeCounts(is_undirected=is_undirected, edges=as_counts[0], positives=as_counts[1])

"""Negatives: random nodes in the place of the ends of links, to tell real links from.

A draw is a pure function of (seed, purpose, epoch, batch number, side, its place in the batch). Every draw takes one
word of a counter-based generator, whatever the other draws are. A negative may happen to be a real link, as in PyG.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop.config.options import require, require_known
from diskhop.errors import ConfigError
from diskhop.protocols import NodeIds, Purpose, SeedTimes

MODES = ("binary", "triplet")
SOURCES, DESTINATIONS = 0, 1


class DrawKey(NamedTuple):
    """Key of the draws of a batch: seed of the run, use of the batch, epoch, and number of the batch."""

    seed: int
    purpose: Purpose
    epoch: int
    number: int

    def fractions(self, side: int, count: int) -> NDArray[np.float64]:
        """Return count random numbers from 0 to less than 1, of one side of the links."""
        key = np.array([self.seed, (Purpose.NEGATIVES << 32) | self.purpose], np.uint64)
        counter = np.array([0, side, self.number, self.epoch], np.uint64)
        words = np.random.Philox(key=key, counter=counter).random_raw(count)
        # The highest 53 bits: a float64 has them without rounding.
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """The nodes that one end of a negative is drawn from. Make them with candidates().

    num_nodes: nodes of the graph.
    cumulative: sums of the weights of the nodes before each one, float64 or int64 (nodes + 1); None: all are as likely.
    nodes: the nodes by ascending time, int64 (nodes); None: they have no times. `cumulative` is in their order.
    times: ascending, int64 (nodes); None: nodes have no times.
    first_row: added to the nodes that are drawn: where the rows of their type begin in a merged graph.
    """

    num_nodes: int
    cumulative: NDArray[np.float64] | NDArray[np.int64] | None = None
    nodes: NodeIds | None = None
    times: NDArray[np.int64] | None = None
    first_row: int = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of memory of the arrays."""
        arrays = (self.cumulative, self.nodes, self.times)
        return sum(each.nbytes for each in arrays if each is not None and not _is_mapped(each))

    def draw(self, fractions: NDArray[np.float64], latest: SeedTimes) -> NodeIds:
        """Return a node per fraction, int64; none is later than its entry of `latest`, if nodes have times.

        Raises ConfigError where no node is left.
        """
        ends = np.full(len(fractions), self.num_nodes)
        if self.times is not None and latest is not None:
            ends = np.searchsorted(self.times, latest, side="right")
        totals = ends if self.cumulative is None else self.cumulative[ends]
        if len(totals) and totals.min() <= 0:
            when = "" if latest is None else f" not later than its link, of time {latest[np.argmin(totals)]}"
            what = "" if self.cumulative is None else " of a weight above 0"
            raise ConfigError(
                f"no candidate is left to be a negative: there is no node{what}{when}; leave those links out, or draw "
                "without negatives"
            )
        # Rounded down, a fraction of a total stays below it.
        wanted = fractions * totals
        if self.cumulative is None:
            places = wanted.astype(np.int64)
        else:
            sums = self.cumulative
            exact = np.floor(wanted).astype(np.int64) if sums.dtype.kind == "i" else wanted
            places = np.searchsorted(sums, exact, side="right") - 1
            # A sum of rounded weights can equal the next one; the last node with a weight is then meant.
            places = np.minimum(places, np.searchsorted(sums, totals, side="left") - 1)
        nodes: NodeIds = places if self.nodes is None else self.nodes[places]
        return nodes + self.first_row if self.first_row else nodes


def candidates(
    num_nodes: int,
    *,
    weights: NDArray[np.float64] | None = None,
    cumulative: NDArray[np.int64] | None = None,
    times: NDArray[np.int64] | None = None,
) -> Candidates:
    """Return the candidates of one side.

    weights: chance of each node, by row (nodes); None: equal ones. Raises ConfigError for bad weights.
    cumulative: instead of weights; `indptr` of the neighbour lists draws by in-degree.
    times: of the nodes, int64 (nodes); negatives are then never later than their link.
    """
    if weights is not None:
        weights = np.asarray(weights, np.float64)
        bad = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
        if len(bad):
            raise ConfigError(
                f"weights of negatives must be at least 0 and finite, got {weights[bad[0]]:g}; pass others"
            )
    if times is None:
        if weights is not None:
            return Candidates(num_nodes=num_nodes, cumulative=_sums(weights))
        return Candidates(num_nodes=num_nodes, cumulative=cumulative)
    nodes = np.argsort(times, kind="stable")
    if cumulative is not None:
        weights = np.diff(cumulative).astype(np.float64)
    return Candidates(
        num_nodes=num_nodes,
        cumulative=None if weights is None else _sums(weights[nodes]),
        nodes=nodes,
        times=np.ascontiguousarray(times[nodes]),
    )


def _is_mapped(array: NDArray[Any]) -> bool:
    """Check whether an array is a file's, which takes no memory of ours."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base is not None


def _sums(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([[0.0], np.cumsum(weights)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Negatives:
    """How negatives are drawn. Raises ConfigError.

    mode: 'binary' for pairs of nodes, or 'triplet' for other destinations of each link.
    amount: negatives per link, above 0; whole for triplets.
    sources, destinations: what each end is drawn from. Triplets keep the source of their link.
    """

    mode: Literal["binary", "triplet"]
    amount: float
    sources: Candidates
    destinations: Candidates

    def __post_init__(self) -> None:
        require_known("mode of negatives", self.mode, MODES)
        is_number = isinstance(self.amount, int | float) and not isinstance(self.amount, bool)
        is_fit = is_number and 0 < self.amount < math.inf
        require(is_fit, "amount of negatives", "a number above 0", self.amount, "for example 1.0 per link")
        is_whole = self.mode == "binary" or float(self.amount).is_integer()
        require(is_whole, "amount of negatives", "whole for triplets", self.amount, "for example 1 per link")

    @property
    def num_bytes(self) -> int:
        """Bytes of memory of the candidates."""
        each = {id(side): side.num_bytes for side in (self.sources, self.destinations)}
        return sum(each.values())

    def count(self, num_links: int) -> int:
        """Number of negatives of a batch: rounded up, as in PyG."""
        return math.ceil(num_links * self.amount)

    def draw(self, num_links: int, times: SeedTimes, key: DrawKey) -> tuple[NodeIds, NodeIds]:
        """Return sources and destinations of negatives; negative i belongs to link i % num_links.

        times: of the links. Triplets have no sources of their own.
        """
        count = self.count(num_links)
        latest = None if times is None else np.resize(times, count)
        destinations = self.destinations.draw(key.fractions(DESTINATIONS, count), latest)
        if self.mode == "triplet":
            return destinations[:0], destinations
        return self.sources.draw(key.fractions(SOURCES, count), latest), destinations

    def digest(self) -> str:
        """Text that two ways to draw have in common only if they draw the same."""
        arrays = (
            array
            for side in (self.sources, self.destinations)
            for array in (side.cumulative, side.nodes, side.times)
            if array is not None
        )
        sums = "-".join(xxhash.xxh3_64_hexdigest(np.ascontiguousarray(array).data) for array in arrays)
        return f"{self.mode} {float(self.amount)!r} {sums}"

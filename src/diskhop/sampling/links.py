"""Batches of links: the seed nodes that a batch of links needs, and the place of each end among them.

A link is a pair of nodes to score, with or without an edge between them. A batch has the ends of its links and of its
negatives as seed nodes. It is a pure function of the links and a DrawKey, so that whoever needs the places again
makes the batch again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop._native import permute_ids
from diskhop.protocols import NodeIds, Purpose, SeedTimes
from diskhop.sampling.negatives import DrawKey, Negatives


class LinkEnds(Protocol):
    """The ends of links by position, wherever they are: in memory, or in the neighbour lists of a dataset."""

    def __len__(self) -> int:
        """Number of links."""

    def take(self, positions: NDArray[np.int64]) -> NodeIds:
        """Return rows of sources and destinations, int64 (2, positions). Any thread may call it."""

    def digest(self) -> str:
        """Text that other links have another one of."""


class GivenEnds:
    """Links in memory: rows of sources and destinations, int64 (2, links)."""

    def __init__(self, ends: NodeIds) -> None:
        self._ends = ends
        self._digest = ""

    def __len__(self) -> int:
        return int(self._ends.shape[1])

    @property
    def num_bytes(self) -> int:
        """Bytes of memory of the ends."""
        return self._ends.nbytes

    def take(self, positions: NDArray[np.int64]) -> NodeIds:
        """See LinkEnds."""
        return self._ends[:, positions]

    def digest(self) -> str:
        """See LinkEnds."""
        self._digest = self._digest or _digest(self._ends)
        return self._digest


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkBatch:
    """One batch of links, as seed nodes of a sampler. P links and N negatives; an *end* is a place among the seeds.

    positions: the links of the batch, int64 (P).
    seeds: rows, int64: each once in ascending order, or all ends in order if each has a subgraph of its own.
    times: of the seeds; see SeedTimes.
    sources, destinations: ends of the links, int64 (P); with binary negatives those follow, (P + N).
    negatives: ends of the negative destinations of each link, int64 (P, N / P); None unless they are triplets.
    link_of: the link of the batch that a seed is an end of, or a negative of, int64 (seeds); None unless disjoint.
    label_times: times of sources and destinations; None without times.
    """

    positions: NDArray[np.int64]
    seeds: NodeIds
    times: SeedTimes
    sources: NDArray[np.int64]
    destinations: NDArray[np.int64]
    negatives: NDArray[np.int64] | None
    link_of: NDArray[np.int64] | None
    label_times: SeedTimes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Links:
    """Links in batches. Replace `order` or `shuffled_by` for each epoch.

    ends: of all links.
    times: of all links, int64 (links); None for none.
    negatives: None for none.
    is_disjoint: True if the sampler makes a subgraph per seed; it does with times.
    order: positions of the links of a pass, int64; None for all of them.
    shuffled_by: key of a random order of the positions, which takes no memory; None: they are in order.
    """

    ends: LinkEnds
    times: SeedTimes = None
    negatives: Negatives | None = None
    is_disjoint: bool = False
    order: NDArray[np.int64] | None = None
    shuffled_by: int | None = None

    def __len__(self) -> int:
        """Number of links of a pass."""
        return len(self.ends) if self.order is None else len(self.order)

    def positions(self, batch_size: int, number: int) -> NDArray[np.int64]:
        """Return the positions of the links of a batch."""
        places = np.arange(number * batch_size, min((number + 1) * batch_size, len(self)))
        if self.shuffled_by is not None:
            permute_ids(len(self), self.shuffled_by, "ids", places)
        return places if self.order is None else self.order[places]

    def batch(self, batch_size: int, key: DrawKey) -> LinkBatch:
        """Return a batch. Raises ConfigError if a link has no candidate for a negative."""
        return self.batch_of(self.positions(batch_size, key.number), key)

    def batch_of(self, positions: NDArray[np.int64], key: DrawKey) -> LinkBatch:
        """Return the batch of some links."""
        sources, destinations = self.ends.take(positions)
        times = None if self.times is None else self.times[positions]
        num_links, num_negatives = len(positions), 0
        is_binary = self.negatives is not None and self.negatives.mode == "binary"
        if self.negatives is not None:
            drawn_sources, drawn = self.negatives.draw(num_links, times, key)
            sources, destinations = np.concatenate([sources, drawn_sources]), np.concatenate([destinations, drawn])
            num_negatives = len(drawn)
        ends = np.concatenate([sources, destinations])
        link_of = None
        seeds, places = ends, np.arange(len(ends))
        if self.is_disjoint:
            link_of = np.concatenate([np.arange(len(each)) % max(1, num_links) for each in (sources, destinations)])
        else:
            seeds, places = np.unique(ends, return_inverse=True)
        source_places, destination_places = places[: len(sources)], places[len(sources) :]
        negatives = None
        if num_negatives and not is_binary:
            negatives = destination_places[num_links:].reshape(-1, num_links).T
            destination_places = destination_places[:num_links]
        return LinkBatch(
            positions=positions,
            seeds=seeds,
            times=None if times is None or link_of is None else times[link_of],
            sources=source_places,
            destinations=destination_places,
            negatives=negatives,
            link_of=link_of,
            label_times=None if times is None else np.resize(times, len(source_places)),
        )

    def digest(self) -> str:
        """Return 16 hex digits that other links, other orders and other negatives have others of."""
        arrays = [_digest(each) for each in (self.times, self.order) if each is not None]
        negatives = "" if self.negatives is None else self.negatives.digest()
        parts = [self.ends.digest(), *arrays, negatives, str(self.is_disjoint), str(self.shuffled_by)]
        return xxhash.xxh3_64_hexdigest(" ".join(parts).encode())


def shuffle_key(seed: int, purpose: Purpose, epoch: int) -> int:
    """Return the key of the order of an epoch, for Links.shuffled_by."""
    words = np.random.SeedSequence([seed, int(purpose), epoch, int(Purpose.BATCH_ORDER)]).generate_state(1, np.uint64)
    return int(words[0])


def _digest(array: NDArray[np.int64]) -> str:
    return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(array).data)

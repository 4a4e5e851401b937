"""Component sizes from a sample of nodes, for graphs whose union-find does not fit the memory.

From each sampled node the edges are followed against their direction until no node is new, or a limit is reached. In a
graph whose edges all have opposites that is the node's component; in others it is what the node can gather from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# In-neighbours of a node, the first `most` of them.
Neighbors = Callable[[int, int], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Reach:
    """Sizes of what sampled nodes reach.

    num_sampled: nodes of the sample.
    limit: nodes after which a search ends.
    num_limited: sampled nodes that reach as many.
    number: estimated number of components, if edges all have opposites.
    """

    num_sampled: int
    limit: int
    num_limited: int
    number: int


def sample_reach(num_nodes: int, neighbors: Neighbors, sampled: NDArray[np.int64], limit: int) -> Reach:
    """Follow the edges from sampled nodes.

    The number of components is the sum of 1 / size over all nodes, so it is num_nodes times the mean of 1 / size over
    the sample, where a component at the limit counts as infinite (Chazelle, Rubinfeld and Trevisan, 2005).
    """
    sizes = [_reached(node, neighbors, limit) for node in sampled.tolist()]
    small = [size for size in sizes if size < limit]
    number = round(num_nodes * sum(1 / size for size in small) / max(1, len(sizes)))
    return Reach(len(sizes), limit, len(sizes) - len(small), number + (len(small) < len(sizes)))


def _reached(node: int, neighbors: Neighbors, limit: int) -> int:
    """Return the number of nodes that are reached, itself among them, at most the limit."""
    seen, waiting = {node}, [node]
    while waiting and len(seen) < limit:
        for other in neighbors(waiting.pop(), limit).tolist():
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return min(len(seen), limit)

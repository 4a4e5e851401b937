"""Homophily: how often an edge joins two nodes of the same class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class HomophilyCounts:
    """Counts of edges, added up block by block.

    edges: edges that were looked at.
    labelled: those whose ends both have a label.
    same: those whose ends have the same label.
    """

    edges: int = 0
    labelled: int = 0
    same: int = 0

    def add(self, one: NDArray[Any], other: NDArray[Any]) -> None:
        """Add edges by the classes of their ends, (edges) each; -1 for none."""
        known = (one >= 0) & (other >= 0)
        self.edges += len(one)
        self.labelled += int(np.count_nonzero(known))
        self.same += int(np.count_nonzero(known & (one == other)))

    @property
    def share(self) -> float | None:
        """Edge homophily, from 0 to 1: same / labelled. None without labelled edges."""
        return self.same / self.labelled if self.labelled else None


def share_by_chance(nodes_by_class: NDArray[np.int64]) -> float:
    """Return the share of pairs of labelled nodes with the same class: the homophily of edges without regard to it."""
    shares = nodes_by_class / max(1, int(nodes_by_class.sum()))
    return float((shares * shares).sum())

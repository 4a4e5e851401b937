"""Edges of each kind, drawn by number (native/include/diskhop/generate/generate.hpp defines them)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import block_model_edges, rmat_edges, uniform_edges
from diskhop.dataset.edges import EdgeSource, UndirectedEdges
from diskhop.dataset.manifest import index_dtype
from diskhop.generating.config import GraphConfig

# Fills in sources and destinations of consecutive edges, given the first one's number.
_Fill = Callable[[int, NDArray[Any], NDArray[Any]], None]


class DrawnEdges:
    """EdgeSource that draws edges by number.

    num_nodes: ids are less.
    num_edges: number of edges.
    identity: text that changes when an edge does.
    fill: draws consecutive edges.
    """

    def __init__(self, num_nodes: int, num_edges: int, identity: str, fill: _Fill) -> None:
        self.num_edges = num_edges
        self.identity = identity
        self._dtype = index_dtype(num_nodes)
        self._fill = fill

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """See EdgeSource."""
        sources, destinations = np.empty(count, self._dtype), np.empty(count, self._dtype)
        self._fill(first, sources, destinations)
        return sources, destinations


def generated_edges(config: GraphConfig) -> EdgeSource:
    """Return the edges of a graph, in input order."""
    nodes, seed = config.num_nodes, config.seed
    fills: dict[str, tuple[str, _Fill]] = {
        "kronecker": (
            f"rmat {config.quadrant_chances}",
            lambda first, *ends: rmat_edges(nodes, config.quadrant_chances, seed, first, *ends),
        ),
        "uniform": ("uniform", lambda first, *ends: uniform_edges(nodes, seed, first, *ends)),
        "sbm": (
            f"sbm of {config.num_classes} classes, homophily {config.same_class_chance}",
            lambda first, *ends: block_model_edges(
                nodes, config.num_classes, config.same_class_chance, seed, first, *ends
            ),
        ),
    }
    words, fill = fills[config.kind]
    identity = f"{words}: {config.num_edges} edges, {nodes} nodes, seed {seed}"
    edges = DrawnEdges(nodes, config.num_edges, identity, fill)
    return edges if config.directed else UndirectedEdges(edges)

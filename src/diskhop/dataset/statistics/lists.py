"""Neighbour lists, streamed: their lengths, the destinations of some edges, and edges in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.edge_set import EdgeSet, destinations_of
from diskhop.dataset.files import map_array, read_blocks
from diskhop.dataset.statistics.doubling import DoublingHistogram
from diskhop.errors import FormatError
from diskhop.runtime.progress import Progress, silent

DEGREES = "degrees"


def scan_lists(
    edges: EdgeSet, positions: NDArray[np.int64], progress: Progress = silent
) -> tuple[DoublingHistogram, NDArray[np.int64]]:
    """Return the in-degrees, and the destination nodes of edges at some positions, ascending, in one pass."""
    files, histogram = edges.topology, DoublingHistogram()
    destinations = np.zeros(len(positions), np.int64)
    first = done = 0  # the node that `bounds` begins with, and positions whose destination is known
    last = np.zeros(0, np.int64)
    for block in read_blocks(files.indptr_path):
        bounds = np.concatenate([last, block.view(np.int64)])
        if len(bounds) > 1:
            lengths = np.diff(bounds)
            if int(lengths.min()) < 0:
                raise FormatError(
                    f"{files.indptr_path}: is damaged; 'diskhop verify' names the blocks: import the graph again"
                )
            histogram.add(lengths)
            stop = int(np.searchsorted(positions, bounds[-1]))
            destinations[done:stop] = first + np.searchsorted(bounds, positions[done:stop], side="right") - 1
            done = stop
        first += len(bounds) - 1
        last = bounds[-1:].copy()
        progress(DEGREES, first, files.num_nodes)
    return histogram, destinations


def edge_blocks(edges: EdgeSet) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield sources and destinations of all edges, in blocks of a MiB of sources. Raises FormatError for bad ids."""
    files = edges.topology
    indptr = map_array(files.indptr_path, np.int64, files.num_nodes + 1)
    first, limit = 0, edges.end_nodes[0].num_nodes
    for block in read_blocks(files.indices_path):
        sources = block.view(files.index_dtype)
        if not 0 <= int(sources.min(initial=0)) <= int(sources.max(initial=0)) < max(limit, 1):
            raise FormatError(
                f"{files.indices_path}: is damaged; 'diskhop verify' names the blocks: import the graph again"
            )
        yield sources, destinations_of(indptr, first, first + len(sources))
        first += len(sources)

"""Neighbour lists with weights: those of a dataset, or with exactly one edge from every node to itself.

Operators that add a node's own row take lists of the second kind: a node keeps the weight of its edge to itself (of
several the last), and others get one of weight 1, as in PyG's gcn_norm. The edge is the last of its list.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.dataset.files import map_array
from diskhop.hops.make.passes import Lists
from diskhop.hops.tables import PAGE_BYTES
from diskhop.io.streams import SequentialWriter
from diskhop.io.values import read_values
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.tasks import TaskTools

# Parts of a file begin at multiples of this.
_PART_BYTES = 1 << 20
_WRITER_BYTES = 128 << 10
_EDGES_AT_ONCE = 16 << 10
_NODES_AT_ONCE = 4 << 10
WEIGHTED_LISTS_BYTES = 6 * _WRITER_BYTES + 96 * _EDGES_AT_ONCE + 64 * _NODES_AT_ONCE
WEIGHT_BYTES = 4
# Memory of sum_weights(), for 4096 lists.
SUMS_BYTES = 40 * _EDGES_AT_ONCE


class _Piece(NamedTuple):
    """Some edges of consecutive lists, with the loops of the lists that end among them.

    ends: int64, for each list that ends, the number of the piece's edges up to its end.
    """

    indices: NDArray[Any]
    weights: NDArray[np.float32]
    ends: NDArray[np.int64]


def looped_lists(topology: TopologyFiles, path: Path) -> Lists:
    """Return the lists that write_looped_lists() wrote."""
    num_edges = int(read_values(path, "<i8", 1, offset=8 * topology.num_nodes)[0])
    indices_offset, weights_offset = _offsets(topology)
    return Lists(
        indptr_path=path,
        indptr_offset=0,
        indices_path=path,
        indices_offset=indices_offset,
        index_bytes=4 if topology.index_dtype.itemsize == 4 else 8,
        num_nodes=topology.num_nodes,
        num_edges=num_edges,
        weights_path=path,
        weights_offset=weights_offset,
    )


def looped_lists_bytes(topology: TopologyFiles) -> int:
    """Return the disk space of the lists, at most."""
    num_edges = topology.num_edges + topology.num_nodes
    return _offsets(topology)[1] + WEIGHT_BYTES * num_edges + PAGE_BYTES


def write_looped_lists(topology: TopologyFiles, weights: NDArray[np.float32], path: Path, tools: TaskTools) -> None:
    """Write the lists with one edge from every node to itself: indptr, indices, weights."""
    indices_offset, weights_offset = _offsets(topology)
    pool, engine = BufferPool(0), tools.engine
    num_edges = 0
    with (
        SequentialWriter(path, engine, pool, buffer_bytes=_WRITER_BYTES) as indptr,
        SequentialWriter(path, engine, pool, buffer_bytes=_WRITER_BYTES, offset=indices_offset) as indices,
        SequentialWriter(path, engine, pool, buffer_bytes=_WRITER_BYTES, offset=weights_offset) as of_edges,
    ):
        indptr.append(np.zeros(1, "<i8").view(np.uint8))
        for piece in _pieces(topology, weights):
            indptr.append((num_edges + piece.ends).astype("<i8").view(np.uint8))
            indices.append(np.ascontiguousarray(piece.indices).view(np.uint8))
            of_edges.append(np.ascontiguousarray(piece.weights).view(np.uint8))
            num_edges += len(piece.indices)
        indptr.finish()
        for writer in (indices, of_edges):
            writer.append(np.zeros(PAGE_BYTES, np.uint8))
            writer.finish()


def sum_weights(lists: Lists, start: int, stop: int) -> NDArray[np.float64]:
    """Sum the absolute weights of each list from start to stop."""
    assert lists.weights_path is not None, "only lists with weights"
    ends = read_values(lists.indptr_path, "<i8", stop - start + 1, offset=lists.indptr_offset + 8 * start)
    sums = np.zeros(stop - start)
    first, last = int(ends[0]), int(ends[-1])
    for begin, end in row_ranges(last - first, _EDGES_AT_ONCE):
        offset = lists.weights_offset + WEIGHT_BYTES * (first + begin)
        weights = np.abs(read_values(lists.weights_path, "<f4", end - begin, offset=offset).astype(np.float64))
        edges = np.arange(first + begin, first + end)
        sums += np.bincount(np.searchsorted(ends, edges, side="right") - 1, weights, minlength=stop - start)
    return sums


def _offsets(topology: TopologyFiles) -> tuple[int, int]:
    """Return the offsets of indices and weights."""
    indices_offset = _whole_parts(8 * (topology.num_nodes + 1))
    most_edges = topology.num_edges + topology.num_nodes
    return indices_offset, indices_offset + _whole_parts(topology.index_dtype.itemsize * most_edges + PAGE_BYTES)


def _whole_parts(num_bytes: int) -> int:
    return -(-num_bytes // _PART_BYTES) * _PART_BYTES


def _pieces(topology: TopologyFiles, weights: NDArray[np.float32]) -> Iterator[_Piece]:
    """Yield all lists with their loops."""
    indptr = map_array(topology.indptr_path, np.int64, topology.num_nodes + 1)
    indices = map_array(topology.indices_path, topology.index_dtype, topology.num_edges)
    loop = np.float32(1)  # of the list that continues in the next piece
    for start, stop in row_ranges(topology.num_nodes, _NODES_AT_ONCE):
        bounds = np.array(indptr[start : stop + 1])
        node = start  # first one whose list has not ended
        cuts = [*range(int(bounds[0]), int(bounds[-1]), _EDGES_AT_ONCE), int(bounds[-1])]
        for first, end in zip(cuts, cuts[1:] or cuts, strict=False):
            stop_node = start + int(np.searchsorted(bounds[1:], end, side="right"))
            targets = start + np.searchsorted(bounds, np.arange(first, end), side="right") - 1
            sources = np.array(indices[first:end])
            given = np.array(weights[first:end])
            is_loop = sources == targets.astype(sources.dtype)
            loops = np.ones(stop_node - node + 1, np.float32)
            loops[0] = loop
            loops[targets[is_loop] - node] = given[is_loop]
            loop = loops[-1]
            kept = np.concatenate([[0], np.cumsum(~is_loop)])
            ends = kept[bounds[node - start + 1 : stop_node - start + 1] - first]
            ended = np.arange(node, stop_node).astype(sources.dtype)
            yield _Piece(
                np.insert(sources[~is_loop], ends, ended),
                np.insert(given[~is_loop], ends, loops[:-1]),
                ends + np.arange(1, len(ends) + 1),
            )
            node = stop_node

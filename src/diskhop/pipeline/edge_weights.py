"""Weights of the edges of batches, and what models that normalise by them need of the whole graph.

The *strength* of a node is the sum of the absolute weights of its in-edges from other nodes: the weighted degree.

weights = EdgeWeights(dataset, memory_bytes, with_strengths=True)    # `reserved` and `added` are for the plan
opened = weights.open(engine, max_gap_bytes)
opened.of(sampled)
"""

from __future__ import annotations

import threading

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.listed_edges import ListedEdges
from diskhop.nn.layers.aggregate import BlockWeights
from diskhop.pipeline.columns import READ_BYTES, READING_BYTES, Column, DiskColumn, HeldColumn
from diskhop.plans import PreparedBytes
from diskhop.protocols import SampledBatch
from diskhop.runtime.blocks import row_ranges

# Weights beyond this share of the memory are read from the disk for every batch.
_HELD_SHARE = 4
_EDGES_AT_ONCE = 1 << 18
# A strength and the weight of a self-loop, float32.
_BYTES_PER_NODE = 8


class EdgeWeights:
    """The weights of a dataset that has some, and where they are read.

    with_strengths: whether batches have strengths and self-loops of their nodes in the whole graph, too.
    reserved: bytes that open() holds, by name.
    added: bytes that they add to a batch.
    """

    def __init__(self, dataset: Dataset, memory_bytes: int, *, with_strengths: bool) -> None:
        column = dataset.only_edges.weight_column()
        assert column is not None, "the dataset has weights"
        self._dataset = dataset
        self._column = column
        self._is_held = column.num_bytes <= memory_bytes // _HELD_SHARE
        self._with_strengths = with_strengths
        self.reserved = {"edge weights": column.num_bytes} if self._is_held else {"reading edge weights": READ_BYTES}
        if with_strengths:
            self.reserved["node strengths"] = _BYTES_PER_NODE * dataset.num_nodes
        self.added = PreparedBytes(per_node=_BYTES_PER_NODE * with_strengths, per_edge=4)

    def open(self, engine: Engine, max_gap_bytes: int) -> OpenWeights:
        """Load what is in memory. The caller has reserved `reserved`."""
        column: Column
        if self._is_held:
            column = HeldColumn(self._dataset.only_edges.read(self._column))
        else:
            column = DiskColumn(self._column, engine, BufferPool(READING_BYTES), threading.Lock(), max_gap_bytes)
        return OpenWeights(column, sum_strengths(self._dataset) if self._with_strengths else None)


class Strengths:
    """Strengths of all nodes.

    strengths: float32 (nodes).
    loops: float32 (nodes), weight of each node's edge to itself, 1 without one; None if no node has one.
    """

    def __init__(self, strengths: NDArray[np.float32], loops: NDArray[np.float32] | None) -> None:
        self.strengths = strengths
        self.loops = loops

    def loops_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the weights of the self-loops of nodes."""
        return np.ones(len(rows), np.float32) if self.loops is None else self.loops[rows]


class OpenWeights:
    """Weights of a graph, open. Any thread may call it."""

    def __init__(self, column: Column, strengths: Strengths | None) -> None:
        self._column = column
        self._strengths = strengths

    def of(self, sampled: SampledBatch, *, with_strengths: bool = True) -> BlockWeights:
        """Return the weights of a batch's edges. Raises ReadError, naming file and offset.

        with_strengths: whether its nodes are normalised by the whole graph, if strengths are known. A sampler's own
            weights are then importance (see Block), and otherwise factors of the weights.
        """
        weights = torch.from_numpy(self._column.rows(sampled.edge_positions))
        if self._strengths is None or not with_strengths:
            if sampled.edge_weights is not None:
                weights = weights * torch.from_numpy(sampled.edge_weights)
            return BlockWeights(weights)
        rows = sampled.node_ids
        strengths, loops = self._strengths.strengths[rows], self._strengths.loops_of(rows)
        return BlockWeights(weights, torch.from_numpy(strengths), torch.from_numpy(loops))


def sum_strengths(dataset: Dataset) -> Strengths:
    """Sum the absolute weights of each node's in-edges from other nodes, in one pass over the lists.

    Of several edges from a node to itself the last counts, as in PyG.
    """
    weights = dataset.edge_weights()
    assert weights is not None, "the dataset has weights"
    edges = ListedEdges(dataset.topology, dataset.hash)
    strengths = np.zeros(dataset.num_nodes, np.float32)
    loops: NDArray[np.float32] | None = None
    for start, stop in row_ranges(edges.num_edges, _EDGES_AT_ONCE):
        sources, destinations = edges.read(start, stop - start)
        block, first = weights[start:stop], int(destinations[0])
        is_loop = sources == destinations
        sums = np.bincount(destinations - destinations[0], np.abs(block) * ~is_loop)
        strengths[first : first + len(sums)] += sums.astype(np.float32)
        if is_loop.any():
            loops = np.ones(dataset.num_nodes, np.float32) if loops is None else loops
            loops[destinations[is_loop]] = block[is_loop]
    return Strengths(strengths, loops)

"""Norms of GraphSAINT for the batches of a pipeline: those of nodes in memory, those of edges there or on disk.

norms = NormColumns(dataset, memory_bytes)    # `reserved` and `added` are for the plan
opened = norms.open(files, engine, max_gap_bytes)
opened.of_nodes(rows), opened.of_edges(positions)
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine
from diskhop.dataset.attribute_set import StoredColumn
from diskhop.dataset.dataset import Dataset
from diskhop.io.locks import SharedLock
from diskhop.io.values import read_values
from diskhop.pipeline.columns import READ_BYTES, READING_BYTES, Column, DiskColumn, HeldColumn
from diskhop.plans import PreparedBytes
from diskhop.sampling.norms import Norms

# Norms of edges beyond this share of the memory are read from the disk for every batch.
_HELD_SHARE = 4


class NormColumns:
    """Where the norms of a dataset are read.

    reserved: bytes that open() holds, by name.
    added: bytes that they add to a batch.
    """

    def __init__(self, dataset: Dataset, memory_bytes: int) -> None:
        edge_bytes = 4 * dataset.num_edges
        self._is_held = edge_bytes <= memory_bytes // _HELD_SHARE
        self.reserved = {"node norms": 4 * dataset.num_nodes}
        self.reserved |= {"edge norms": edge_bytes} if self._is_held else {"reading edge norms": READ_BYTES}
        self.added = PreparedBytes(per_node=4, per_edge=4)

    def open(self, norms: Norms, engine: Engine, max_gap_bytes: int) -> OpenNorms:
        """Load what is in memory. The caller has reserved `reserved`. Raises ReadError."""
        edges: Column
        if self._is_held:
            edges = _held(norms.edge)
        else:
            edges = DiskColumn(norms.edge, engine, BufferPool(READING_BYTES), threading.Lock(), max_gap_bytes)
        return OpenNorms(_held(norms.node), edges, norms.lock)


class OpenNorms:
    """Open norms. Any thread may call it. lock: that of their folder."""

    def __init__(self, nodes: Column, edges: Column, lock: SharedLock) -> None:
        self._lock = lock
        self._nodes = nodes
        self._edges = edges

    def of_nodes(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the norms of nodes, float32 (rows)."""
        return self._nodes.rows(rows).astype(np.float32, copy=False)

    def of_edges(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the norms of edges, float32 (positions). Raises ReadError, naming file and offset."""
        return self._edges.rows(positions).astype(np.float32, copy=False)


def _held(column: StoredColumn) -> HeldColumn:
    return HeldColumn(read_values(column.table.path, column.dtype, column.table.num_rows))

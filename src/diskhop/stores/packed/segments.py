"""Rows of a packed trace on the disk: once per segment if several of its batches need them, else once per batch.

policies/segments.py defines these words and chooses how long a segment is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.policies.minhash import minhash_order
from diskhop.protocols import AccessTrace, NodeIds, Table

# Bytes per row of the table: whether it is resident, how many batches need it, its place, and sorting places.
LAYING_OUT_BYTES_PER_ROW = 1 + 1 + 8 + 24


class OwnRows(NamedTuple):
    """Rows of one batch.

    num_nodes: all its rows. num_packed: rows packed for it alone. num_shared: rows that it shares.
    """

    num_nodes: int
    num_packed: int
    num_shared: int


class SegmentRows(NamedTuple):
    """Shared rows of one segment.

    first_row: their first row in the shared table.
    ids: their ids, grouped by partition of the feature table.
    bounds: first id of each partition, and the number of ids.
    """

    first_row: int
    ids: NDArray[np.uint32]
    bounds: NDArray[np.int64]


class SharedRows:
    """Rows that the batches of each segment share, stored once: a table at the front of a file.

    Rows of a segment are grouped by partition of the feature table, so that they are written while it is read, and
    sorted within each by (h1, h2, id) of two MinHashes. Goes through the trace. Takes LAYING_OUT_BYTES_PER_ROW for each
    row of the feature table, is_resident included. Not thread-safe.

    own: rows of each batch.
    num_rows: shared rows of all segments.
    """

    def __init__(
        self, trace: AccessTrace, is_resident: NDArray[np.bool_], segment: int, table: Table, partition_rows: int
    ) -> None:
        self._trace = trace
        self._is_resident = is_resident
        self._segment = segment
        self._partition_rows = partition_rows
        self._num_partitions = -(-table.num_rows // partition_rows)
        self.own: list[OwnRows] = []
        self._first_rows: list[int] = []
        self.num_rows = 0
        for first in range(0, len(trace), segment):
            counts = self._count(first) if segment > 1 else None
            for index in self._batches(first):
                ids = trace.node_ids(index)
                missing = ids[~is_resident[ids]]
                num_shared = 0 if counts is None else int(np.count_nonzero(counts[missing] > 1))
                self.own.append(OwnRows(len(ids), len(missing) - num_shared, num_shared))
            self._first_rows.append(self.num_rows)
            self.num_rows += 0 if counts is None else int(np.count_nonzero(counts > 1))
        self._row_of = np.full(table.num_rows if self.num_rows else 0, -1, np.int64)
        self._ids: NDArray[np.uint32] = np.empty(0, np.uint32)

    def rows_of(self, index: int) -> NDArray[np.int64] | None:
        """Return the shared row of each row of the feature table, -1 if it has none; None if no rows are shared.

        Call it once per batch, in order; the result is valid until the next call.
        """
        if self.num_rows == 0:
            return None
        if index % self._segment == 0:
            self._lay_out(index)
        return self._row_of

    def segment_after(self, index: int) -> SegmentRows | None:
        """Return the rows of the segment that ends with this batch, if it shares any. Call rows_of() first."""
        is_last = (index + 1) % self._segment == 0 or index + 1 == len(self._trace)
        if not is_last or len(self._ids) == 0:
            return None
        first_ids = np.arange(self._num_partitions + 1, dtype=np.int64) * self._partition_rows
        bounds = np.searchsorted(self._ids // np.uint32(self._partition_rows), np.arange(len(first_ids)))
        return SegmentRows(self._first_rows[index // self._segment], self._ids, bounds)

    def _lay_out(self, first: int) -> None:
        shared = np.flatnonzero(self._count(first) > 1)
        self._row_of.fill(-1)
        self._row_of[shared] = np.arange(len(shared))
        order = minhash_order(_Indices(self, self._batches(first)), len(shared))
        order = order[np.argsort(shared[order] // self._partition_rows, kind="stable")]
        self._ids = shared[order].astype(np.uint32)
        first_row = self._first_rows[first // self._segment]
        self._row_of[self._ids] = np.arange(first_row, first_row + len(shared))

    def _count(self, first: int) -> NDArray[np.uint8]:
        """Count the batches of a segment that need each row, at most 2; 0 for a resident row."""
        counts = np.zeros(len(self._is_resident), np.uint8)
        for index in self._batches(first):
            ids = self._trace.node_ids(index)
            ids = ids[~self._is_resident[ids]]
            counts[ids] = np.minimum(counts[ids] + 1, 2)
        return counts

    def _batches(self, first: int) -> range:
        return range(first, min(first + self._segment, len(self._trace)))

    def shared_indices(self, index: int) -> NDArray[np.int64]:
        """Return the shared rows that a batch needs, while they are in the order of their ids."""
        rows = self._row_of[self._trace.node_ids(index)]
        return rows[rows >= 0]


class _Indices(Sequence[NodeIds]):
    """Shared rows of each batch of a segment for minhash_order(), read from the trace on every access."""

    def __init__(self, shared: SharedRows, batches: range) -> None:
        self._shared = shared
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> NodeIds:  # type: ignore[override]
        return self._shared.shared_indices(self._batches[index])
